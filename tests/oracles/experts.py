"""Expected results of the instructions of a mixture of experts, choice by choice, in f64.

Logits are multiples of 1/4, exact in every element type and often equal, so that all types choose alike.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rng = np.random.Generator
Route = Callable[[Array], Array]

B, S, E, K, D = 2, 5, 4, 2, 3


def quarters(rng: Rng, *shape: int) -> Array:
    return rng.integers(-6, 7, shape) / 4


def best(row: Array, k: int) -> list[int]:
    """The k largest, one after the other; `max` takes the first of equals."""
    left = list(range(len(row)))
    return [left.pop(left.index(max(left, key=lambda e: row[e]))) for _ in range(k)]


def softmax(row: Array) -> Array:
    return np.array([exp(v) / sum(exp(u) for u in row) for v in row])


def routed(x: Array, k: int, capacity: int, renormalise: bool) -> tuple[Array, Array, Array, Array]:
    batch, seq, experts = x.shape
    gates, slots = np.zeros((batch, seq, k)), np.zeros((batch, seq, k), np.int32)
    chosen, dropped = np.zeros(experts), np.zeros(experts)
    for b in range(batch):
        taken: list[int] = []
        for s in range(seq):
            choice, p = best(x[b, s], k), softmax(x[b, s])
            for j, e in enumerate(choice):
                gates[b, s, j] = p[e] / (sum(p[choice]) if renormalise else 1)
                place = taken.count(e)
                slots[b, s, j] = e * capacity + place if place < capacity else -1 - e
                chosen[e] += 1
                dropped[e] += place >= capacity
                taken.append(e)
    return gates, slots, chosen, dropped


def table_of(slots: Array, capacity: int, experts: tuple[int, int], places: tuple[int, int]) -> Array:
    """1 where token (b, s) at choice j has slot (e, c) of those from `experts[0]`, `places[0]` on: [b, s, k, e, c]."""
    out = np.zeros((*slots.shape, experts[1], places[1]))
    for index in np.ndindex(out.shape):
        *choice, e, c = index
        out[index] = slots[tuple(choice)] == (e + experts[0]) * capacity + c + places[0] and (
            c + places[0] < capacity
        )
    return out


def slope(f: Callable[[Array], float], x: Array) -> Array:
    """Central differences of a number, of two steps: their errors of third order cancel."""

    def difference(index: tuple[int, ...], h: float) -> float:
        step = np.zeros(x.shape)
        step[index] = h
        return (f(x + step) - f(x - step)) / (2 * h)

    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        out[index] = (4 * difference(index, 1e-3) - difference(index, 2e-3)) / 3
    return out


def route(renormalise: bool) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        x = quarters(rng, B, S, E)
        return (x,), (2, renormalise), routed(x, K, 2, renormalise)

    return case


def route_bwd(renormalise: bool) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        x = np.array([[rng.permutation(E) for _ in range(S)] for _ in range(B)]) / 4  # no ties
        dgates, (_, slots, _, _) = quarters(rng, B, S, K), routed(x, K, 2, renormalise)
        dx = slope(lambda x: float((routed(x, K, 2, renormalise)[0] * dgates).sum()), x)
        return (x, slots, dgates), (2, renormalise), (dx,)

    return case


# Of 4 experts with 3 places, those that a die may have: all, or two experts and the last two places.
PARTS = (((0, 4), (0, 3)), ((1, 2), (1, 2)))


def slots_case(
    opcode: str, experts: tuple[int, int], places: tuple[int, int]
) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        _, slots, _, _ = routed(quarters(rng, B, S, E), K, 3, True)
        t = table_of(slots, 3, experts, places)
        x, gates = quarters(rng, B, S, D), quarters(rng, B, S, K)
        y = quarters(rng, experts[1], B, places[1], D)
        attrs = (3, experts[0], places[0])
        by_gate = np.einsum("bskec,ebcd,bsd->bsk", t, y, x)
        return {
            "dispatch": ((x, slots), attrs, (np.einsum("bskec,bsd->ebcd", t, x),)),
            "dispatch_bwd": ((y, slots), attrs, (np.einsum("bskec,ebcd->bsd", t, y),)),
            "combine": ((gates, slots, y), attrs, (np.einsum("bsk,bskec,ebcd->bsd", gates, t, y),)),
            "combine_bwd": (
                (gates, slots, y, x), attrs, (by_gate, np.einsum("bsk,bskec,bsd->ebcd", gates, t, x)),
            ),
        }[opcode]  # fmt: skip

    return case


def balance(x: Array, k: int, scale: float) -> float:
    total = 0.0
    for rows in x:
        choices = [e for row in rows for e in best(row, k)]
        for e in range(x.shape[-1]):
            total += (
                x.shape[-1] * choices.count(e) / len(choices) * sum(softmax(r)[e] for r in rows) / len(rows)
            )
    return scale * total


def z_loss(x: Array, scale: float) -> float:
    return scale * sum(log(sum(map(exp, row))) ** 2 for row in x.reshape(-1, x.shape[-1]))


def loss_case(
    f: Callable[..., float], attrs: tuple[Any, ...], backward: bool
) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        x = np.array([[rng.permutation(E) for _ in range(S)] for _ in range(B)]) / 4
        if not backward:
            return (x,), attrs, (np.array(f(x, *attrs)),)
        return (x, np.array(0.5)), attrs, (0.5 * slope(lambda x: f(x, *attrs), x),)

    return case


# By opcode, functions of a generator that draw (reads, attributes, what is written).
CASES: dict[str, tuple[Callable[[Rng], tuple[Any, ...]], ...]] = {
    "route": (route(False), route(True)),
    "route_bwd": (route_bwd(False), route_bwd(True)),
    **{
        opcode: tuple(slots_case(opcode, *part) for part in PARTS)
        for opcode in ("dispatch", "dispatch_bwd", "combine", "combine_bwd")
    },
    "balance": (loss_case(balance, (2, 0.25), False),),
    "balance_bwd": (loss_case(balance, (2, 0.25), True),),
    "z_loss": (loss_case(z_loss, (0.25,), False),),
    "z_loss_bwd": (loss_case(z_loss, (0.25,), True),),
}
