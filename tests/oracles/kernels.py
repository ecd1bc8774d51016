"""Expected results of each instruction: one-liners in f64 that share nothing with the kernels.

`CASES[opcode]` are functions of a random generator that draw operands and compute the arrays to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, erf, exp, log, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracles import experts, graphs
from tests.oracles.philox import dropped

Array = NDArray[Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One execution of an instruction. `before[i]`: contents of write i beforehand, where the instruction adds to it or
    works in place."""

    reads: tuple[Array, ...]
    attrs: tuple[Any, ...]
    expected: tuple[Array, ...]
    before: tuple[Array | None, ...] = ()


def each(f: Callable[..., float], *xs: Array) -> Array:
    """The scalar function applied to every element."""
    return np.array([f(*map(float, v)) for v in zip(*[x.ravel() for x in xs], strict=True)]).reshape(
        xs[0].shape
    )


def normal(rng: Rng, *n: int) -> Array:
    return rng.standard_normal(n)


def _gemm(scale: float, accumulate: bool) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        a, b, c = normal(rng, 2, 3, 4, 5), normal(rng, 2, 3, 5, 6), normal(rng, 2, 3, 4, 6)
        product = np.zeros(c.shape)
        for index in np.ndindex(c.shape):
            *r, m, n = index
            product[index] = scale * sum(a[(*r, m, k)] * b[(*r, k, n)] for k in range(5))
        return Case((a, b), (scale, accumulate), (product + accumulate * c,), (c,))

    return case


def _outer(rng: Rng) -> Case:
    """The product is the smallest of the three."""
    a, b = normal(rng, 1, 5), normal(rng, 5, 1)
    return Case((a, b), (0.3, False), (np.array([[0.3 * sum(a[0, k] * b[k, 0] for k in range(5))]]),))


def _sum(axes: str, shape: tuple[int, ...], accumulate: bool) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        x, y = normal(rng, 3, 4, 5), normal(rng, *shape)
        total = x
        for axis in sorted(map(int, axes.split(",")), reverse=True):
            total = sum(np.take(total, i, axis) for i in range(total.shape[axis]))  # type: ignore[assignment]
        return Case((x,), (axes, accumulate), (total + accumulate * y,), (y,))

    return case


def _map(f: Callable[..., float], operands: int) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        xs = tuple(normal(rng, 3, 4, 5) + (0.1 if f is _over else 0) for _ in range(operands))
        return Case(xs, (), (each(f, *xs),))

    return case


def _over(x: float, y: float) -> float:
    return x / y


def _gelu(x: float) -> float:
    u = sqrt(2 / pi) * (x + 0.044715 * x**3)
    return x / 2 * (1 + (exp(u) - exp(-u)) / (exp(u) + exp(-u)))


def _gelu_slope(x: float, dy: float) -> float:
    return dy * (_gelu(x + 1e-5) - _gelu(x - 1e-5)) / 2e-5


def _gelu_erf(x: float) -> float:
    return x / 2 * (1 + erf(x / sqrt(2)))


def _gelu_erf_slope(x: float, dy: float) -> float:
    return dy * ((1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi))


def _gather(rng: Rng) -> Case:
    ids, table = rng.integers(0, 12, (3, 4)).astype(np.int32), normal(rng, 5, 6)
    rows = [table[i - 4] if 4 <= i < 9 else np.zeros(6) for i in ids.ravel()]
    return Case((ids, table), (4,), (np.array(rows).reshape(3, 4, 6),))


def _scatter(accumulate: bool) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        ids, dy, table = rng.integers(0, 12, (3, 4)).astype(np.int32), normal(rng, 3, 4, 6), normal(rng, 5, 6)
        out = accumulate * table
        for index, i in np.ndenumerate(ids):
            if 4 <= i < 9:
                out[i - 4] = out[i - 4] + dy[index]
        return Case((ids, dy), (4, accumulate), (out,), (table,))

    return case


