"""Kernels of a mixture of experts: the router's choice, tokens to slots and back, and the router's losses.

Logits are x [b, s, e]. The slot of a token at its expert is `e capacity + place`, `-1 - e` where the queue is full. A
die may have some of the experts and places, from `e_start` and `c_start` on: y [e, b, c, d]. Floats are f32 or f64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, scratch_like


def _softmax(x: Array) -> Array:
    p = np.subtract(x, x.max(-1, keepdims=True), out=scratch_like("experts", x))
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    return np.asarray(p)


def _largest(x: Array, k: int) -> Array:
    """Numbers of the k largest elements of each row, of equals the first."""
    return np.asarray(np.argsort(-x, axis=-1, kind="stable")[..., :k])


def _marked(chosen: Array, like: Array) -> Array:
    """1 at the chosen elements of each row, 0 elsewhere, as i32 of the shape of `like`."""
    marks = np.zeros(like.shape, np.int32)
    np.put_along_axis(marks, chosen, 1, -1)
    return marks


def route(
    gates: Array, slots: Array, chosen: Array, dropped: Array, x: Array, capacity: int, renormalise: bool
) -> None:
    """gates [b, s, k] and slots [b, s, k] of the k largest of softmax(x [b, s, e]); of each expert [e], the tokens that
    chose it and those that it dropped."""
    experts = _largest(x, gates.shape[-1])
    np.copyto(gates, np.take_along_axis(_softmax(x), experts, -1))
    if renormalise:
        gates /= gates.sum(-1, keepdims=True)
    marks = _marked(experts, x)
    places = np.take_along_axis(marks.cumsum(1) - marks, experts, -1)
    np.copyto(slots, np.where(places < capacity, experts * capacity + places, -1 - experts))
    np.copyto(chosen, marks.sum((0, 1)))
    np.copyto(dropped, np.maximum(marks.sum(1) - capacity, 0).sum(0))


def route_bwd(dx: Array, x: Array, slots: Array, dgates: Array, capacity: int, renormalise: bool) -> None:
    """dx [b, s, e] of the gates that `route` made of x, from their gradients [b, s, k]."""
    experts = np.where(slots < 0, -1 - slots, slots // capacity).clip(0, x.shape[-1] - 1)
    p = _softmax(x)
    dtop = dgates
    if renormalise:
        top = np.take_along_axis(p, experts, -1)
        total = top.sum(-1, keepdims=True)
        dtop = (dgates - (dgates * top).sum(-1, keepdims=True) / total) / total
    dx.fill(0)
    np.put_along_axis(dx, experts, dtop, -1)
    _through_softmax(dx, p)


def _through_softmax(dp: Array, p: Array) -> None:
    """The gradient of p [*, e] = softmax(x) made that of x, in place."""
    # Only differences count. To that of the largest p, which may be nearly 1, it is nearly equal to their mean.
    dp -= np.take_along_axis(dp, p.argmax(-1)[..., None], -1)
    dp -= (dp * p).sum(-1, keepdims=True)
    dp *= p


def _found(
    slots: Array, y: Array, capacity: int, e_start: int, c_start: int
) -> Iterator[tuple[int, Array, Array]]:
    """By choice: which tokens [b, s] have a slot in y, and of those, in order, the indices (e, b, c)."""
    for j in range(slots.shape[-1]):
        slot = slots[..., j]
        e, c = slot // capacity - e_start, slot % capacity - c_start
        inside = (slot >= 0) & (e >= 0) & (e < y.shape[0]) & (c >= 0) & (c < y.shape[2])
        rows, _ = np.nonzero(inside)
        yield j, inside, np.stack([e[inside], rows, c[inside]])


def dispatch(y: Array, x: Array, slots: Array, capacity: int, e_start: int, c_start: int) -> None:
    """y [e, b, c, d] = the token of x [b, s, d] in each slot, 0 in empty ones."""
    y.fill(0)
    for _, inside, (e, b, c) in _found(slots, y, capacity, e_start, c_start):
        y[e, b, c] = x[inside]


def dispatch_bwd(dx: Array, dy: Array, slots: Array, capacity: int, e_start: int, c_start: int) -> None:
    """dx [b, s, d] = the sum of dy [e, b, c, d] over the slots of each token."""
    dx.fill(0)
    for _, inside, (e, b, c) in _found(slots, dy, capacity, e_start, c_start):
        dx[inside] += dy[e, b, c]


def combine(
    z: Array, gates: Array, slots: Array, y: Array, capacity: int, e_start: int, c_start: int
) -> None:
    """z [b, s, d] = the sum over the slots of each token of its gate times y [e, b, c, d]."""
    z.fill(0)
    for j, inside, (e, b, c) in _found(slots, y, capacity, e_start, c_start):
        z[inside] += gates[..., j][inside][:, None] * y[e, b, c]


def combine_bwd(
    dgates: Array, dy: Array, gates: Array, slots: Array, y: Array, dz: Array, capacity: int, e_start: int,
    c_start: int,
) -> None:  # fmt: skip
    """dgates [b, s, k] and dy [e, b, c, d] of `combine`, from dz [b, s, d]."""
    dgates.fill(0)
    dy.fill(0)
    for j, inside, (e, b, c) in _found(slots, y, capacity, e_start, c_start):
        rows = dz[inside]
        dgates[..., j][inside] = (rows * y[e, b, c]).sum(-1)
        dy[e, b, c] = gates[..., j][inside][:, None] * rows


def _shares(x: Array, k: int) -> Array:
    """The share [b, 1, e] of all choices of a sequence that each expert has, times the number of experts."""
    experts = x.shape[-1]
    counts = _marked(_largest(x, k), x).sum(1, keepdims=True, dtype=x.dtype)
    return np.asarray(counts * (experts / (k * x.shape[1])))


def balance(l: Array, x: Array, k: int, scale: float) -> None:  # noqa: E741
    """l [] = scale times the sum over b of e sum over e of (share of choices) (mean over s of softmax(x [b, s, e]))."""
    means = _softmax(x).mean(1, keepdims=True)
    l[...] = scale * float((_shares(x, k) * means).sum())


def balance_bwd(dx: Array, x: Array, dl: Array, k: int, scale: float) -> None:
    """dx [b, s, e] of `balance`; shares are counts, which a small step does not change."""
    dx[...] = _shares(x, k) * (float(dl) * scale / x.shape[1])
    _through_softmax(dx, _softmax(x))


def _log_sums(x: Array) -> Array:
    largest = x.max(-1, keepdims=True)
    return np.asarray(np.log(np.exp(x - largest).sum(-1, keepdims=True)) + largest)


def z_loss(l: Array, x: Array, scale: float) -> None:  # noqa: E741
    """l [] = scale times the sum of squares of log sum exp x [b, s, e]."""
    l[...] = scale * float(np.square(_log_sums(x)).sum())


def z_loss_bwd(dx: Array, x: Array, dl: Array, scale: float) -> None:
    """dx [b, s, e] of `z_loss`."""
    np.multiply(_softmax(x), _log_sums(x) * (2 * scale * float(dl)), out=dx)
