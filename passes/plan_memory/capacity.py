"""The refusal of a program that does not fit the memory of a die, with the smallest change that would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from wscc.analysis.memory.array_layout import array_bytes, held
from wscc.analysis.memory.report import LOCALS, MemoryReport, memory_report, size
from wscc.diagnostics import Code, CompileError, fail
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.strategy import BATCH, POLICIES


def check_capacity(module: Module) -> None:
    """Refuse a planned module that does not fit a die, with W401."""
    report = memory_report(module)
    if report.peak > report.capacity:
        raise _too_large(module, report)


def _too_large(module: Module, report: MemoryReport) -> CompileError:
    excess = report.peak - report.capacity
    categories = sorted(report.by_category.items(), key=lambda c: (-c[1], c[0]))
    needed = array_bytes(module)
    arrays = sorted(
        ((needed[a.name], a.name) for a in held(module, report.fullest)), key=lambda x: (-x[0], x[1])
    )
    words = ", ".join(f"{name} {size(n)}" for name, n in categories[:4] if n)
    largest = ", ".join(f"`{name}` {size(n)}" for n, name in arrays[:3] if n)
    return fail(
        Code.OUT_OF_MEMORY,
        f"each die needs {size(report.peak)} but has {size(report.capacity)}: {size(excess)} too much"
        f" ({words}; largest arrays {largest or 'none'})",
        help=" or ".join((*_changes(module, report, excess), f"give each die {excess} bytes more `hbm`")),
    )


def _changes(module: Module, report: MemoryReport, excess: int) -> Iterator[str]:
    """Changes of the program that would free enough, by an estimate, the mildest first."""
    of, train = report.by_category, module.train
    residuals = of[str(Kind.RESIDUAL)]
    if train.recompute != "full" and residuals - residuals // 8 >= excess:
        yield "set `recompute full`"
    replicas = prod(n for a, n in module.axes if a in POLICIES and POLICIES[a].seed == (BATCH,))
    per_replica = train.batch // train.microbatches // replicas
    scale = of[LOCALS] + residuals + of[str(Kind.CARRIED)]
    for divisor in (2, 4, 8):
        if per_replica % divisor == 0 and scale - scale // divisor >= excess:
            yield f"set `microbatch {per_replica // divisor}`"
            break
    kept = sum(of[str(k)] for k in (Kind.PARAM, Kind.GRAD, Kind.STATE))
    shared = {1: of[str(Kind.STATE)], 3: kept}
    for zero, bytes_ in shared.items():
        if zero > train.zero and bytes_ - bytes_ // replicas >= excess:
            yield f"set `zero {zero}`"
            break
    for factor in (2, 4, 8):
        if kept - kept // factor >= excess:
            axes = [f"`{a}`" for a, p in POLICIES.items() if p.splits == "weights" or p.store == "shard"]
            yield f"spread the weights over {factor} times as many dies (raise {' or '.join(axes)})"
            break
