"""Assignment of an address to every local buffer and every array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.memory.array_layout import place_arrays
from wscc.analysis.memory.handed import HandedIn, handed_in
from wscc.analysis.memory.live_ranges import all_ranges, live_peak
from wscc.analysis.memory.pack import pack
from wscc.analysis.memory.pack_two_level import Packed, pack_two_level
from wscc.ir.memory import Memory
from wscc.ir.module import Module, Procedure
from wscc.machine.wafer import Die
from wscc.passes.base import Fact, Pass
from wscc.passes.plan_memory.capacity import check_capacity
from wscc.passes.plan_memory.copies import with_copies_within


@dataclass(frozen=True, slots=True)
class PlanMemory(Pass):
    """Lay out the arena that all dies share as a map: [scratch][arrays].

    1. Locals lie in the scratch region, which each procedure has to itself while it runs. With `reuse`, two locals
       share bytes if their live ranges are disjoint: a local is live from its first write (or post, when a message may
       start to arrive) to its last use (or the wait that ends its last message).
       Where not all locals fit the fast memory, it holds those that would cost most time in the slow one, its last
       tenth receive slots only; the others are placed behind it. Copies within a die then begin later and end earlier,
       as far as they must for their buffers to fit.
       Arrays that calls hand on have fixed places there, which locals may use while they hold no value.
    2. Other arrays follow in the order of `Module.arrays`; an array with `storage` shares the bytes of that array.

    Every buffer and element starts at a multiple of 64 bytes. Fails with W401 when the arena is larger than
    the memory of a die, naming its largest parts and the smallest change with which it would fit.

    Before: %h = buffer f32[64]
    After:  %h = buffer f32[64] at 4096
    """

    name: ClassVar[str] = "plan_memory"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PLANNED})

    reuse: bool = True

    def run(self, module: Module) -> Module:
        handed = handed_in(module)
        planned = [self._planned(p, module.die, handed) for p in module.procedures]
        ends = (h.address + h.bytes for hs in handed.values() for h in hs)
        scratch = max((*(size for _, size, _ in planned), *ends), default=0)
        live = max((peak for *_, peak in planned), default=0)
        placements, end = place_arrays(module, scratch)
        memory = Memory(scratch, live, end, placements)
        result = module.with_(procedures=tuple(p for p, *_ in planned), memory=memory)
        check_capacity(result)
        return result

    def _planned(self, procedure: Procedure, die: Die, handed: HandedIn) -> tuple[Procedure, int, int]:
        """The procedure with addresses, the size of its scratch region, and its live bytes at the peak."""
        ranges = all_ranges(procedure, handed, die)
        packed = (
            pack_two_level(ranges, die.sram) if self.reuse else Packed(*pack(ranges, reuse=False), ranges)
        )
        buffers = tuple(replace(b, address=packed.offsets[b.name]) for b in procedure.buffers)
        fitted = with_copies_within(
            procedure, {x.name: (x.first, x.last) for x in packed.ranges if x.address < 0}
        )
        return replace(fitted, buffers=buffers), packed.size, live_peak(packed.ranges)
