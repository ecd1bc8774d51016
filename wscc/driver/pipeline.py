"""The pipeline: passes in order, cut and put together by name of pass, each checked after it has run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from wscc.diagnostics import Code, CompileError, Diagnostic, fail
from wscc.ir.array import Kind
from wscc.ir.fabric import Kernel, Post, Transfer
from wscc.ir.module import Level, Module
from wscc.ir.verify import verify
from wscc.passes.base import Fact, Pass
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.registry import default_passes
from wscc.strategy import stage_axes

Observer = Callable[[str, Module], None]


def _unobserved(name: str, module: Module) -> None:
    pass


@dataclass(slots=True)
class Timings:
    """Seconds of each pass, in order; of all its runs, where a program is compiled again."""

    passes: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.passes.values())

    def report(self) -> dict[str, Any]:
        return {"total": self.total, "passes": dict(self.passes)}


@dataclass(frozen=True, slots=True)
class Insertion:
    """A pass of a user's own that runs right after the pass of the name `after`."""

    own: Pass
    after: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in the order in which they run; parts of one, and those with other passes, are pipelines too.

    `facts` hold for the module that it runs on: of a part, those that the passes before it provide; None: they are
    read off the module itself. A pass is looked up by its name, whatever its options; W603 where there is none of that
    name.

    Pipeline.default(2).until(Place).run(graph)    the module with its dies
    Pipeline.default(2).with_own([Insertion(Mine(), after="fuse")]).run(graph)
    """

    passes: tuple[Pass, ...]
    facts: frozenset[Fact] | None = None

    @classmethod
    def default(cls, level: int = 2, choices: Choices = DEFAULT) -> Pipeline:
        """All passes from a forward module to a scheduled and planned one, at optimisation level 0 to 3."""
        return cls(tuple(default_passes(level, choices, Rehearsal(level))))

    def before(self, first: type[Pass]) -> Pipeline:
        """The passes before that one, without it."""
        return self._part(0, self._index(first))

    def until(self, last: type[Pass]) -> Pipeline:
        """The passes up to that one, which is the last."""
        return self._part(0, self._index(last) + 1)

    def since(self, first: type[Pass]) -> Pipeline:
        """The passes from that one on, which is the first."""
        return self._part(self._index(first), len(self.passes))

    def after(self, last: type[Pass]) -> Pipeline:
        """The passes behind that one, without it."""
        return self._part(self._index(last) + 1, len(self.passes))

    def with_own(self, insertions: Iterable[Insertion]) -> Pipeline:
        """The pipeline with passes of a user's own; of two behind one pass, the first given runs first.

        Raises W006 for a place that is no pass of this pipeline, W603 for a name that a pass has already.
        """
        passes = list(self.passes)
        latest: dict[str, str] = {}
        for insertion in insertions:
            own, names = insertion.own, [p.name for p in passes]
            if own.name in names:
                message = f"a pass `{own.name}` is in the pipeline already"
                raise fail(Code.PASS_ORDER, message, help="give the pass a name of its own")
            if insertion.after not in names:
                message = f"the pipeline has no pass `{insertion.after}`"
                raise fail(Code.OPTION, message, help=f"its passes are {', '.join(names)}")
            passes.insert(names.index(latest.get(insertion.after, insertion.after)) + 1, own)
            latest[insertion.after] = own.name
        return replace(self, passes=tuple(passes))

    def replaced(self, new: Pass) -> Pipeline:
        """The pipeline with the pass of the same name, options and all, exchanged for this one."""
        place = self._index(type(new))
        return replace(self, passes=(*self.passes[:place], new, *self.passes[place + 1 :]))

    def without(self, *left_out: type[Pass]) -> Pipeline:
        """The pipeline without some passes, whether it has them or not."""
        names = {p.name for p in left_out}
        return replace(self, passes=tuple(p for p in self.passes if p.name not in names))

    def run(
        self,
        module: Module,
        *,
        observe: Observer = _unobserved,
        timings: Timings | None = None,
        verify_each: bool = True,
    ) -> Module:
        """The module after all passes. `observe` is called with the name of each pass and what it made.

        Raises W603 for a pass that lacks a fact or runs twice, W602 for one that leaves the module invalid: the latter
        is a bug of the pass, not of the program.

        What takes memory to save time is left out where the program does not fit with it. That is `hoist_casts`: where
        `plan_memory` refuses what comes of it (W401), the passes behind it run once more on what it was given.
        `observe` sees them again, so that what it saw last of a pass is what counts.

        Without `verify_each`, only the last module is verified; if it is invalid, or a pass cannot read what another
        one made, all passes run again to name the one that made it so.
        """
        if not verify_each:
            last = self._unverified(module, observe, timings)
            if last is not None and next(iter(verify(last)), None) is None:
                return last
        return self._run(module, observe, timings, verify_each=True)

    def _unverified(self, module: Module, observe: Observer, timings: Timings | None) -> Module | None:
        """The last module, which may be invalid; None where a pass failed on a module that is no program."""
        try:
            return self._run(module, observe, timings, verify_each=False)
        except CompileError:
            raise
        except Exception:  # of an invalid module; the run that verifies each says whose it is
            return None

    def _run(
        self, module: Module, observe: Observer, timings: Timings | None, *, verify_each: bool
    ) -> Module:
        """The module after all passes, by way of `hoist_casts` where the program fits with it."""
        pipeline = replace(self, facts=facts_of(module)) if self.facts is None else self
        if all(p.name != HoistCasts.name for p in self.passes):
            return pipeline._checked(module, observe, timings, verify_each)
        plain = pipeline.before(HoistCasts)._checked(module, observe, timings, verify_each)
        hoisted = pipeline.since(HoistCasts).until(HoistCasts)._checked(plain, observe, timings, verify_each)
        rest = pipeline.after(HoistCasts)
        if hoisted is not plain:
            try:
                return rest._checked(hoisted, observe, timings, verify_each)
            except CompileError as error:
                if error.diagnostics[0].code is not Code.OUT_OF_MEMORY:
                    raise
            observe(HoistCasts.name, plain)
        return rest._checked(plain, observe, timings, verify_each)

    def _checked(
        self, module: Module, observe: Observer, timings: Timings | None, verify_each: bool
    ) -> Module:
        """Run all passes, each of them checked for its facts, and its module verified if that is asked."""
        facts = self.facts or frozenset()
        valid: Module | None = None
        for p in self.passes:
            if missing := sorted(p.requires - facts):
                raise fail(Code.PASS_ORDER, f"`{p.name}` needs a module that is {' and '.join(missing)}")
            if again := sorted(p.provides & facts):
                raise fail(
                    Code.PASS_ORDER, f"`{p.name}` runs once: the module is {' and '.join(again)} already"
                )
            started = time.perf_counter()
            module = p.run(module)
            if verify_each:
                check(module, p.name, valid)
                valid = module
            if timings is not None:
                timings.passes[p.name] = timings.passes.get(p.name, 0.0) + time.perf_counter() - started
            facts |= p.provides
            observe(p.name, module)
        return module

    def _index(self, kind: type[Pass]) -> int:
        names = [p.name for p in self.passes]
        if kind.name not in names:
            raise fail(Code.PASS_ORDER, f"`{kind.name}` is none of the passes {', '.join(names) or '(none)'}")
        return names.index(kind.name)

    def _part(self, first: int, end: int) -> Pipeline:
        if not first:
            return replace(self, passes=self.passes[:end])
        provided = (p.provides for p in self.passes[:first])
        return Pipeline(self.passes[first:end], (self.facts or frozenset()).union(*provided))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The passes behind `lower_collectives` at an optimisation level, then the simulator: by what they make of single
    reshards, that pass chooses.

    A program is compiled again to be verified, whatever choices it was made with: here only its level counts.
    """

    level: int

    def __call__(self, lowered: Module) -> float:
        """Simulated seconds of the step of a module that is lowered, and no more than that."""
        # Imported here: most programs are compiled without a simulation.
        from wscc.backends.emit import emit
        from wscc.backends.simulator.calls import Builder
        from wscc.backends.simulator.compose import Composer
        from wscc.backends.simulator.costs import SECOND, Costs

        for p in Pipeline(tuple(default_passes(self.level))).after(LowerCollectives).passes:
            lowered = p.run(lowered)
        streams, _ = emit(lowered)
        return max(Composer(Builder(streams, Costs.of(lowered.machine))).run().now) / SECOND


