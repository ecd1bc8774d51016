"""Semantics of a mixture of experts, token by token: the router's choice, slots of experts, and the router's losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics


def _probabilities(row: Array) -> Array:
    weights = np.exp(row - row.max())
    return np.asarray(weights / weights.sum())


def _choice(row: Array, k: int) -> list[int]:
    """The experts of the k largest logits, largest first; of equal ones the lower expert."""
    return sorted(range(len(row)), key=lambda e: (-row[e], e))[:k]


def _route(op: Op, xs: Sequence[Array]) -> list[Array]:
    """Each expert has a queue of `capacity` tokens of a sequence, which stand in it in order of position."""
    (logits,) = xs
    batch, seq, experts = logits.shape
    k, capacity = op.results[0].type.shape[-1], int(op.attr("capacity"))
    gates, slots = np.zeros((batch, seq, k), logits.dtype), np.zeros((batch, seq, k), np.int32)
    chosen, dropped = np.zeros(experts), np.zeros(experts)
    for b in range(batch):
        queues = [0] * experts
        for s in range(seq):
            choice = _choice(logits[b, s], k)
            gates[b, s] = _gates(op, _probabilities(logits[b, s])[choice])
            for j, e in enumerate(choice):
                slots[b, s, j] = e * capacity + queues[e] if queues[e] < capacity else -1 - e
                dropped[e] += queues[e] >= capacity
                queues[e] += 1
        chosen += queues
    return [gates, slots, chosen, dropped]


def _gates(op: Op, top: Array) -> Array:
    return np.asarray(top / top.sum()) if op.attr("renormalise") else top


def _route_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """Row by row, the Jacobian of the gates with respect to the logits: dp_i/dx_e = p_i (delta_ie - p_e), and of
    p_i / P, whose softmax is over the chosen experts alone, the same of those."""
    grad = np.zeros_like(xs[0])
    k = ys[0].shape[-1]
    for index in np.ndindex(xs[0].shape[:2]):
        choice = _choice(xs[0][index], k)
        gates, p = ys[0][index], _probabilities(xs[0][index])
        moved = np.zeros_like(p)
        if op.attr("renormalise"):
            moved[choice] = gates
        else:
            moved = p
        for j, e in enumerate(choice):
            grad[index] -= dys[0][index][j] * gates[j] * moved
            grad[index][e] += dys[0][index][j] * gates[j]
    return [grad]


def _occupied(op: Op, slots: Array) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int]]]:
    """Each choice (b, s, j) that has a slot, with the place (expert, b, place in the queue) of that."""
    capacity = int(op.attr("capacity"))
    for index, slot in np.ndenumerate(slots):
        if slot >= 0:
            expert, place = divmod(int(slot), capacity)
            yield index, (expert, index[0], place)


def _dispatch(op: Op, xs: Sequence[Array]) -> list[Array]:
    x, slots = xs
    out = np.zeros(op.results[0].type.shape, x.dtype)
    for (b, s, _), place in _occupied(op, slots):
        out[place] = x[b, s]
    return [out]


def _dispatch_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    grad = np.zeros(xs[0].shape, np.float64)
    for (b, s, _), place in _occupied(op, xs[1]):
        grad[b, s] += dys[0][place]
    return [grad.astype(xs[0].dtype), None]


def _combine(op: Op, xs: Sequence[Array]) -> list[Array]:
    gates, slots, y = xs
    out = np.zeros(op.results[0].type.shape, np.float64)
    for (b, s, j), place in _occupied(op, slots):
        out[b, s] += gates[b, s, j] * y[place]
    return [out.astype(y.dtype)]


def _combine_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    gates, slots, y = xs
    by_gate, by_row = np.zeros_like(gates), np.zeros_like(y)
    for (b, s, j), place in _occupied(op, slots):
        by_gate[b, s, j] = np.dot(dys[0][b, s], y[place])
        by_row[place] = gates[b, s, j] * dys[0][b, s]
    return [by_gate, None, by_row]


def _shares(op: Op, rows: Array) -> Array:
    """The share of each expert in the choices of a sequence [s, e], times the number of experts."""
    counts = np.zeros(rows.shape[-1])
    for row in rows:
        counts[_choice(row, int(op.attr("k")))] += 1
    return np.asarray(counts / counts.mean())


def _balance(op: Op, xs: Sequence[Array]) -> list[Array]:
    """The loss of Fedus et al., arXiv 2101.03961, equation 4, for each sequence: experts x sum of share x mean
    probability; 1 where both are even."""
    total = 0.0
    for rows in xs[0]:
        means = np.mean([_probabilities(row) for row in rows], axis=0, dtype=np.float64)
        total += float(np.dot(_shares(op, rows), means))
    return [np.asarray(float(op.attr("scale")) * total)]


def _balance_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    grad = np.zeros_like(xs[0])
    for b, rows in enumerate(xs[0]):
        slope = float(dys[0]) * float(op.attr("scale")) * _shares(op, rows) / len(rows)
        for s, row in enumerate(rows):
            p = _probabilities(row)
            grad[b, s] = p * slope - p * np.dot(p, slope)
    return [grad]


def _log_sums(x: Array) -> Array:
    return np.asarray(np.logaddexp.reduce(x, axis=-1))


def _z_loss(op: Op, xs: Sequence[Array]) -> list[Array]:
    """The loss of Zoph et al., arXiv 2202.08906, equation 5."""
    return [np.asarray(float(op.attr("scale")) * np.square(_log_sums(xs[0]), dtype=np.float64).sum())]


def _z_loss_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    slope = 2 * float(op.attr("scale")) * float(dys[0])
    sums = _log_sums(xs[0])[..., None]
    return [slope * sums * np.exp(xs[0] - sums)]


SEMANTICS: Final[dict[str, Semantics]] = {
    "route": Semantics(_route, _route_vjp),
    "dispatch": Semantics(_dispatch, _dispatch_vjp),
    "combine": Semantics(_combine, _combine_vjp),
    "balance": Semantics(_balance, _balance_vjp),
    "z_loss": Semantics(_z_loss, _z_loss_vjp),
}