def _layernorm(rng: Rng) -> Case:
    x, g, b = normal(rng, 3, 4, 6) + 2, normal(rng, 6), normal(rng, 6)
    h = [(row - row.mean()) / sqrt(row.var() + 1e-3) * g + b for row in x.reshape(-1, 6)]
    return Case((x, g, b), (1e-3,), (np.array(h).reshape(x.shape),))


def _rmsnorm(rng: Rng) -> Case:
    x, g = normal(rng, 3, 4, 6) + 2, normal(rng, 6)
    h = [row / sqrt(sum(row**2) / 6 + 1e-3) * g for row in x.reshape(-1, 6)]
    return Case((x, g), (1e-3,), (np.array(h).reshape(x.shape),))


def _rope(sign: float) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        x = normal(rng, 2, 3, 4, 6)
        y = np.zeros(x.shape)
        for b, s, h, i in np.ndindex(2, 3, 4, 3):
            angle = sign * (7 + s) * 100.0 ** (-2 * i / 6)
            lower, upper = x[b, s, h, i], x[b, s, h, i + 3]
            y[b, s, h, i] = lower * cos(angle) - upper * sin(angle)
            y[b, s, h, i + 3] = upper * cos(angle) + lower * sin(angle)
        return Case((x,), (100.0, sign, 7), (y,))

    return case


def _part_rope(rng: Rng) -> Case:
    """The first 4 of 6 elements, whose pairs turn 16 and 1.6 times in `original`: above the band, and in it."""
    x = normal(rng, 2, 3, 4, 6)
    y = x.copy()
    for b, s, h, i in np.ndindex(2, 3, 4, 2):
        angle = (7 + s) * (1.0, 0.1 * (0.2 + 0.8 / 8))[i]
        lower, upper = x[b, s, h, i], x[b, s, h, i + 2]
        y[b, s, h, i] = lower * cos(angle) - upper * sin(angle)
        y[b, s, h, i + 2] = upper * cos(angle) + lower * sin(angle)
    return Case((x,), (100.0, 1.0, 7, 4, 8.0, 1.0, 4.0, 32 * pi, 0), (y,))


def _neighbours_rope(rng: Rng) -> Case:
    """The first 4 of 6 elements, each turned with its neighbour."""
    x = normal(rng, 2, 3, 4, 6)
    y = x.copy()
    for b, s, h, i in np.ndindex(2, 3, 4, 2):
        angle = (7 + s) * (1.0, 0.1)[i]
        one, other = x[b, s, h, 2 * i], x[b, s, h, 2 * i + 1]
        y[b, s, h, 2 * i] = one * cos(angle) - other * sin(angle)
        y[b, s, h, 2 * i + 1] = other * cos(angle) + one * sin(angle)
    return Case((x,), (100.0, 1.0, 7, 4, 1.0, 1.0, 4.0, 0.0, 1), (y,))


def _squares(function: Callable[..., float], operands: int) -> Callable[[Rng], Case]:
    """A function of a positive number, of others and of eps."""

    def case(rng: Rng) -> Case:
        xs = (normal(rng, 3, 4, 5) ** 2, *(normal(rng, 3, 4, 5) for _ in range(operands - 1)))
        return Case(xs, (0.5,), (each(lambda *x: function(*x, 0.5), *xs),))

    return case


def _dropout(rng: Rng) -> Case:
    """Part of a sequence of 5 x 8 places, from place 19 on; the second sequence is only looked at."""
    x, keys = normal(rng, 3, 4, 5), np.array([7, -1, 2**31 - 1], np.int32)
    return Case((x, keys), (0.4, 3, 19, "8,1"), (dropped(x, keys, 0.4, 3, 19, [8, 1]),))


def visible(
    q: int, k: int, causal: bool, q_start: int, k_start: int, limit: int = 0, window: int = 0
) -> Array:
    return np.array(
        [
            [
                (not causal or k_start + j <= q_start + i)
                and (not limit or k_start + j < limit)
                and (not window or (q_start + i) - (k_start + j) < window)
                for j in range(k)
            ]
            for i in range(q)
        ]
    )


