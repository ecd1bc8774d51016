"""A second, plain semantics of every instruction: one NumPy expression each, no care for speed.

Shares nothing with `wscc.backends`. Reads come as arrays; the result is the list of written arrays.
"""

from __future__ import annotations

from math import erf, pi, sqrt
from typing import Any

import numpy as np

A = np.ndarray
C = sqrt(2 / pi)
IGNORED = -100


def phi(x: A) -> A:
    return 0.5 * (1 + np.vectorize(erf, otypes=[float])(x / sqrt(2)))


def sigmoid(x: A) -> A:
    return 1 / (1 + np.exp(-x))


def hidden(s: A, attrs: dict[str, Any]) -> A:
    q = attrs["q_start"] + np.arange(s.shape[-2])[:, None]
    k = attrs["k_start"] + np.arange(s.shape[-1])[None]
    return (k > q) if attrs["causal"] else np.zeros(s.shape[-2:], bool)


def softmax(s: A, attrs: dict[str, Any]) -> list[A]:
    s = np.where(hidden(s, attrs), -np.inf, s)
    m = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(m), m, 0))
    z = e.sum(-1, keepdims=True)
    return [e / np.where(z == 0, 1, z), m[..., 0], z[..., 0]]


def probs(s: A, m: A, z: A, masked: A) -> A:
    e = np.exp(np.where(masked, 0, s - m[..., None]))
    return np.where(masked, 0.0, e / np.where(z == 0, 1, z)[..., None])


def merge(o: A, m: A, z: A, o2: A, m2: A, z2: A) -> list[A]:
    both = np.maximum(m, m2)
    safe = np.where(np.isfinite(both), both, 0)
    w, w2 = z * np.exp(m - safe), z2 * np.exp(m2 - safe)
    total = np.where(w + w2 == 0, 1, w + w2)[..., None]
    return [(o * w[..., None] + o2 * w2[..., None]) / total, both, w + w2]


def rowmean(p: A, x: A, d: A) -> A:
    return np.where(np.abs(p.sum(-1) - 1) <= 4 * np.finfo(p.dtype).eps, (p * x).sum(-1), d)


def norm_parts(x: A, eps: float, center: bool) -> tuple[A, A]:
    x = x - x.mean(-1, keepdims=True) if center else x
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return x * r, r


def norm_bwd(x: A, g: A, dy: A, eps: float, center: bool) -> list[A]:
    xh, r = norm_parts(x, eps, center)
    dn = dy * g
    dx = dn - xh * (dn * xh).mean(-1, keepdims=True)
    if center:
        dx = dx - dn.mean(-1, keepdims=True)
    lead = tuple(range(x.ndim - 1))
    out = [dx * r, (dy * xh).sum(lead)]
    return [*out, dy.sum(lead)] if center else out


def rope(x: A, attrs: dict[str, Any]) -> A:
    if "width" in attrs:
        scaled = {n: v for n, v in attrs.items() if n != "width"}
        return np.concatenate([rope(x[..., : attrs["width"]], scaled), x[..., attrs["width"] :]], -1)
    e = x.shape[-1] // 2
    speed = attrs["theta"] ** (-np.arange(e) / e)
    if "factor" in attrs:
        share = (attrs["original"] * speed / (2 * np.pi) - attrs["low"]) / (attrs["high"] - attrs["low"])
        share = np.minimum(np.maximum(share, 0), 1)
        speed = speed * share + speed / attrs["factor"] * (1 - share)
    angle = (attrs["start"] + np.arange(x.shape[1]))[:, None] * speed
    angle = angle.reshape(x.shape[1], *(1,) * (x.ndim - 3), e)
    a, b = x[..., :e], x[..., e:]
    c, s = np.cos(angle), attrs["sign"] * np.sin(angle)
    return np.concatenate([a * c - b * s, a * s + b * c], -1)


def rows(ids: A, start: int, n: int) -> tuple[A, A]:
    i = ids.astype(int) - start
    ok = (i >= 0) & (i < n)
    return np.where(ok, i, 0), ok


def gather(ids: A, table: A, attrs: dict[str, Any]) -> A:
    i, ok = rows(ids, attrs["start"], len(table))
    return np.where(ok[..., None], table[i], 0.0)


def scatter(ids: A, dy: A, old: A, attrs: dict[str, Any]) -> A:
    i, ok = rows(ids, attrs["start"], len(old))
    new = old.copy() if attrs["accumulate"] else np.zeros_like(old)
    np.add.at(new, i[ok], dy[ok])
    return new


def columns(x: A, attrs: dict[str, Any]) -> A:
    """A mask of the columns that are in the vocabulary, [columns]."""
    v = attrs["start"] + np.arange(x.shape[-1])
    return v < attrs["limit"] if attrs["limit"] else v >= 0


def pick_bwd(y: A, dp: A, shape: tuple[int, ...], attrs: dict[str, Any]) -> A:
    return (y[..., None] == attrs["start"] + np.arange(shape[-1])) * dp[..., None]


def rate(attrs: dict[str, Any], norm2: A, t: A) -> tuple[float, float]:
    """(learning rate after warm-up and decay, factor of gradient clipping)."""
    lr, n = attrs["lr"], float(t)
    if attrs["warmup"]:
        lr *= min(1.0, n / attrs["warmup"])
    if attrs["decay"] and n > attrs["warmup"]:
        x = min(1.0, (n - attrs["warmup"]) / max(1, attrs["decay"] - attrs["warmup"]))
        lr *= attrs["floor"] + (1 - attrs["floor"]) * 0.5 * (1 + np.cos(pi * x))
    return lr, min(1.0, attrs["clip"] / (sqrt(float(norm2)) + 1e-6)) if attrs["clip"] else 1.0


