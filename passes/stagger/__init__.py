"""The pass that lets clusters of dies that share hot links start one after the other (staggered starts)."""

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

    A *cluster* is a set of dies that exchange messages in a statement of the step, directly or through others; dies
    of different clusters may drift apart in it. Two clusters conflict if both send messages over a hot link: one that
    carries at least `HOT` of the bytes that the most loaded link carries in a phase. Conflicting clusters get
    different colours (greedily, in the order of their first dies), and colour c starts later by c times the time that
    the messages of one cluster in the worst phase take on the shared link (time shifts: Rajasekaran et al., CASSINI,
    NSDI 2024, section 4). So one computes while the other sends, in every iteration of a loop. The delay stands
    before the outermost statement in which the clusters exchange no message; later statements need none until the
    clusters exchange messages.

    Results stay the same. Whether the step becomes shorter, a simulation decides (`wscc.driver.stagger`): `keep` lists
    the numbers of the delays to insert, in the order of the step, separated by `+` (empty: all). Raises W006 for a
    number that no delay has, W603 for a module that is scheduled.

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
        inserter = _Inserter(conflicts, frozenset(self.keep.split("+")) - {""})
        if any(isinstance(s, Stage) for s in module.step):
            stages = [s for s in module.step if isinstance(s, Stage)]
            step: Step = tuple(replace(s, body=inserter.delayed(s.body, s.index)) for s in stages)
        else:
            (body,) = module.steps()
            step = inserter.delayed(body, 0)
        if unknown := inserter.unknown():
            raise fail(
                Code.OPTION, f"`{PASS}` finds {inserter.count} delays, none of them number {unknown[0]}"
            )
        return module.with_(step=step, procedures=(*module.procedures, *inserter.procedures))


@dataclass
class _Inserter:
    """Inserter of calls of delays into the step; `procedures` are the new ones, `count` is the number of all delays."""

    conflicts: Conflicts
    keep: frozenset[str]
    procedures: list[Procedure] = field(default_factory=list)
    count: int = 0

    def delayed(self, body: Body, stage: int) -> Body:
        """The statements of a stage, with delays before those in which clusters conflict that start together."""
        statements: list[Call | Loop] = []
        dies = self.conflicts.dies_of(stage)
        current: DieArray | None = None  # the delays in force
        for statement in body:
            procedures = called(statement)
            if current is not None and _joins(self.conflicts.clusters(procedures)[dies], current[dies]):
                current = None
            delays = self.conflicts.delays(procedures, stage)
            if delays.any():
                if current is None:
                    statements += self._call(delays)
                    current = delays
            elif isinstance(statement, Loop):
                statement = replace(statement, body=self.delayed(statement.body, stage))
            statements.append(statement)
        return tuple(statements)

    def unknown(self) -> list[str]:
        """The numbers in `keep` that no delay has."""
        return sorted(self.keep - {str(n) for n in range(self.count)})

    def _call(self, delays: DieArray) -> list[Call | Loop]:
        """The call of a delay; none if `keep` leaves it out."""
        number, self.count = self.count, self.count + 1
        if self.keep and str(number) not in self.keep:
            return []
        kernel = Kernel(DELAY, (), (), (("time", as_ints(delays)),))
        self.procedures.append(Procedure(f"{PASS}.{number}", (), (), (kernel,)))
        return [Call(f"{PASS}.{number}", ())]


def _joins(clusters: DieArray, delays: DieArray) -> bool:
    """Whether dies of one cluster have different delays."""
    pairs = np.unique(np.stack([clusters, delays], axis=1), axis=0)
    return bool(len(pairs) > len(np.unique(clusters)))
