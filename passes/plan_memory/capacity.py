"""Refusal of a program that does not fit the memory of a die, with changes that may make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from wscc.analysis.memory.array_layout import array_bytes, arrays_of_stage
from wscc.analysis.memory.report import LOCALS, MemoryReport, format_bytes, memory_report
from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.machine.wafer import Die
from wscc.strategy import BATCH, POLICIES, holds_replicas, with_degree

_ROOM = 8  # a part of the memory that a larger one has more, where just enough is not


def check_capacity(module: Module) -> None:
    """Raise W401 if a planned module does not fit the memory of a die."""
    report = memory_report(module)
    if report.peak > report.capacity:
        raise _too_large(module, report)


def _too_large(module: Module, report: MemoryReport) -> CompileError:
    excess = report.peak - report.capacity
    categories = sorted(report.by_category.items(), key=lambda c: (-c[1], c[0]))
    array_sizes = array_bytes(module)
    arrays = sorted(
        ((array_sizes[a.name], a.name) for a in arrays_of_stage(module, report.fullest)),
        key=lambda x: (-x[0], x[1]),
    )
    words = ", ".join(f"{name} {format_bytes(n)}" for name, n in categories[:4] if n)
    largest = ", ".join(f"`{name}` {format_bytes(n)}" for n, name in arrays[:3] if n)
    return fail(
        Code.OUT_OF_MEMORY,
        f"each die needs {format_bytes(report.peak)} {_owner(module)} has {format_bytes(report.capacity)}:"
        f" {format_bytes(excess)} too much"
        f" ({words}; largest arrays {largest or 'none'})",
        candidates=(*_changes(module, report, excess), *_more_memory(module, excess)),
    )


def _owner(module: Module) -> str:
    """Words for the die with the least memory."""
    machine = module.machine
    if not machine.unlike:
        return "but"
    least = min(module.dies or range(machine.dies), key=lambda d: machine.die_at(d).hbm)
    return f"but die {machine.place(least)}"


def _more_memory(module: Module, excess: int) -> Iterator[Proposal]:
    """Dies with just so many bytes more, or some more: with another size, other things are copied into the SRAM."""
    die = module.die
    needed = die.sram + die.hbm + excess
    for total in (needed, needed + needed // _ROOM):
        yield larger_dies(die, total)


def larger_dies(die: Die, total: int) -> Proposal:
    """Dies of so many bytes in all, more of them in the slower memory that they have."""
    key, other = ("hbm", die.sram) if die.hbm else ("sram", 0)
    return Proposal(sets=((f"wafer.die.{key}", f"{max(total - other, 1)} B"),))


def _changes(module: Module, report: MemoryReport, excess: int) -> Iterator[Proposal]:
    """Changes of the program that would free `excess` bytes, by an estimate, the mildest first."""
    sizes, train = report.by_category, module.train
    residuals = sizes[str(Kind.RESIDUAL)]
    if train.recompute != "full" and residuals - residuals // 8 >= excess:
        yield Proposal(sets=(("train.recompute", "full"),))
    rows = prod(n for a, n in module.axes if a in POLICIES and POLICIES[a].seed == (BATCH,))
    per_replica = train.batch // train.microbatches // rows
    per_token = sizes[LOCALS] + residuals + sizes[str(Kind.CARRIED)]
    for divisor in (2, 4, 8):
        if per_replica % divisor == 0 and per_token - per_token // divisor >= excess:
            yield Proposal(sets=(("train.microbatch", str(per_replica // divisor)),))
    per_weight = sum(sizes[str(k)] for k in (Kind.PARAM, Kind.GRAD, Kind.STATE))
    replicas = prod(n for a, n in module.axes if a in POLICIES and holds_replicas(a))
    sharded = {1: sizes[str(Kind.STATE)], 3: per_weight}  # bytes that each level of `zero` shards
    for zero, bytes_ in sharded.items():
        if zero > train.zero and bytes_ - bytes_ // replicas >= excess:
            yield Proposal(sets=(("train.zero", str(zero)),))
    for factor in (2, 4, 8):
        if (
            per_weight - per_weight // factor >= excess
            and factor * module.dies_used <= module.machine.live_dies
        ):
            yield from (_spread(module, axis, factor) for axis in reversed(POLICIES) if _holds_less(axis))


def _holds_less(axis: str) -> bool:
    """Whether a die holds less of the weights, the more dies the axis has."""
    return POLICIES[axis].splits == "weights" or POLICIES[axis].store == "shard"


def _spread(module: Module, axis: str, factor: int) -> Proposal:
    """The weights on `factor` times as many dies of one axis."""
    return Proposal(with_degree(module.axes, axis, factor * module.sizes.get(axis, 1)))
