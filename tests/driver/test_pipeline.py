"""Pipelines cut and put together: the passes that run, the facts of the module, and the check of each pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import pytest

from tests.support.models import Shape, gpt
from wscc.diagnostics import Code, CompileError
from wscc.driver.pipeline import Insertion, Pipeline, Timings
from wscc.ir.module import Module
from wscc.passes.base import Pass
from wscc.passes.choices import Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.fuse import Fuse
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.partition import Partition
from wscc.passes.place import Place
from wscc.passes.promote import Promote
from wscc.passes.registry import PASSES
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule
from wscc.passes.stages import Stages

WHOLE = Pipeline.default(2)


@lru_cache
def graph() -> Module:
    return gpt({"tp": 2}, Shape(layers=1))


def names(pipeline: Pipeline) -> list[str]:
    return [p.name for p in pipeline.passes]


@dataclass(frozen=True, slots=True)
class Counted(Pass):
    """A pass of a user: changes nothing, or what the verifier does not let pass."""

    name: ClassVar[str] = "counted"
    requires = Partition.provides

    breaks: bool = False

    def run(self, module: Module) -> Module:
        return module.with_(dies=(0, 0)) if self.breaks else module


@pytest.mark.parametrize("kind", [PASSES[p.name] for p in WHOLE.passes])
def test_a_pass_parts_the_pipeline_in_two(kind: type[Pass]) -> None:
    assert WHOLE.before(kind).passes + WHOLE.since(kind).passes == WHOLE.passes
    assert WHOLE.until(kind).passes + WHOLE.after(kind).passes == WHOLE.passes
    assert WHOLE.until(kind).passes[-1].name == WHOLE.since(kind).passes[0].name == kind.name


def test_parts_one_after_the_other_make_what_the_whole_makes() -> None:
    """Also where a module alone would not tell what has run: on one die there are no stages to cut and no routes."""
    for module in (graph(), gpt({}, Shape(layers=1))):
        seen: dict[str, Module] = {}
        whole = WHOLE.run(module, observe=seen.__setitem__)
        rest = WHOLE
        for kind in (Partition, LowerCollectives, Promote, Route, Schedule):
            module = rest.until(kind).run(module)
            assert module == seen[kind.name]
            rest = WHOLE.after(kind)
        assert rest.run(module) == whole


def test_a_part_of_a_part_knows_what_came_before_both() -> None:
    middle = WHOLE.since(Stages).until(Schedule).after(Place)
    assert middle == WHOLE.after(Place).until(Schedule)
    assert middle.facts is not None
    assert middle.facts >= {f for p in (Differentiate, Partition, Stages, Place) for f in p.provides}


def test_a_pass_of_ones_own_runs_where_it_is_put_and_is_watched() -> None:
    own = WHOLE.with_own([Insertion(Counted(), after="fuse")])
    assert names(own)[4:8] == ["hoist_casts", "fuse", "counted", "place"]
    seen: list[str] = []
    timings = Timings()
    own = WHOLE.until(Place).with_own([Insertion(Counted(), after="stages")])
    counted = own.run(graph(), observe=lambda name, module: seen.append(name), timings=timings)
    assert counted == WHOLE.until(Place).run(graph())
    assert seen == list(timings.passes) == names(own)


def test_a_pass_of_ones_own_is_checked_like_any_other() -> None:
    with pytest.raises(CompileError, match="`counted` produced invalid IR") as broken:
        WHOLE.until(Stages).with_own([Insertion(Counted(breaks=True), after="stages")]).run(graph())
    with pytest.raises(CompileError, match="`counted` needs a module that is partitioned") as early:
        WHOLE.until(Stages).with_own([Insertion(Counted(), after="differentiate")]).run(graph())
    own = WHOLE.until(Stages).with_own([Insertion(Counted(breaks=True), after="partition")])
    with pytest.raises(CompileError, match="`counted` produced invalid IR"):
        own.run(graph(), verify_each=False)
    codes = [e.value.diagnostics[0].code for e in (broken, early)]
    assert codes == [Code.BROKEN_PASS, Code.PASS_ORDER]


def test_a_pass_that_a_pipeline_lacks_is_named() -> None:
    for cut in (WHOLE.until, WHOLE.after, Pipeline.default(0).before):
        with pytest.raises(CompileError, match="`counted` is none of the passes differentiate, pad"):
            cut(Counted)
    with pytest.raises(CompileError, match="the pipeline has no pass `counted`"):
        WHOLE.with_own([Insertion(Counted(), after="counted")])


def test_options_change_by_name() -> None:
    greedy = WHOLE.replaced(Place("snake"))
    assert names(greedy) == names(WHOLE)
    assert greedy == Pipeline.default(2, replace(Choices(), mapper="snake"))
    assert names(greedy.without(Fuse, Counted)) == [n for n in names(WHOLE) if n != "fuse"]
