"""Seconds that a buffer of a procedure costs in the slow memory (HBM) instead of the fast one (SRAM), and the
cumulative work of a procedure.

Both are estimates at the rates of the die: of work, products at the peak, whole tiles or not; of memory, the bytes of
views. Left out are the queue for the port of the memory, of which `_HIDDEN` is a token, and all waits for messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.cost import DieRates
from wscc.analysis.flops import gemm_flops
from wscc.analysis.statement_accesses import views_of
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Procedure
from wscc.ir.types import DType
from wscc.ir.views import View
from wscc.machine.wafer import Die

# Accesses that work hides keep the port of the memory from others: this part of their time is counted.
_HIDDEN: Final = 0.25


def slow_costs(procedure: Procedure, die: Die) -> dict[str, float]:
    """Seconds that statements take longer if all bytes of a buffer or argument come from HBM, by name of the buffer."""
    costs: dict[str, float] = {}
    for _, view, seconds in statement_costs(procedure, die):
        costs[view.buffer] = costs.get(view.buffer, 0.0) + seconds
    return costs


def statement_costs(procedure: Procedure, die: Die) -> Iterator[tuple[int, View, float]]:
    """(position, view, seconds): the time that a statement takes longer if the bytes of the view come from HBM.

    Those of a gemm are partly hidden behind its work, those of messages behind the work of other statements. Copies
    within a die cost nothing, and nothing does without HBM.
    """
    rates = DieRates.of(die)
    if not rates.has_hbm:
        return
    for i, stmt in enumerate(procedure.body):
        if isinstance(stmt, Transfer) and stmt.is_local:
            continue
        writes, reads = views_of(stmt)
        views = (*writes, *reads)
        sizes = [distinct_bytes(view) for view in views]
        exposed = _exposed(stmt, sum(sizes), rates) if isinstance(stmt, Kernel) else _HIDDEN
        for view, n in zip(views, sizes, strict=True):
            yield i, view, rates.hbm(exposed * n)


def copy_cost(amount: int, die: Die) -> float:
    """About how many seconds a copy of so many bytes between the memories takes, behind work."""
    return DieRates.of(die).hbm(_HIDDEN * amount)


def _exposed(kernel: Kernel, amount: int, rates: DieRates[float]) -> float:
    """The fraction of the time of a kernel's `amount` of bytes in HBM that its work does not hide."""
    flops, access = gemm_flops(kernel), rates.hbm(amount)
    if not flops or not access:
        return 1.0 if access else 0.0
    return max(_HIDDEN, 1 - rates.compute(flops) / access)


@dataclass(frozen=True, slots=True)
class CumulativeWork:
    """`seconds[i]`: the time at the peak of the die of the kernels before statement i of a body, up to its end."""

    seconds: NDArray[np.float64]

    def last_within(self, seconds: float) -> int:
        """The last statement before which there are at most so many seconds of work; 0 if there is none."""
        return max(0, int(np.searchsorted(self.seconds, seconds, side="right")) - 1)

    def first_after(self, seconds: float) -> int:
        """The first statement before which there are at least so many seconds of work; the end if there is none."""
        return min(len(self.seconds) - 1, int(np.searchsorted(self.seconds, seconds)))


def cumulative_work(procedure: Procedure, die: Die) -> CumulativeWork:
    """The cumulative work of a body, without any waits."""
    rates = DieRates.of(die)
    work = [rates.compute(gemm_flops(s)) if isinstance(s, Kernel) else 0.0 for s in procedure.body]
    return CumulativeWork(np.cumsum([0.0, *work]))


def distinct_bytes(view: View) -> int:
    """The number of bytes of a view, each counted once where it repeats them."""
    return _distinct_bytes(view.shape, view.strides, view.dtype)


@lru_cache(maxsize=8192)
def _distinct_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> int:
    return dtype.size * prod(n for n, stride in zip(shape, strides, strict=True) if stride)
