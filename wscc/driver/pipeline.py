"""The pipeline: passes in order, checked after each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wscc.diagnostics import Code, CompileError, Diagnostic, fail
from wscc.driver.insertion import Insertion, inserted
from wscc.ir.array import Kind
from wscc.ir.fabric import Kernel, Post, Transfer
from wscc.ir.module import Level, Module
from wscc.ir.verify import verify
from wscc.passes import default_passes
from wscc.passes.base import Fact, Pass
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.hoist_casts import HoistCasts
from wscc.strategy import stage_axes

Observer = Callable[[str, Module], None]


@dataclass(slots=True)
class Timings:
    """Seconds of each pass, in order; of all its runs, where a program is compiled again."""

    passes: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.passes.values())

    def report(self) -> dict[str, Any]:
        return {"total": self.total, "passes": dict(self.passes)}


def run_passes(
    module: Module,
    passes: Iterable[Pass],
    *,
    facts: frozenset[Fact] = frozenset(),
    observe: Observer = lambda name, module: None,
    timings: Timings | None = None,
) -> Module:
    """Run passes in order. Raises W603 for a pass that lacks a fact or runs twice, W602 for one that leaves the
    module invalid: the latter is a bug of the pass, not of the program."""
    valid: Module | None = None
    for p in passes:
        if missing := sorted(p.requires - facts):
            raise fail(Code.PASS_ORDER, f"`{p.name}` needs a module that is {' and '.join(missing)}")
        if again := sorted(p.provides & facts):
            raise fail(Code.PASS_ORDER, f"`{p.name}` runs once: the module is {' and '.join(again)} already")
        started = time.perf_counter()
        module = p.run(module)
        check(module, p.name, valid)
        valid = module
        if timings is not None:
            timings.passes[p.name] = timings.passes.get(p.name, 0.0) + time.perf_counter() - started
        facts |= p.provides
        observe(p.name, module)
    return module


def facts_of(module: Module) -> frozenset[Fact]:
    """What is known of a module that was read from text."""
    body = [stmt for p in module.procedures for stmt in p.body]
    transfers = [s for s in body if isinstance(s, Transfer)]
    lowered = module.level is Level.FABRIC
    scheduled = lowered and not transfers and any(isinstance(s, Post) for s in body)
    known = {
        Fact.DIFFERENTIATED: any(a.kind is Kind.GRAD for a in module.arrays),
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
    return frozenset(fact for fact, holds in known.items() if holds)


def check(module: Module, after: str, before: Module | None = None) -> None:
    """Raise if the module is invalid, naming the pass that made it so of the valid module `before`."""
    broken = next(iter(verify(module, before)), None)
    if broken is not None:
        raise CompileError(
            Diagnostic(Code.BROKEN_PASS, f"`{after}` produced invalid IR: {broken.message}", broken.label)
        )


def compile_module(
    module: Module,
    level: int = 2,
    *,
    choices: Choices = DEFAULT,
    observe: Observer = lambda name, module: None,
    timings: Timings | None = None,
    insertions: Sequence[Insertion] = (),
) -> Module:
    """A forward module to a scheduled and planned fabric module, at optimisation level 0 to 2."""
    check(module, "elaborate")
    passes = inserted(default_passes(level, choices), insertions)
    return run_fitting(module, passes, observe=observe, timings=timings)


def run_fitting(
    module: Module,
    passes: Sequence[Pass],
    *,
    observe: Observer = lambda name, module: None,
    timings: Timings | None = None,
) -> Module:
    """`run_passes`, without what takes memory to save time where the program does not fit with it.

    That is `hoist_casts`: where `plan_memory` refuses what comes of it (W401), the passes behind it run once more on
    what it was given. `observe` sees them again, so that what it saw last of a pass is what counts.
    """
    at = next((i for i, p in enumerate(passes) if isinstance(p, HoistCasts)), len(passes))

    def run(module: Module, first: int, last: int) -> Module:
        known = frozenset[Fact]().union(*(p.provides for p in passes[:first]))
        return run_passes(module, passes[first:last], facts=known, observe=observe, timings=timings)

    plain = run(module, 0, at)
    hoisted = run(plain, at, at + 1)
    if hoisted is not plain:
        try:
            return run(hoisted, at + 1, len(passes))
        except CompileError as error:
            if error.diagnostics[0].code is not Code.OUT_OF_MEMORY:
                raise
        observe(HoistCasts.name, plain)
    return run(plain, at + 1, len(passes))
