"""Group the transfers of each procedure into phases: sets that may be in flight together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.accesses import Accesses, AccessSet, accesses
from wscc.analysis.aliases import aliases
from wscc.analysis.transfer_groups import GroupSpan, group_spans
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module, Procedure
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class FormPhases(Pass):
    """Give each transfer the number of its phase, counted from 0 in program order in each procedure.

    A whole collective or stream (one `group`) is one phase, since its rounds load the same links; so are
    groups whose transfers interleave. With `merge`, a group joins the phase before it if none of its
    transfers depends on one of that phase, directly or through kernels.

    Invariant: numbers never fall along the body, and two transfers of one phase have no dependency path
    between them, unless their groups are the same or interleave.

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
        regions = accesses(procedure, dies, names)
        depends = _Downstream.empty(regions)
        phases: dict[int, int] = {}
        phase, walked = 0, spans[0].first
        for span in spans:
            if span.first > spans[0].first:
                depends.walk(walked, span.first, sources=frozenset())
                if not self.merge or depends.reaches(span):
                    phase += 1
                    depends = _Downstream.empty(regions)
            depends.walk(span.first, span.last + 1, sources=span.transfers)
            walked = span.last + 1
            phases.update((i, phase) for i in span.transfers)
        body = tuple(
            replace(s, phase=phases[i]) if isinstance(s, Transfer) and i in phases else s
            for i, s in enumerate(procedure.body)
        )
        return replace(procedure, body=body)


@dataclass
class _Downstream:
    """The statements that depend on the transfers of the current phase, as the regions that conflict with their reads
    and writes."""

    accesses: Accesses
    near_reads: NDArray[np.bool_]
    near_writes: NDArray[np.bool_]

    @classmethod
    def empty(cls, accesses: Accesses) -> _Downstream:
        count = len(accesses.regions)
        return cls(accesses, np.zeros(count, np.bool_), np.zeros(count, np.bool_))

    def walk(self, start: int, end: int, sources: frozenset[int]) -> None:
        """Follow dependencies through statements `start` to `end` - 1; `sources` are of the phase."""
        overlapping = self.accesses.overlapping
        for i in range(start, end):
            access = self.accesses.by_statement[i]
            if i in sources or self._has(access):
                for region in access.reads:
                    self.near_reads[overlapping[region]] = True
                for region in access.writes:
                    self.near_writes[overlapping[region]] = True

    def reaches(self, span: GroupSpan) -> bool:
        """Whether a transfer of the span depends on the phase."""
        trial = _Downstream(self.accesses, self.near_reads.copy(), self.near_writes.copy())
        for i in range(span.first, span.last + 1):
            if i in span.transfers and trial._has(self.accesses.by_statement[i]):
                return True
            trial.walk(i, i + 1, sources=frozenset())
        return False

    def _has(self, access: AccessSet) -> bool:
        """Whether a statement conflicts with one of those: either of the two writes."""
        reads, writes = list(access.reads), list(access.writes)
        return bool(
            self.near_writes[reads].any() or self.near_writes[writes].any() or self.near_reads[writes].any()
        )