def adamw(w: A, m: A, v: A, g: A, norm2: A, t: A, attrs: dict[str, Any]) -> list[A]:
    lr, factor = rate(attrs, norm2, t)
    g = g * factor
    m = attrs["beta1"] * m + (1 - attrs["beta1"]) * g
    v = attrs["beta2"] * v + (1 - attrs["beta2"]) * g * g
    step = (
        m / (1 - attrs["beta1"] ** float(t)) / (np.sqrt(v / (1 - attrs["beta2"] ** float(t))) + attrs["eps"])
    )
    return [w * (1 - lr * attrs["weight_decay"]) - lr * step, m, v]


def sgd(w: A, g: A, norm2: A, t: A, attrs: dict[str, Any]) -> list[A]:
    lr, factor = rate(attrs, norm2, t)
    return [w - lr * factor * g]


def gelu_bwd(x: A, dy: A) -> A:
    t = np.tanh(C * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * 0.044715 * x * x))


def swiglu_bwd(a: A, b: A, dy: A) -> list[A]:
    s = sigmoid(a)
    return [dy * b * (s + a * s * (1 - s)), dy * a * s]


def apply(op: str, r: list[A], olds: list[A], attrs: dict[str, Any]) -> list[A]:
    """The written arrays; `olds` are the contents of the written views before."""
    acc = olds[0] if attrs.get("accumulate") else 0.0
    table: dict[str, Any] = {
        "copy": lambda: [r[0]],
        "cast": lambda: [r[0]],
        "fill": lambda: [np.full_like(olds[0], attrs["value"])],
        "gather": lambda: [gather(r[0], r[1], attrs)],
        "scatter_add": lambda: [scatter(r[0], r[1], olds[0], attrs)],
        "gemm": lambda: [acc + attrs["scale"] * (r[0] @ r[1])],
        "sum": lambda: [acc + r[0].sum(tuple(int(a) for a in attrs["axes"].split(",") if a))],
        "rowdot": lambda: [(r[0] * r[1]).sum(-1)],
        "add": lambda: [r[0] + r[1]],
        "sub": lambda: [r[0] - r[1]],
        "mul": lambda: [r[0] * r[1]],
        "div": lambda: [r[0] / r[1]],
        "maximum": lambda: [np.maximum(r[0], r[1])],
        "scale": lambda: [attrs["factor"] * r[0]],
        "gelu": lambda: [0.5 * r[0] * (1 + np.tanh(C * (r[0] + 0.044715 * r[0] ** 3)))],
        "gelu_bwd": lambda: [gelu_bwd(r[0], r[1])],
        "gelu_erf": lambda: [r[0] * phi(r[0])],
        "gelu_erf_bwd": lambda: [r[1] * (phi(r[0]) + r[0] * np.exp(-r[0] ** 2 / 2) / sqrt(2 * pi))],
        "relu": lambda: [np.maximum(r[0], 0)],
        "relu_bwd": lambda: [np.where(r[0] > 0, r[1], 0.0)],
        "swiglu": lambda: [r[0] * sigmoid(r[0]) * r[1]],
        "swiglu_bwd": lambda: swiglu_bwd(*r),
        "layernorm": lambda: [norm_parts(r[0], attrs["eps"], True)[0] * r[1] + r[2]],
        "layernorm_bwd": lambda: norm_bwd(*r, attrs["eps"], True),
        "rmsnorm": lambda: [norm_parts(r[0], attrs["eps"], False)[0] * r[1]],
        "rmsnorm_bwd": lambda: norm_bwd(*r, attrs["eps"], False),
        "rope": lambda: [rope(r[0], attrs)],
        "softmax": lambda: softmax(r[0], attrs),
        "merge": lambda: merge(*r),
        "probs": lambda: [probs(*r, hidden(r[0], attrs))],
        "rowmean": lambda: [rowmean(*r)],
        "softmax_bwd": lambda: [r[0] * (r[1] - r[2][..., None]) * attrs["scale"]],
        "rowmax": lambda: [np.where(columns(r[0], attrs), r[0], -np.inf).max(-1)],
        "sumexp": lambda: [np.where(columns(r[0], attrs), np.exp(r[0] - r[1][..., None]), 0).sum(-1)],
        "sumexp_bwd": lambda: [np.where(columns(r[0], attrs), np.exp(r[0] - r[1][..., None]) * r[2][..., None], 0)],
        "pick": lambda: [(pick_bwd(r[1], np.ones(r[1].shape), r[0].shape, attrs) * r[0]).sum(-1)],
        "pick_bwd": lambda: [pick_bwd(r[0], r[1], olds[0].shape, attrs)],
        "nll": lambda: [np.where(r[3] == IGNORED, 0.0, np.log(r[1]) + r[0] - r[2])],
        "nll_bwd": lambda: [np.where(r[1] == IGNORED, 0.0, r[2] / r[0]), np.where(r[1] == IGNORED, 0.0, -r[2])],
        "mean": lambda: [r[0].sum() / np.maximum(r[1], 1)],
        "mean_bwd": lambda: [np.full_like(olds[0], r[0] / np.maximum(r[1], 1))],
        "count": lambda: [(r[0] != IGNORED).sum()],
        "sqsum": lambda: [(r[0] ** 2).sum()],
        "tick": lambda: [r[0] + 1],
        "adamw": lambda: adamw(*r, attrs),
        "sgd": lambda: sgd(*r, attrs),
    }  # fmt: skip
    return [np.asarray(x) for x in table[op]()]
