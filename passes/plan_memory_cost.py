"""What it costs a buffer of a procedure to lie in the slow memory (HBM) instead of the fast one (SRAM)."""

from __future__ import annotations

from math import prod

from wscc.ir.fabric import Kernel, View
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die


def slow_costs(procedure: Procedure, die: Die) -> dict[str, float]:
    """By buffer and formal, the seconds that kernels take longer if its bytes come from the slow memory: those of a
    gemm are partly hidden behind its work."""
    costs: dict[str, float] = {}
    if not die.hbm_bandwidth:
        return costs
    for stmt in procedure.body:
        if isinstance(stmt, Kernel):
            views = (*stmt.writes, *stmt.reads)
            work = gemm_flops(stmt) / die.peak
            slow = sum(touched(v) for v in views) / die.hbm_bandwidth
            shown = max(0.0, 1 - work / slow) if slow else 0.0
            for v in views:
                costs[v.buffer] = costs.get(v.buffer, 0.0) + shown * touched(v) / die.hbm_bandwidth
    return costs


def touched(view: View) -> int:
    """The bytes of a view; what it repeats counts once."""
    return view.dtype.size * prod(n for n, s in zip(view.shape, view.strides, strict=True) if s)


def gemm_flops(kernel: Kernel) -> int:
    """Of `gemm`; other kernels do no work to speak of."""
    if kernel.opcode != "gemm":
        return 0
    return 2 * prod(kernel.writes[0].shape) * kernel.reads[0].shape[-1]