def facts_of(module: Module) -> frozenset[Fact]:
    """Facts that hold for a module that was read from text."""
    body = [stmt for p in module.procedures for stmt in p.body]
    transfers = [s for s in body if isinstance(s, Transfer)]
    lowered = module.level is Level.FABRIC
    scheduled = lowered and not transfers and any(isinstance(s, Post) for s in body)
    conditions = {
        Fact.DIFFERENTIATED: any(a.kind is Kind.GRAD for a in module.arrays),
        Fact.PADDED: module.level is not Level.GRAPH or any(a.unpadded for a in module.arrays),
        Fact.PARTITIONED: module.level is not Level.GRAPH,
        Fact.STAGED: module.level is not Level.GRAPH and (module.stages > 1 or not stage_axes(module.sizes)),
        Fact.PLACED: bool(module.dies),
        Fact.LOWERED: lowered,
        Fact.PROMOTED: scheduled or any(t.is_local for t in transfers),
        Fact.PHASED: scheduled or (lowered and all(t.phase >= 0 or t.is_local for t in transfers)),
        Fact.ROUTED: bool(module.routes),
        Fact.STAGGERED: any(isinstance(s, Kernel) and s.opcode == "delay" for s in body),
        Fact.SCHEDULED: scheduled,
        Fact.PLANNED: module.memory is not None,
    }
    return frozenset(fact for fact, holds in conditions.items() if holds)


def check(module: Module, after: str, before: Module | None = None) -> None:
    """Raise `CompileError` W602 if a module is invalid, with the pass that made it of the valid module `before`."""
    broken = next(iter(verify(module, before)), None)
    if broken is not None:
        raise CompileError(
            Diagnostic(Code.BROKEN_PASS, f"`{after}` produced invalid IR: {broken.message}", broken.label)
        )
