"""Report of the memory of a die, by category."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.analysis.memory.array_layout import array_bytes, arrays_of_stage
from wscc.ir.array import Kind
from wscc.ir.memory import aligned
from wscc.ir.module import Module

LOCALS = "locals"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Use of the memory of a die, in bytes.

    `stages[s]`: the peak of a die of stage s. `peak`: the largest of them, that of stage `fullest`, to which
    `by_category` (kinds of arrays, and `locals`) adds up. `live_peak`: the same if locals were packed without a gap.
    """

    peak: int
    live_peak: int
    capacity: int
    by_category: dict[str, int]
    stages: tuple[int, ...]
    fullest: int


def memory_report(module: Module) -> MemoryReport:
    """The report of a planned module."""
    memory = module.memory
    assert memory is not None
    array_sizes = array_bytes(module)
    locals_ = aligned(memory.scratch_bytes)
    stages = tuple(
        locals_ + sum(array_sizes[a.name] for a in arrays_of_stage(module, stage))
        for stage in range(module.stages)
    )
    fullest = stages.index(max(stages))
    by_category = {LOCALS: locals_}
    for kind in Kind:
        by_category[str(kind)] = sum(
            array_sizes[a.name] for a in arrays_of_stage(module, fullest) if a.kind is kind
        )
    die = module.die
    live = max(stages) - memory.scratch_bytes + memory.live_bytes
    return MemoryReport(max(stages), live, die.sram + die.hbm, by_category, stages, fullest)


def format_bytes(n: int) -> str:
    """A number of bytes in three digits and a decimal unit: `1.5 GB`."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= scale:
            return f"{n / scale:.3g} {unit}"
    return f"{n} B"
