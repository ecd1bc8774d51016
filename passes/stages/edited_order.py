"""The step of a program in a call order that the user has edited, checked against the order of `stages`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wscc.diagnostics import Code, CompileError, Source, Span, fail
from wscc.diagnostics.spelling import did_you_mean
from wscc.ir.module import Module
from wscc.ir.step import Call
from wscc.ir.text.call_order import MOST_CALLS, CallOrder, One, numbers, one_by_one
from wscc.ir.text.call_order_read import read_call_order
from wscc.passes.stages.check import check_step_order
from wscc.passes.stages.conflicts import CallAccesses, StageCalls, check_conflicts
from wscc.passes.stages.cutter import Cutter
from wscc.passes.stages.default_order import call_order_of
from wscc.passes.stages.order_1f1b import DeadlockError, Task
from wscc.passes.stages.runs import CallIndex, orders_of
from wscc.passes.stages.work_items import Work


def with_call_order(source: Source, module: Module, axis: str) -> Module | None:
    """The module with its calls in the call order of `source`; None where that is the default order of `stages`.

    Only the order counts: exchanges between stages, loops, and slots of micro-batches in flight follow from it. Every
    call must stand in it once, and after the calls on which it depends. Conflicts are found by walking both orders over
    the elements of arrays, and the resulting module is checked again on its own. Fails with W204 for calls that are not
    those of the program, W205 for an illegal order, and W003 for more than `MOST_CALLS` calls.
    """
    order = read_call_order(source)
    default = Cutter(module, axis)
    default.run()
    default_calls = call_order_of(default)
    if order.same_as(default_calls):
        return None
    index = _program_index(default.works, module.train.microbatches, order.ends[0])
    calls = _Lookup(order, index).calls()
    default_order = [[one for one, _ in stage] for stage in one_by_one(default_calls)]
    if [[one for one, _ in stage] for stage in calls] == default_order:
        return None
    return _Reordering(module, axis, default, index, calls, order.ends).module_in_order(default_order)


@dataclass(frozen=True, slots=True)
class _Reordering:
    """The `calls` of a call order, other than that of the cutter `default`, which has run.

    `index` has all calls of the program by stage, `ends` are the places at the ends of the stages of the call order.
    """

    module: Module
    axis: str
    default: Cutter
    index: list[CallIndex]
    calls: list[list[tuple[One, Span]]]
    ends: tuple[Span, ...]

    def module_in_order(self, default_order: list[list[One]]) -> Module:
        """The module in the edited order, checked against `default_order`. Fails with W205."""
        expanded_default = Cutter(self.module, self.axis, expanded=True)
        reference = expanded_default.run()
        for stage, listed in enumerate(self.calls):
            stage_calls = StageCalls(expanded_default, CallAccesses.of(reference, stage), self.index[stage])
            check_conflicts(stage_calls, default_order[stage], listed)
        orders, starts = orders_of(self.calls, self.index)
        try:
            edited = Cutter(self.module, self.axis, orders)
        except DeadlockError as deadlock:
            raise _deadlock(deadlock, starts, self.default.works) from None
        reordered = edited.run()
        expanded = Cutter(self.module, self.axis, orders, expanded=True).run()
        check_step_order(
            reference, reordered, expanded, self.ends[0], lambda *at: self._described(edited, *at)
        )
        return reordered

    def _described(self, edited: Cutter, stage: int, call: Call) -> tuple[str, Span]:
        """The name of a call of the edited step, and its place: both cutters list their works in one order."""
        for edited_work, default_work in zip(edited.works[stage], self.default.works[stage], strict=True):
            if edited_work.task is None and edited_work.piece.call == call:
                span = dict(self.calls[stage])[One(default_work.name)]
                return f"`{default_work.name}` (line {span.line})", span
        return "what it passes on for a micro-batch", self.ends[stage]


def _program_index(works: list[list[Work]], microbatches: int, span: Span) -> list[CallIndex]:
    """The calls of the program by stage. Fails with W003 for more than `MOST_CALLS` calls."""
    count = sum(
        max(len(w.layers), 1) * max(w.microbatches, microbatches if w.task else 1)
        for stage in works
        for w in stage
    )
    if count > MOST_CALLS:
        raise fail(
            Code.LIMIT,
            f"the step has {count:,} calls, and an edited order is checked call by call, up to {MOST_CALLS:,}",
            span,
            help="leave `--call-order` out, or take fewer micro-batches or layers",
        )
    return [_stage_index(stage, microbatches) for stage in works]


def _stage_index(works: list[Work], microbatches: int) -> CallIndex:
    """The calls of one stage, each with the number of its work, its iteration of that work, and the work."""
    index: CallIndex = {}
    for number, w in enumerate(works):
        count = microbatches if w.task else w.microbatches
        for m in range(count) if count else (None,):
            for i, layer in enumerate(w.layers) if w.layers else ((0, None),):
                index[One(w.name, layer, m)] = (number, i, w)
    return index


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Lookup of the calls of `order` among the calls of the program, by stage in `index`."""

    order: CallOrder
    index: list[CallIndex]

    def calls(self) -> list[list[tuple[One, Span]]]:
        """The calls of the order by stage. Fails with W204 unless they are those of the program, each once."""
        if len(self.order.stages) != len(self.index):
            raise fail(
                Code.CALL_TABLE,
                f"the table has {len(self.order.stages)} stages, and the program {len(self.index)}",
                self.order.ends[-1],
                help="write the table with the options of the strategy that it is for: `wscc call-order`",
            )
        calls = one_by_one(self.order)
        for stage, listed in enumerate(calls):
            self._stage(stage, listed)
        return calls

    def _stage(self, stage: int, listed: list[tuple[One, Span]]) -> None:
        index = self.index[stage]
        seen: dict[One, Span] = {}
        for one, span in listed:
            if one not in index:
                raise self._unknown(stage, one, span)
            if one in seen:
                raise fail(
                    Code.CALL_TABLE, f"{one} stands here again: line {seen[one].line} makes it already", span,
                    help="every call is made once: remove it from one of the two lines",
                )  # fmt: skip
            seen[one] = span
        missing = [one for one in index if one not in seen]
        if missing:
            others = f" and {len(missing) - 1} calls more" if len(missing) > 1 else ""
            first = missing[0]
            columns = " ".join("-" if n is None else str(n) for n in (first.layer, first.microbatch))
            raise fail(
                Code.CALL_TABLE, f"stage {stage} never makes {first}{others}", self.order.ends[stage],
                help=f"add a line `{first.call} {columns}` to the stage",
            )  # fmt: skip

    def _unknown(self, stage: int, one: One, span: Span) -> CompileError:
        index = self.index[stage]
        names = list(dict.fromkeys(o.call for o in index))
        if one.call not in names:
            others = [i for i, k in enumerate(self.index) if any(o.call == one.call for o in k)]
            help = f"it is a call of stage {', '.join(map(str, others))}" if others else ""
            help = help or did_you_mean(one.call, names, f"its calls are {', '.join(names)}")
            return fail(Code.CALL_TABLE, f"stage {stage} has no call `{one.call}`", span, help=help)
        namesakes = [o for o in index if o.call == one.call]
        columns = (
            ("layer", [o.layer for o in namesakes]),
            ("micro-batch", [o.microbatch for o in namesakes]),
        )
        help = "; ".join(_column(word, values) for word, values in columns)
        return fail(Code.CALL_TABLE, f"stage {stage} has no {one}", span, help=help)


