"""Tests of whether arrays, or the locals of changed procedures, fit the memory of a die, or its fast part."""

from __future__ import annotations

from collections.abc import Sequence

from wscc.analysis.memory.array_layout import place_arrays
from wscc.analysis.memory.handed import HandedIn, handed_in
from wscc.analysis.memory.live_ranges import all_ranges
from wscc.analysis.memory.pack import pack
from wscc.analysis.memory.pack_two_level import pack_two_level
from wscc.ir.memory import aligned
from wscc.ir.module import Module, Procedure
from wscc.machine.wafer import Die


def arrays_fit_sram(module: Module) -> bool:
    """Whether all arrays of a module fit the SRAM of a die, beside no locals."""
    return place_arrays(module, 0)[1] <= module.die.sram


def locals_fit(module: Module, procedures: Sequence[Procedure]) -> bool:
    """Whether the memory of a die has room for the locals of scheduled procedures, one at a time, beside all arrays."""
    die = module.die
    capacity = die.sram + die.hbm
    without_reuse = max((sum(aligned(b.bytes) for b in p.buffers) for p in procedures), default=0)
    if place_arrays(module, without_reuse)[1] <= capacity:
        return True
    handed = handed_in(module)
    scratch = max(pack_two_level(all_ranges(p, handed, die), die.sram).size for p in procedures)
    return place_arrays(module, scratch)[1] <= capacity


def locals_fit_sram(procedure: Procedure, die: Die, handed: HandedIn) -> bool:
    """Whether all locals of a scheduled procedure fit the SRAM of a die at once, beside what calls hand on."""
    return pack(all_ranges(procedure, handed))[1] <= die.sram
