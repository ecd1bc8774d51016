"""A small vision transformer as text, and its forward pass in NumPy, from the paper."""

from __future__ import annotations

from collections.abc import Mapping
from math import erf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

A = NDArray[Any]

_WAFER: Final = """
wafer w {{ mesh 4 x 4  die {{ peak 1 TFLOP/s, sram 80 MB, tile 1 }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model m(d = 16, heads = 4, ffn = 24, patches = {patches}, pixels = 8, classes = 10) {{
  input images : f32[batch, patches, pixels]
  input labels : i32[batch]
  param wpatch : [pixels, d] init normal(0.3)
  param bpatch : [d] init normal(0.1)
"""
_HEAD: Final = """
  repeat 2 as block {{
    param g1 : [d] init ones            param b1 : [d] init normal(0.1)
    param wqkv : [d, 3, heads, d / heads] init normal(0.3)
    param bqkv : [3, heads, d / heads] init normal(0.1)
    param wo : [heads, d / heads, d] init normal(0.3)
    param bo : [d] init normal(0.1)
    q, k, v = split(project(layernorm(x, g1, b1), wqkv) + bqkv)
    x = x + project(attention(q, k, v), wo) + bo
    param g2 : [d] init ones            param b2 : [d] init normal(0.1)
    param wup : [d, ffn] init normal(0.3)
    param bup : [ffn] init normal(0.1)
    param wdown : [ffn, d] init normal(0.3)
    param bdown : [d] init normal(0.1)
    x = x + gelu_erf(layernorm(x, g2, b2) @ wup + bup) @ wdown + bdown
  }}
  param gf : [d] init ones            param bf : [d] init normal(0.1)
  param whead : [d, classes] init normal(0.3)
  param bhead : [classes] init normal(0.1)
  loss cross_entropy({pooled} @ whead + bhead, labels)
}}
train m on w {{
  batch {batch}  microbatch {micro}  optimizer adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)  clip 0.5
  dtype compute f64, params f64, grads f64
  recompute {recompute}  parallel {parallel}
}}
"""
# A class token before the patches, and what stands there in the end; or the mean of all patches, each normed.
_TOKEN: Final = """
  param cls : [1, d] init normal(0.3)
  param wpe : [patches + 1, d] init normal(0.3)
  x = concat(cls, images @ wpatch + bpatch) + wpe"""
_MEAN: Final = """
  param wpe : [patches, d] init normal(0.3)
  x = images @ wpatch + bpatch + wpe"""


def vit_text(
    parallel: str,
    *,
    token: bool = True,
    patches: int = 12,
    batch: int = 8,
    micro: int = 2,
    recompute: str = "none",
) -> str:
    """The model under a strategy, in f64 on 4 x 4 dies."""
    pooled = "layernorm(first(x), gf, bf)" if token else "mean(layernorm(x, gf, bf))"
    body = f"{_WAFER}{_TOKEN if token else _MEAN}{_HEAD}"
    return body.format(
        parallel=parallel, patches=patches, batch=batch, micro=micro, pooled=pooled, recompute=recompute
    )


def logits(w: Mapping[str, A], images: A) -> A:
    """Logits [b, classes] of images [b, patches, pixels], with a class token, in f64; weights by name, by layer."""
    w = {n: np.asarray(x, float) for n, x in w.items()}
    x = images.astype(float) @ w["wpatch"] + w["bpatch"]
    x = np.concatenate([np.repeat(w["cls"][None], len(x), 0), x], 1) + w["wpe"]
    for layer in range(len(w["block.wo"])):
        x = _block(x, {n.removeprefix("block."): v[layer] for n, v in w.items() if n.startswith("block.")})
    return np.asarray(_layernorm(x[:, 0], w["gf"], w["bf"]) @ w["whead"] + w["bhead"])


def _block(x: A, p: Mapping[str, A]) -> A:
    q, k, v = np.moveaxis(
        np.einsum("bsd,dche->bshec", _layernorm(x, p["g1"], p["b1"]), p["wqkv"])
        + p["bqkv"].transpose(1, 2, 0),
        -1, 0,
    )  # fmt: skip
    weights = np.exp(np.einsum("bqhe,bkhe->bhqk", q, k) / np.sqrt(q.shape[-1]))
    weights /= weights.sum(-1, keepdims=True)
    x = x + np.einsum("bhqk,bkhe,hed->bqd", weights, v, p["wo"], optimize=True) + p["bo"]
    h = _layernorm(x, p["g2"], p["b2"]) @ p["wup"] + p["bup"]
    return np.asarray(x + h * (0.5 + 0.5 * np.vectorize(erf)(h / np.sqrt(2))) @ p["wdown"] + p["bdown"])


def _layernorm(x: A, g: A, b: A) -> A:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b)
