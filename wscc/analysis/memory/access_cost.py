"""Seconds that a buffer of a procedure costs in the slow memory (HBM) instead of the fast one (SRAM), and the pace at
which the work of a procedure goes on.

An estimate, at the rates of the die: of work, products at the peak, whole tiles or not; of memory, the bytes of views.
Left out are the queue before the port of the memory, of which `_HIDDEN` is a token, and all waiting for messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.cost import DieRates
from wscc.analysis.flops import gemm_flops
from wscc.ir.fabric import Kernel, Post, Send, Transfer
from wscc.ir.module import Procedure
from wscc.ir.views import View
from wscc.machine.wafer import Die

# What hides behind work takes the memory's port all the same, from others: this part of its time is counted.
_HIDDEN: Final = 0.25


def slow_costs(procedure: Procedure, die: Die) -> dict[str, float]:
    """By buffer and argument, the seconds that statements take longer if its bytes come from the slow memory."""
    costs: dict[str, float] = {}
    for _, view, seconds in statement_costs(procedure, die):
        costs[view.buffer] = costs.get(view.buffer, 0.0) + seconds
    return costs


def statement_costs(procedure: Procedure, die: Die) -> Iterator[tuple[int, View, float]]:
    """The seconds that each statement takes longer if the bytes of one of its views come from the slow memory: those
    of a gemm are partly hidden behind its work, those of messages behind that of others."""
    rates = DieRates.of(die)
    if not rates.has_hbm:
        return

    def cost(view: View, shown: float) -> float:
        return rates.hbm(shown * touched(view))

    for i, stmt in enumerate(procedure.body):
        match stmt:
            case Kernel():
                views = (*stmt.writes, *stmt.reads)
                work = rates.compute(gemm_flops(stmt))
                slow = rates.hbm(sum(touched(v) for v in views))
                shown = max(_HIDDEN, 1 - work / slow) if slow else 0.0
                yield from ((i, v, cost(v, shown)) for v in views)
            case Transfer() if not stmt.is_local:
                yield i, stmt.read, cost(stmt.read, _HIDDEN)
                yield i, stmt.write, cost(stmt.write, _HIDDEN)
            case Post():
                yield i, stmt.write, cost(stmt.write, _HIDDEN)
            case Send():
                yield i, stmt.read, cost(stmt.read, _HIDDEN)


@dataclass(frozen=True, slots=True)
class Pace:
    """`seconds[i]` is what the kernels before statement i of a body take at the peak of the die."""

    seconds: NDArray[np.float64]

    def at(self, seconds: float) -> int:
        """The last statement before which there is no more work than so much; 0 if there is none."""
        return max(0, int(np.searchsorted(self.seconds, seconds, side="right")) - 1)

    def from_(self, seconds: float) -> int:
        """The first statement before which there is so much work; the end if there is none."""
        return min(len(self.seconds) - 1, int(np.searchsorted(self.seconds, seconds)))


def pace(procedure: Procedure, die: Die) -> Pace:
    """How fast a body goes on, apart from all waiting."""
    rates = DieRates.of(die)
    work = [rates.compute(gemm_flops(s)) if isinstance(s, Kernel) else 0.0 for s in procedure.body]
    return Pace(np.cumsum([0.0, *work]))


def touched(view: View) -> int:
    """The bytes of a view; what it repeats counts once."""
    return view.dtype.size * prod(n for n, s in zip(view.shape, view.strides, strict=True) if s)