def _column(word: str, values: list[int | None]) -> str:
    present = [v for v in values if v is not None]
    if not present:
        return f"the {word} column of this call is `-`"
    return f"it has {word} {numbers(min(present), max(present))} here"


def _deadlock(error: DeadlockError, starts: list[dict[Task, Span]], works: list[list[Work]]) -> CompileError:
    """The error of stages that wait for one another, at the line of the first; the message names the others."""

    def name(task: Task) -> str:
        stage_works = works[task.chunk % len(works)]
        last = [w for w in stage_works if w.task == (task.backward, task.chunk)][-1]
        return f"`{last.name}` of micro-batch {task.microbatch}"

    def descriptions() -> Iterator[str]:
        for stage, wait in enumerate(error.waits):
            if wait is not None:
                task, prerequisite = wait
                owner = prerequisite.chunk % len(works)
                line = starts[stage][task].line
                yield f"stage {stage} (line {line}) waits for {name(prerequisite)} of stage {owner}"

    stage, (task, prerequisite) = next((s, w) for s, w in enumerate(error.waits) if w is not None)
    return fail(
        Code.CALL_ORDER,
        f"the stages wait for one another: {'; '.join(descriptions())}",
        starts[stage][task],
        help=f"move {name(prerequisite)} up on stage {prerequisite.chunk % len(works)}, or these calls down",
    )
