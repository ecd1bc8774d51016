"""Let clusters of dies that share hot links start one after the other (staggered starts)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from wscc.diagnostics import Code, fail
from wscc.ir.die_arrays import DieArray, as_ints
from wscc.ir.fabric import Kernel, Send
from wscc.ir.module import Module, Procedure
from wscc.ir.step import Call, Loop, Stage, Step
from wscc.passes.base import Fact, Pass
from wscc.passes.stagger.clusters import Conflicts, called

PASS: Final = "stagger"
DELAY: Final = "delay"

Body = tuple[Call | Loop, ...]


@dataclass(frozen=True, slots=True)
class Stagger(Pass):
    """Delay the start of some clusters of dies, once, where they would load the same links at the same time.

    A *cluster* are dies that exchange messages in a statement of the step, directly or through others; dies of
    different clusters may drift apart in it. Clusters conflict where a link that carries at least `HOT` of the most
    that any link carries in a phase carries messages of both. Conflicting ones get different colours (greedily, in
    the order of their first dies), and colour c starts later by c times what one cluster's messages of the worst
    phase take on the shared link (time shifts: Rajasekaran et al., CASSINI, NSDI 2024, section 4). So one computes
    while the other sends, turn after turn of a loop. The delay stands before the outermost statement in which the
    clusters do not meet; what follows needs none until the clusters have met.

    The meaning of the program stays as it is. Whether it becomes faster, only a simulation tells
    (`wscc.driver.stagger`): `keep` lists the numbers of the delays that are made, in the order of the step, separated
    by `+` (empty: all). Raises W006 for a number that there is not, W603 for a module that is scheduled.

    Before: loop mb < 8 { call @block.fwd ... }
    After:  call @stagger.0(); loop mb < 8 { call @block.fwd ... }
    """

    name: ClassVar[str] = PASS
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.ROUTED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGGERED})

    keep: str = ""

    def run(self, module: Module) -> Module:
        if any(isinstance(stmt, Send) for p in module.procedures for stmt in p.body):
            raise fail(Code.PASS_ORDER, f"`{PASS}` needs transfers, which `schedule` has taken apart")
        conflicts = Conflicts(module)
        maker = _Maker(conflicts, frozenset(self.keep.split("+")) - {""})
        if any(isinstance(s, Stage) for s in module.step):
            stages = [s for s in module.step if isinstance(s, Stage)]
            step: Step = tuple(replace(s, body=maker.delayed(s.body, s.index)) for s in stages)
        else:
            (body,) = module.steps()
            step = maker.delayed(body, 0)
        if unknown := maker.unknown():
            raise fail(Code.OPTION, f"`{PASS}` finds {maker.found} delays, none of them number {unknown[0]}")
        return module.with_(step=step, procedures=(*module.procedures, *maker.procedures))


@dataclass
class _Maker:
    """Puts calls of delays into the step; `procedures` are those that were made."""

    conflicts: Conflicts
    keep: frozenset[str]
    procedures: list[Procedure] = field(default_factory=list)
    found: int = 0

    def delayed(self, body: Body, stage: int) -> Body:
        """The statements of a stage with delays where clusters conflict that do not start apart already."""
        made: list[Call | Loop] = []
        own = self.conflicts.dies_of(stage)
        apart: DieArray | None = None  # the delays that are in force
        for statement in body:
            procedures = called(statement)
            if apart is not None and _joins(self.conflicts.clusters(procedures)[own], apart[own]):
                apart = None
            delays = self.conflicts.delays(procedures, stage)
            if delays.any():
                if apart is None:
                    made += self._call(delays)
                    apart = delays
            elif isinstance(statement, Loop):
                statement = replace(statement, body=self.delayed(statement.body, stage))
            made.append(statement)
        return tuple(made)

    def unknown(self) -> list[str]:
        """What is to be kept and was not found."""
        return sorted(self.keep - {str(n) for n in range(self.found)})

    def _call(self, delays: DieArray) -> list[Call | Loop]:
        """The call of a delay, unless it is not to be kept."""
        number, self.found = self.found, self.found + 1
        if self.keep and str(number) not in self.keep:
            return []
        kernel = Kernel(DELAY, (), (), (("time", as_ints(delays)),))
        self.procedures.append(Procedure(f"{PASS}.{number}", (), (), (kernel,)))
        return [Call(f"{PASS}.{number}", ())]


def _joins(clusters: DieArray, delays: DieArray) -> bool:
    """Whether dies of one cluster have different delays."""
    pairs = np.unique(np.stack([clusters, delays], axis=1), axis=0)
    return bool(len(pairs) > len(np.unique(clusters)))
