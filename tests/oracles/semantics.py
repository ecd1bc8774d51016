"""A second, plain semantics of every instruction: one NumPy expression each, no care for speed.

Shares nothing with `wscc.backends`. Reads come as arrays; the result is the list of written arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import Any, Final

import numpy as np

from tests.oracles.philox import dropped

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
    future = (k > q) if attrs["causal"] else np.zeros(s.shape[-2:], bool)
    behind = (k <= q - attrs["window"]) if attrs.get("window") else False
    return future | behind | ((k >= attrs["limit"]) if attrs.get("limit") else False)


def alibi(x: A, a: dict[str, Any]) -> A:
    """Slopes by interleaving: of n heads those of the power of two below, then the odd places of the next one."""
    power = 2 ** int(np.floor(np.log2(a["heads"])))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(power)]
    groups = x.reshape(*x.shape[:2], -1, *x.shape[-2:])
    h, g = np.indices(groups.shape[1:3])
    own = np.array([*slopes, 0.0])[np.minimum((a["h_start"] + h) * a["group"] + a["g_start"] + g, 2 * power)]
    q = a["q_start"] + np.arange(x.shape[-2])[:, None]
    far = a["k_start"] + np.arange(x.shape[-1]) - q
    return (groups + own[..., None, None] * far).reshape(x.shape)


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
        scaled = {n: v for n, v in attrs.items() if n not in ("width", "interleaved")}
        if attrs["interleaved"]:
            order = [*range(0, attrs["width"], 2), *range(1, attrs["width"], 2)]
            halves = rope(x[..., order], scaled)
            return np.concatenate([halves[..., np.argsort(order)], x[..., attrs["width"] :]], -1)
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


def before(olds: list[A], attrs: dict[str, Any]) -> A | float:
    """What the result is added to."""
    return olds[0] if attrs.get("accumulate") else 0.0


# By op, the written arrays of what is read, what the written views held before, and the attributes.
MEANINGS: Final[dict[str, Callable[[list[A], list[A], dict[str, Any]], Any]]] = {
    "copy": lambda r, o, a: [r[0]],
    "cast": lambda r, o, a: [r[0]],
    "fill": lambda r, o, a: [np.full_like(o[0], a["value"])],
    "gather": lambda r, o, a: [gather(r[0], r[1], a)],
    "scatter_add": lambda r, o, a: [scatter(r[0], r[1], o[0], a)],
    "gemm": lambda r, o, a: [before(o, a) + a["scale"] * (r[0] @ r[1])],
    "sum": lambda r, o, a: [before(o, a) + r[0].sum(tuple(int(n) for n in a["axes"].split(",") if n))],
    "rowdot": lambda r, o, a: [(r[0] * r[1]).sum(-1)],
    "add": lambda r, o, a: [r[0] + r[1]],
    "sub": lambda r, o, a: [r[0] - r[1]],
    "mul": lambda r, o, a: [r[0] * r[1]],
    "div": lambda r, o, a: [r[0] / r[1]],
    "maximum": lambda r, o, a: [np.maximum(r[0], r[1])],
    "scale": lambda r, o, a: [a["factor"] * r[0]],
    "gelu": lambda r, o, a: [0.5 * r[0] * (1 + np.tanh(C * (r[0] + 0.044715 * r[0] ** 3)))],
    "gelu_bwd": lambda r, o, a: [gelu_bwd(r[0], r[1])],
    "gelu_erf": lambda r, o, a: [r[0] * phi(r[0])],
    "gelu_erf_bwd": lambda r, o, a: [r[1] * (phi(r[0]) + r[0] * np.exp(-r[0] ** 2 / 2) / sqrt(2 * pi))],
    "relu": lambda r, o, a: [np.maximum(r[0], 0)],
    "sigmoid": lambda r, o, a: [1 / (1 + np.exp(-r[0]))],
    "sigmoid_bwd": lambda r, o, a: [r[1] / (2 + np.exp(-r[0]) + np.exp(r[0]))],
    "rsqrt": lambda r, o, a: [1 / np.sqrt(r[0] + a["eps"])],
    "rsqrt_bwd": lambda r, o, a: [-r[1] / (2 * np.sqrt(r[0] + a["eps"]) * (r[0] + a["eps"]))],
    "dropout": lambda r, o, a: [
        dropped(r[0], r[1], a["rate"], a["salt"], a["start"], [int(n) for n in a["strides"].split(",")])
    ],
    "relu_bwd": lambda r, o, a: [np.where(r[0] > 0, r[1], 0.0)],
    "swiglu": lambda r, o, a: [r[0] * sigmoid(r[0]) * r[1]],
    "swiglu_bwd": lambda r, o, a: swiglu_bwd(*r),
    "layernorm": lambda r, o, a: [norm_parts(r[0], a["eps"], True)[0] * r[1] + r[2]],
    "layernorm_bwd": lambda r, o, a: norm_bwd(*r, a["eps"], True),
    "rmsnorm": lambda r, o, a: [norm_parts(r[0], a["eps"], False)[0] * r[1]],
    "rmsnorm_bwd": lambda r, o, a: norm_bwd(*r, a["eps"], False),
    "rope": lambda r, o, a: [rope(r[0], a)],
    "alibi": lambda r, o, a: [alibi(r[0], a)],
    "soft_cap": lambda r, o, a: [a["cap"] * np.tanh(r[0] / a["cap"])],
    "soft_cap_bwd": lambda r, o, a: [r[1] * (1 - np.tanh(r[0] / a["cap"]) ** 2)],
    "softmax": lambda r, o, a: softmax(r[0], a),
    "merge": lambda r, o, a: merge(*r),
    "probs": lambda r, o, a: [probs(*r, hidden(r[0], a))],
    "rowmean": lambda r, o, a: [rowmean(*r)],
    "softmax_bwd": lambda r, o, a: [r[0] * (r[1] - r[2][..., None]) * a["scale"]],
    "rowmax": lambda r, o, a: [np.where(columns(r[0], a), r[0], -np.inf).max(-1)],
    "sumexp": lambda r, o, a: [np.where(columns(r[0], a), np.exp(r[0] - r[1][..., None]), 0).sum(-1)],
    "sumexp_bwd": lambda r, o, a: [
        np.where(columns(r[0], a), np.exp(r[0] - r[1][..., None]) * r[2][..., None], 0)
    ],
    "pick": lambda r, o, a: [(pick_bwd(r[1], np.ones(r[1].shape), r[0].shape, a) * r[0]).sum(-1)],
    "pick_bwd": lambda r, o, a: [pick_bwd(r[0], r[1], o[0].shape, a)],
    "nll": lambda r, o, a: [np.where(r[3] == IGNORED, 0.0, np.log(r[1]) + r[0] - r[2])],
    "nll_bwd": lambda r, o, a: [np.where(r[1] == IGNORED, 0.0, r[2] / r[0]), np.where(r[1] == IGNORED, 0.0, -r[2])],
    "rowsum": lambda r, o, a: [np.where(columns(r[0], a), r[0], 0).sum(-1)],
    "rowsum_bwd": lambda r, o, a: [np.where(columns(o[0], a), r[0][..., None], 0.0)],
    "zloss": lambda r, o, a: [np.where(r[2] == IGNORED, 0.0, a["factor"] * (np.log(r[1]) + r[0]) ** 2)],
    "zloss_bwd": lambda r, o, a: [
        np.where(r[2] == IGNORED, 0.0, 2 * a["factor"] * (np.log(r[1]) + r[0]) * r[3] / r[1])
    ],
    "mean": lambda r, o, a: [r[0].sum() / np.maximum(r[1], 1)],
    "mean_bwd": lambda r, o, a: [np.full_like(o[0], r[0] / np.maximum(r[1], 1))],
    "count": lambda r, o, a: [(r[0] != IGNORED).sum()],
    "sqsum": lambda r, o, a: [(r[0] ** 2).sum()],
    "tick": lambda r, o, a: [r[0] + 1],
    "adamw": lambda r, o, a: adamw(*r, a),
    "sgd": lambda r, o, a: sgd(*r, a),
}  # fmt: skip


def apply(op: str, r: list[A], olds: list[A], attrs: dict[str, Any]) -> list[A]:
    """The written arrays; `olds` are the contents of the written views before."""
    return [np.asarray(x) for x in MEANINGS[op](r, olds, attrs)]
