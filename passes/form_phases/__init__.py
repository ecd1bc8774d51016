"""The pass that groups the transfers of each procedure into phases: sets that may be in flight together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from wscc.analysis.accesses import Accesses, AccessSet, accesses
from wscc.analysis.aliases import aliases
from wscc.analysis.transfer_groups import GroupSpan, group_spans
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module, Procedure
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class FormPhases(Pass):
    """Give each transfer the number of its phase, counted from 0 in program order in each procedure.

    A whole collective or collective matmul (one `group`) is one phase, since its rounds load the same links; so are
    groups whose transfers interleave. With `merge`, a group joins the phase before it if none of its transfers depends
    on a transfer of that phase, directly or through kernels.

    Invariant: numbers never decrease along the body, and no path of dependences leads between two transfers of one
    phase, unless their groups are the same or interleave.

    Before: transfer 0 group=g; add; transfer 1 group=g; transfer 2 group=h of the sum
    After:  phases 0, 0 and 1
    """

    name: ClassVar[str] = "form_phases"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PHASED})

    merge: bool = True

    def run(self, module: Module) -> Module:
        names = aliases(module)
        return module.with_(
            procedures=tuple(self._phased(p, module.dies_used, names[p.name]) for p in module.procedures)
        )

    def _phased(self, procedure: Procedure, dies: int, names: dict[str, str]) -> Procedure:
        spans = group_spans(procedure)
        if not spans:
            return procedure
        body_accesses = accesses(procedure, dies, names)
        downstream = _Downstream.empty(body_accesses)
        phases: dict[int, int] = {}
        phase, walked = 0, spans[0].first
        for span in spans:
            if span.first > spans[0].first:
                downstream.walk(walked, span.first, sources=frozenset())
                if not self.merge or downstream.reaches(span):
                    phase += 1
                    downstream = _Downstream.empty(body_accesses)
            downstream.walk(span.first, span.last + 1, sources=span.transfers)
            walked = span.last + 1
            phases.update((i, phase) for i in span.transfers)
        body = tuple(
            replace(s, phase=phases[i]) if isinstance(s, Transfer) and i in phases else s
            for i, s in enumerate(procedure.body)
        )
        return replace(procedure, body=body)


@dataclass
class _Downstream:
    """The regions that overlap reads and writes of the statements which depend on transfers of the current phase, as a
    byte of each region: looked at one by one, and set many at a time through arrays on the same bytes."""

    accesses: Accesses
    read_overlaps: bytearray
    write_overlaps: bytearray

    @classmethod
    def empty(cls, accesses: Accesses) -> _Downstream:
        count = len(accesses.regions)
        return cls(accesses, bytearray(count), bytearray(count))

    def walk(self, start: int, end: int, sources: frozenset[int]) -> None:
        """Add those of statements `start` to `end` - 1 that are in `sources` (the phase) or depend on earlier ones."""
        overlapping = self.accesses.overlapping
        overlaps_read, overlaps_write = (
            np.frombuffer(flags, np.uint8) for flags in (self.read_overlaps, self.write_overlaps)
        )
        for i in range(start, end):
            access = self.accesses.by_statement[i]
            if i in sources or self._depends(access):
                for region in access.reads:
                    overlaps_read[overlapping[region]] = 1
                for region in access.writes:
                    overlaps_write[overlapping[region]] = 1

    def reaches(self, span: GroupSpan) -> bool:
        """Whether a transfer of the span depends on a transfer of the phase."""
        trial = _Downstream(self.accesses, self.read_overlaps.copy(), self.write_overlaps.copy())
        for i in range(span.first, span.last + 1):
            if i in span.transfers and trial._depends(self.accesses.by_statement[i]):
                return True
            trial.walk(i, i + 1, sources=frozenset())
        return False

    def _depends(self, access: AccessSet) -> bool:
        """Whether a statement with these accesses conflicts with one of the added ones."""
        read, written = self.read_overlaps, self.write_overlaps
        return any([written[r] for r in access.reads]) or any([read[r] or written[r] for r in access.writes])