def softmax(s: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Probabilities, maximum and sum of exponentials below it of each row of scores, of the keys that are seen."""
    m = np.where(seen, s, -np.inf).max(-1)
    e = np.exp(s - np.where(np.isinf(m), 0, m)[..., None]) * seen
    z = e.sum(-1)
    return e / np.where(z == 0, 1, z)[..., None], m, z


def _softmax(causal: bool, q_start: int, k_start: int, *limit: int) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        s = 3 * normal(rng, 2, 3, 4, 5)
        p, m, z = softmax(s, visible(4, 5, causal, q_start, k_start, *limit))
        return Case((s,), (causal, q_start, k_start, *limit), (p, m, z))

    return case


def _merge(rng: Rng) -> Case:
    """Two chunks of keys of one softmax; rows 0, 1 and 2 of the last batch see only one chunk, or none."""
    s, v = normal(rng, 2, 4, 6), normal(rng, 2, 6, 3)
    seen = np.ones((2, 4, 6), bool)
    seen[1, 0, :3], seen[1, 1, 3:], seen[1, 2] = False, False, False
    first, second, whole = [
        (p @ v[:, keys], m, z)
        for keys in (slice(0, 3), slice(3, 6), slice(0, 6))
        for p, m, z in (softmax(s[..., keys], seen[..., keys]),)
    ]
    return Case((*first, *second), (), whole, first)


def _probs(*limit: int) -> Callable[[Rng], Case]:
    return lambda rng: _probs_below(rng, *limit)


def _probs_below(rng: Rng, *limit: int) -> Case:
    s, m, z = normal(rng, 2, 3, 4, 5), normal(rng, 2, 3, 4), 1 + rng.random((2, 3, 4))
    m[..., 0], z[..., 0] = -np.inf, 0  # row 0 sees nothing, here or anywhere
    level, total = np.where(np.isinf(m), 0, m)[..., None], np.where(z == 0, 1, z)[..., None]
    p = np.exp(s - level) / total * visible(4, 5, True, 1, 2, *limit)
    return Case((s, m, z), (True, 1, 2, *limit), (p,))


def _alibi(heads: int, slopes: list[float], group: int, h_start: int, g_start: int) -> Callable[[Rng], Case]:
    """The slopes are those that the authors' code prints for so many heads."""

    def case(rng: Rng) -> Case:
        x = normal(rng, 2, 2, 2, 3, 4)
        y = x.copy()
        for h, g, q, k in np.ndindex(2, 2, 3, 4):
            y[:, h, g, q, k] -= slopes[(h_start + h) * group + g_start + g] * ((5 + q) - (2 + k))
        return Case((x,), (heads, group, h_start, g_start, 5, 2), (y,))

    return case


def _soft_cap(rng: Rng) -> Case:
    x = 3 * normal(rng, 2, 5)
    return Case((x,), (2.5,), (2.5 * (np.exp(0.8 * x) - 1) / (np.exp(0.8 * x) + 1),))


def _soft_cap_bwd(rng: Rng) -> Case:
    x, dy = 3 * normal(rng, 2, 5), normal(rng, 2, 5)
    return Case((x, dy), (2.5,), (dy / np.cosh(x / 2.5) ** 2,))


def _rowmean(rng: Rng) -> Case:
    """Powers of two, whose sums are exact in any type; rows 1 and 3 sum to 1, row 0 to less and row 2 to more."""
    p = np.array([[0.5, 0.25, 0], [0.5, 0.25, 0.25], [0.5, 0.5, 0.25], [0, 1, 0]])
    x, d = normal(rng, 2, 4, 3), normal(rng, 2, 4)
    whole = np.array([False, True, False, True])
    return Case((np.broadcast_to(p, x.shape).copy(), x, d), (), (np.where(whole, (p * x).sum(-1), d),))


def _softmax_bwd(rng: Rng) -> Case:
    p, dp, delta = normal(rng, 2, 3, 4, 5), normal(rng, 2, 3, 4, 5), normal(rng, 2, 3, 4)
    ds = np.array([[0.3 * p[a] * (dp[a] - delta[a[:-1]])] for a in np.ndindex(p.shape)]).reshape(p.shape)
    return Case((p, dp, delta), (0.3,), (ds,))


def _logits(rng: Rng) -> tuple[Array, Array]:
    x = normal(rng, 3, 4, 8)
    x[..., 5:] = np.nan  # columns 15, 16, 17: pads, never read
    return x, normal(rng, 3, 4)


def _rowmax(rng: Rng) -> Case:
    x, _ = _logits(rng)
    return Case((x,), (15, 10), (np.array([max(row[:5]) for row in x.reshape(-1, 8)]).reshape(3, 4),))


def _sumexp(rng: Rng) -> Case:
    x, m = _logits(rng)
    z = [sum(exp(v - m.ravel()[i]) for v in row[:5]) for i, row in enumerate(x.reshape(-1, 8))]
    return Case((x, m), (15, 10), (np.array(z).reshape(3, 4),))


def _sumexp_bwd(rng: Rng) -> Case:
    x, m = _logits(rng)
    dz, dx = normal(rng, 3, 4), np.zeros((3, 4, 8))
    for a in np.ndindex(3, 4, 5):
        dx[a] = exp(x[a] - m[a[:-1]]) * dz[a[:-1]]
    return Case((x, m, dz), (15, 10), (dx,))


def _labels(rng: Rng) -> Array:
    y = rng.integers(8, 20, (3, 4)).astype(np.int32)
    y[0, :3] = -100, 10, 17
    return y


def _pick(rng: Rng) -> Case:
    x, y = normal(rng, 3, 4, 8), _labels(rng)
    p = [x[a][y[a] - 10] if 10 <= y[a] < 18 else 0.0 for a in np.ndindex(3, 4)]
    return Case((x, y), (10,), (np.array(p).reshape(3, 4),))


def _pick_bwd(rng: Rng) -> Case:
    y, dp = _labels(rng), normal(rng, 3, 4)
    dx = np.array([[dp[a] * (y[a] - 10 == c) for c in range(8)] for a in np.ndindex(3, 4)])
    return Case((y, dp), (10,), (dx.reshape(3, 4, 8),))


def _nll(rng: Rng) -> Case:
    m, p, z, y = normal(rng, 3, 4), normal(rng, 3, 4), np.exp(normal(rng, 3, 4)), _labels(rng)
    z[y == -100] = 0
    loss = [log(z[a]) + m[a] - p[a] if y[a] != -100 else 0.0 for a in np.ndindex(3, 4)]
    return Case((m, z, p, y), (), (np.array(loss).reshape(3, 4),))


def _nll_bwd(rng: Rng) -> Case:
    z, y, dl = np.exp(normal(rng, 3, 4)), _labels(rng), normal(rng, 3, 4)
    z[y == -100] = 0
    dz = np.array([dl[a] / z[a] if y[a] != -100 else 0.0 for a in np.ndindex(3, 4)]).reshape(3, 4)
    return Case((z, y, dl), (), (dz, np.where(y == -100, 0, -dl)))


def _rowsum(rng: Rng) -> Case:
    x, _ = _logits(rng)
    return Case((x,), (15, 10), (np.array([sum(row[:5]) for row in x.reshape(-1, 8)]).reshape(3, 4),))


def _rowsum_bwd(rng: Rng) -> Case:
    ds = normal(rng, 3, 4)
    return Case((ds,), (15, 10), (ds[..., None] * (np.arange(8) < 5),))


def _zloss(rng: Rng) -> Case:
    m, z, y = normal(rng, 3, 4), np.exp(normal(rng, 3, 4)), _labels(rng)
    z[y == -100] = 0
    loss = [0.3 * (log(z[a]) + m[a]) ** 2 if y[a] != -100 else 0.0 for a in np.ndindex(3, 4)]
    return Case((m, z, y), (0.3,), (np.array(loss).reshape(3, 4),))


def _zloss_bwd(rng: Rng) -> Case:
    m, z, y, dl = normal(rng, 3, 4), np.exp(normal(rng, 3, 4)), _labels(rng), normal(rng, 3, 4)
    z[y == -100] = 0
    dz = [0.6 * (log(z[a]) + m[a]) / z[a] * dl[a] if y[a] != -100 else 0.0 for a in np.ndindex(3, 4)]
    return Case((m, z, y, dl), (0.3,), (np.array(dz).reshape(3, 4),))


def _mean(n: int) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        x = normal(rng, 3, 4)
        return Case((x, np.array(n, np.int32)), (), (np.array(sum(x.ravel()) / max(n, 1)),))

    return case


def _count(rng: Rng) -> Case:
    y = _labels(rng)
    return Case((y,), (), (np.array(sum(v != -100 for v in y.ravel())),))


def rate(step: int, warmup: int, decay: int, floor: float) -> float:
    if step < warmup:
        return step / warmup
    if not decay:
        return 1.0
    if step >= decay:
        return floor
    return floor + (1 - floor) * (1 + cos(pi * (step - warmup) / (decay - warmup))) / 2


def _adamw(step: int, clip: float) -> Callable[[Rng], Case]:
    def case(rng: Rng) -> Case:
        w, m, v, g = normal(rng, 3, 4), normal(rng, 3, 4), normal(rng, 3, 4) ** 2, normal(rng, 3, 4)
        norm2, lr = 9.0, 0.1 * rate(step, 3, 7, 0.2)
        h = g * min(1, clip / (3 + 1e-6)) if clip else g
        m1, v1 = 0.9 * m + 0.1 * h, 0.95 * v + 0.05 * h**2
        update = (m1 / (1 - 0.9**step)) / (np.sqrt(v1 / (1 - 0.95**step)) + 1e-3)
        attrs = (0.1, 0.9, 0.95, 1e-3, 0.3, clip, 3, 7, 0.2)
        reads = (w, m, v, g, np.array(norm2), np.array(step, np.int32))
        return Case(reads, attrs, (w - lr * update - lr * 0.3 * w, m1, v1), (w, m, v))

    return case


def _sgd(rng: Rng) -> Case:
    w, g = normal(rng, 3, 4), normal(rng, 3, 4)
    h = g * min(1, 1.5 / (3 + 1e-6))
    return Case(
        (w, g, np.array(9.0), np.array(2, np.int32)), (0.1, 1.5, 4, 0, 0.0), (w - 0.1 * 2 / 4 * h,), (w,)
    )


def _of(*reads: Array, attrs: tuple[Any, ...] = (), expected: Array) -> Callable[[Rng], Case]:
    return lambda _: Case(reads, attrs, (expected,))


_GRID = np.arange(12.0).reshape(3, 4)

# Cases by opcode. The backward kernels without a row here are compared with finite differences of the forward ones in
# test_kernels.
CASES: dict[str, tuple[Callable[[Rng], Case], ...]] = {
    "copy": (_map(lambda x: x, 1),),
    "cast": (_map(lambda x: x, 1),),
    "fill": (_of(attrs=(2.5,), expected=np.full((3, 4), 2.5)),),
    "gather": (_gather,),
    "scatter_add": (_scatter(False), _scatter(True)),
    "gemm": (_gemm(1.0, False), _gemm(0.3, False), _gemm(1.0, True), _gemm(0.3, True), _outer),
    "sum": (
        _sum("0,1", (5,), False),
        _sum("1", (3, 5), True),
        _sum("0,1,2", (), True),
        _sum("2", (3, 4), False),
    ),
    "rowdot": (
        lambda rng: (lambda a, b: Case((a, b), (), ((a * b).sum(-1),)))(
            normal(rng, 3, 4, 5), normal(rng, 3, 4, 5)
        ),
    ),
    "add": (_map(lambda x, y: x + y, 2),),
    "sub": (_map(lambda x, y: x - y, 2),),
    "mul": (_map(lambda x, y: x * y, 2),),
    "div": (_map(_over, 2),),
    "maximum": (_map(max, 2),),
    "scale": (_of(_GRID, attrs=(0.5,), expected=_GRID / 2),),
    "gelu": (_map(_gelu, 1),),
    "gelu_bwd": (_map(_gelu_slope, 2),),
    "gelu_erf": (_map(_gelu_erf, 1),),
    "gelu_erf_bwd": (_map(_gelu_erf_slope, 2),),
    "relu": (_map(lambda x: max(x, 0), 1),),
    "sigmoid": (_map(lambda x: 1 / (1 + exp(-x)), 1),),
    "sigmoid_bwd": (_map(lambda x, dy: dy * exp(-x) / (1 + exp(-x)) ** 2, 2),),
    "rsqrt": (_squares(lambda x, eps: 1 / sqrt(x + eps), 1),),
    "rsqrt_bwd": (_squares(lambda x, dy, eps: -dy / 2 / sqrt(x + eps) ** 3, 2),),
    "dropout": (_dropout,),
    "relu_bwd": (_map(lambda x, dy: dy if x > 0 else 0, 2),),
    "swiglu": (_map(lambda a, b: a / (1 + exp(-a)) * b, 2),),
    "layernorm": (_layernorm,),
    "rmsnorm": (_rmsnorm,),
    "rope": (_rope(1.0), _rope(-1.0), _part_rope, _neighbours_rope),
    "softmax": (
        _softmax(False, 0, 0),
        _softmax(True, 0, 0),
        _softmax(True, 3, 4),
        _softmax(True, 0, 9),
        _softmax(False, 0, 4, 6),
        _softmax(True, 3, 2, 4),
        _softmax(False, 0, 8, 8),
        _softmax(False, 0, 0, 5),
        _softmax(True, 3, 1, 0, 2),
        _softmax(True, 9, 1, 5, 6),
        _softmax(True, 9, 0, 0, 3),
    ),
    "alibi": (
        _alibi(8, [2.0**-n for n in range(1, 9)], 4, 0, 1),
        _alibi(6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3], 2, 1, 0),
    ),
    "soft_cap": (_soft_cap,),
    "soft_cap_bwd": (_soft_cap_bwd,),
    "merge": (_merge,),
    "probs": (_probs(), _probs(4), _probs(0, 2)),
    "rowmean": (_rowmean,),
    "softmax_bwd": (_softmax_bwd,),
    "rowmax": (_rowmax,),
    "sumexp": (_sumexp,),
    "sumexp_bwd": (_sumexp_bwd,),
    "pick": (_pick,),
    "pick_bwd": (_pick_bwd,),
    "nll": (_nll,),
    "nll_bwd": (_nll_bwd,),
    "rowsum": (_rowsum,),
    "rowsum_bwd": (_rowsum_bwd,),
    "zloss": (_zloss,),
    "zloss_bwd": (_zloss_bwd,),
    "mean": (_mean(5), _mean(0)),
    "mean_bwd": (_of(np.array(0.6), np.array(4, np.int32), expected=np.full((3, 4), 0.15)),),
    "count": (_count,),
    "sqsum": (lambda rng: (lambda x: Case((x,), (), (np.array(sum(x.ravel() ** 2)),)))(normal(rng, 3, 4)),),
    "tick": (_of(np.array(6, np.int32), expected=np.array(7, np.int32)),),
    "adamw": (_adamw(1, 0.0), _adamw(4, 1.5), _adamw(9, 100.0)),
    "sgd": (_sgd,),
    **{
        opcode: tuple((lambda rng, draw=draw: Case(*draw(rng))) for draw in draws)
        for opcode, draws in (experts.CASES | graphs.CASES).items()
    },
    "delay": (lambda rng: Case((), (5,), ()),),
}
