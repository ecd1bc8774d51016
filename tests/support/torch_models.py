"""The model families as anybody would write them in PyTorch, on weights by their names in the `.wsl` text."""

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


def biased(w: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """Gains of 1 + g, four heads with the slopes of ALiBi, then scores that are capped and see three positions."""
    x = 4 * F.embedding(tokens, w["wte"])
    far = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    slopes = torch.tensor([0.25, 0.0625, 0.015625, 0.00390625], dtype=x.dtype).reshape(2, 2, 1, 1)
    for p in _layers(w):
        h = F.rms_norm(x, x.shape[-1:], 1 + p["g1"], eps=1e-5)
        q, k = torch.einsum("bsd,dkge->bkgse", h, p["wq"]), torch.einsum("bsd,dke->bkse", h, p["wk"])
        scores = torch.einsum("bkgse,bkte->bkgst", q, k) / q.shape[-1] ** 0.5 - slopes * far
        shares = scores.masked_fill(far < 0, -torch.inf).softmax(-1)
        y = torch.einsum("bkgst,btd,dke,kgef->bsf", shares, h, p["wv"], p["wo"])
        x = x + F.rms_norm(y, x.shape[-1:], 1 + p["g2"], eps=1e-5)
        q, k = (torch.einsum("bsd,dhe->bhse", x, p[n]) for n in ("wq2", "wk2"))
        scores = 0.7 * (q @ k.mT / q.shape[-1] ** 0.5 / 0.7).tanh()
        shares = scores.masked_fill((far < 0) | (far > 2), -torch.inf).softmax(-1)
        x = x + torch.einsum("bhst,bhte,hed->bsd", shares, k, p["wo2"])
        x = x + (F.gelu(x @ p["w1"], approximate="tanh") * (x @ p["w3"])) @ p["w2"]
    x = F.rms_norm(x, x.shape[-1:], 2 - w["gf"], eps=1e-5)
    return 1.5 * (x @ w["wte"].T / 1.5).tanh()


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """`x cos + rotate_half(x) sin` over positions (the last but one dimension)."""
    half = x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), speeds)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def vit(w: Weights, batch: Weights) -> torch.Tensor:
    """ViT: norms before each part, a class token or the mean of all patches; logits [b, classes]."""
    x = F.linear(batch["images"], w["wpatch"].T, w["bpatch"])
    if "cls" in w:
        x = torch.cat((w["cls"].expand(x.shape[0], 1, -1), x), 1)
    x = x + w["wpe"]
    for p in _layers(w):
        x = x + _attended(F.layer_norm(x, x.shape[-1:], p["g1"], p["b1"]), p)
        h = F.linear(F.layer_norm(x, x.shape[-1:], p["g2"], p["b2"]), p["wup"].T, p["bup"])
        x = x + F.linear(F.gelu(h), p["wdown"].T, p["bdown"])
    if "cls" in w:
        x = F.layer_norm(x[:, 0], x.shape[-1:], w["gf"], w["bf"])
    else:
        x = F.layer_norm(x, x.shape[-1:], w["gf"], w["bf"]).mean(1)
    return F.linear(x, w["whead"].T, w["bhead"])


def bert(w: Weights, batch: Weights) -> torch.Tensor:
    """BERT with the head of its masked language model: norms behind each part; logits [b * s, vocab]."""
    x = F.embedding(batch["tokens"], w["wte"]) + w["wpe"] + F.embedding(batch["segments"], w["wse"])
    x = F.layer_norm(x, x.shape[-1:], w["g0"], w["b0"], 1e-12)
    for p in _layers(w):
        x = F.layer_norm(x + _attended(x, p), x.shape[-1:], p["g1"], p["b1"], 1e-12)
        h = F.linear(F.gelu(F.linear(x, p["wup"].T, p["bup"])), p["wdown"].T, p["bdown"])
        x = F.layer_norm(x + h, x.shape[-1:], p["g2"], p["b2"], 1e-12)
    h = F.layer_norm(F.gelu(F.linear(x, w["wt"].T, w["bt"])), x.shape[-1:], w["gt"], w["bgt"], 1e-12)
    return F.linear(h, w["wte"], w["bvocab"]).flatten(0, 1)


def _layers(w: Weights) -> list[dict[str, torch.Tensor]]:
    own = {n.removeprefix("block."): t for n, t in w.items() if n.startswith("block.")}
    return [{n: t[i] for n, t in own.items()} for i in range(len(own["wo"]))]


def _attended(x: torch.Tensor, p: Weights) -> torch.Tensor:
    q, k, v = (torch.einsum("bsd,dche->cbhse", x, p["wqkv"]) + p["bqkv"][:, None, :, None, :]).unbind(0)
    o = F.scaled_dot_product_attention(q, k, v)
    return torch.einsum("bhse,hed->bsd", o, p["wo"]) + p["bo"]
