"""Encoders as anybody would write them in PyTorch, on weights by their names in the `.wsl` text."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

Tensors = Mapping[str, torch.Tensor]


def vit(w: Tensors, batch: Tensors) -> torch.Tensor:
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


def bert(w: Tensors, batch: Tensors) -> torch.Tensor:
    """BERT with the head of its masked language model: norms behind each part; logits [b * s, vocab]."""
    x = F.embedding(batch["tokens"], w["wte"]) + w["wpe"] + F.embedding(batch["segments"], w["wse"])
    x = F.layer_norm(x, x.shape[-1:], w["g0"], w["b0"], 1e-12)
    for p in _layers(w):
        x = F.layer_norm(x + _attended(x, p), x.shape[-1:], p["g1"], p["b1"], 1e-12)
        h = F.linear(F.gelu(F.linear(x, p["wup"].T, p["bup"])), p["wdown"].T, p["bdown"])
        x = F.layer_norm(x + h, x.shape[-1:], p["g2"], p["b2"], 1e-12)
    h = F.layer_norm(F.gelu(F.linear(x, w["wt"].T, w["bt"])), x.shape[-1:], w["gt"], w["bgt"], 1e-12)
    return F.linear(h, w["wte"], w["bvocab"]).flatten(0, 1)


def _layers(w: Tensors) -> list[dict[str, torch.Tensor]]:
    own = {n.removeprefix("block."): t for n, t in w.items() if n.startswith("block.")}
    return [{n: t[i] for n, t in own.items()} for i in range(len(own["wo"]))]


def _attended(x: torch.Tensor, p: Tensors) -> torch.Tensor:
    q, k, v = (torch.einsum("bsd,dche->cbhse", x, p["wqkv"]) + p["bqkv"][:, None, :, None, :]).unbind(0)
    o = F.scaled_dot_product_attention(q, k, v)
    return torch.einsum("bhse,hed->bsd", o, p["wo"]) + p["bo"]
