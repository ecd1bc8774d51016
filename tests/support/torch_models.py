"""The two model families as anybody would write them in PyTorch, on weights by their names in the `.wsl` text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.nn.functional as F

Weights = Mapping[str, torch.Tensor]
Logits = Callable[[Weights, torch.Tensor], torch.Tensor]
LAYERS: Final = 3


def gpt(w: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """GPT-2: learned positions, LayerNorm before each part, biases, tanh GELU, the table again as the head."""
    x = F.embedding(tokens, w["wte"]) + w["wpe"]
    for layer in range(LAYERS):
        p = {n.removeprefix("block."): t[layer] for n, t in w.items() if n.startswith("block.")}
        h = F.layer_norm(x, x.shape[-1:], p["g1"], p["b1"])
        q, k, v = (torch.einsum("bsd,dche->cbhse", h, p["wqkv"]) + p["bqkv"][:, None, :, None, :]).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhse,hed->bsd", o, p["wo"]) + p["bo"]
        h = F.layer_norm(x, x.shape[-1:], p["g2"], p["b2"])
        x = x + F.linear(F.gelu(F.linear(h, p["w1"].T, p["c1"]), approximate="tanh"), p["w2"].T, p["c2"])
    return F.linear(F.layer_norm(x, x.shape[-1:], w["gf"], w["bf"]), w["wte"])


def llama(w: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """RMSNorm, rotary positions, groups of queries that share keys, SwiGLU, a head of its own."""
    x = F.embedding(tokens, w["wte"])
    for layer in range(LAYERS):
        p = {n.removeprefix("block."): t[layer] for n, t in w.items() if n.startswith("block.")}
        h = F.rms_norm(x, x.shape[-1:], p["g1"], eps=1e-5)
        q = _rotated(torch.einsum("bsd,dkge->bkgse", h, p["wq"]))
        k = _rotated(torch.einsum("bsd,dke->bkse", h, p["wk"]))
        v = torch.einsum("bsd,dke->bkse", h, p["wv"])
        group = q.shape[2]
        o = F.scaled_dot_product_attention(
            q.flatten(1, 2), k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True
        )
        x = x + torch.einsum("bkgse,kged->bsd", o.reshape(o.shape[0], -1, group, *o.shape[2:]), p["wo"])
        h = F.rms_norm(x, x.shape[-1:], p["g2"], eps=1e-5)
        x = x + (F.silu(h @ p["w1"]) * (h @ p["w3"])) @ p["w2"]
    return F.rms_norm(x, x.shape[-1:], w["gf"], eps=1e-5) @ w["head"]


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """`x cos + rotate_half(x) sin` over positions (the last but one dimension)."""
    half = x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), speeds)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
