"""A step in the order of a table that somebody has edited, or the error that says why that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from wscc.diagnostics import Code, CompileError, Source, Span, fail
from wscc.ir.module import Module
from wscc.ir.step import Call
from wscc.ir.text.call_order import MOST_CALLS, CallOrder, One, numbers, one_by_one
from wscc.ir.text.call_order_read import read_call_order
from wscc.passes.stages.check import check_step_order
from wscc.passes.stages.conflicts import StageCalls, Toucher, check_reads_and_writes
from wscc.passes.stages.cutter import Cutter
from wscc.passes.stages.default_order import call_order_of
from wscc.passes.stages.order_1f1b import StuckError, Task
from wscc.passes.stages.runs import Known, orders_of
from wscc.passes.stages.work_items import Work


def in_order_of(source: Source, module: Module, axis: str) -> Module | None:
    """The module with the calls of the table in `source`, in its order; None where that is the order that `stages`
    takes by itself.

    Only the order counts: what stages pass on, loops, and the slots of micro-batches in flight are derived from it.
    Every call must stand in the table once; one must not come before another that it reads from, or whose
    values it overwrites. That is found by walking both orders over the elements of arrays, and checked again in the
    module that was made. Fails with W204 (no table of this program), W205 (an order that cannot be), or W003 (more
    than `MOST_CALLS` calls).
    """
    asked = read_call_order(source)
    default = Cutter(module, axis)
    default.run()
    own = call_order_of(default)
    if asked.same_as(own):
        return None
    known = _known_calls(default.works, module.train.microbatches, asked.ends[0])
    calls = _Found(asked, known).calls()
    usual = [[one for one, _ in stage] for stage in one_by_one(own)]
    if [[one for one, _ in stage] for stage in calls] == usual:
        return None
    return _Edit(module, axis, default, known, calls, asked.ends).made(usual)


@dataclass(frozen=True, slots=True)
class _Edit:
    """The `calls` of a table, each known, in another order than that of `default`, which has run. `ends` are the places
    behind the stages of the table."""

    module: Module
    axis: str
    default: Cutter
    known: list[Known]
    calls: list[list[tuple[One, Span]]]
    ends: tuple[Span, ...]

    def made(self, usual: list[list[One]]) -> Module:
        """The module, checked against the `usual` order. Fails with W205."""
        usually = Cutter(self.module, self.axis, apart=True)
        wanted = usually.run()
        for stage, listed in enumerate(self.calls):
            touching = StageCalls(usually, Toucher.of(wanted, stage), self.known[stage])
            check_reads_and_writes(touching, usual[stage], listed)
        orders, starts = orders_of(self.calls, self.known)
        try:
            edited = Cutter(self.module, self.axis, orders)
        except StuckError as stuck:
            raise _stuck(stuck, starts, self.default.works) from None
        made = edited.run()
        apart = Cutter(self.module, self.axis, orders, apart=True).run()
        check_step_order(wanted, made, apart, self.ends[0], lambda *at: self._spelled(edited, *at))
        return made

    def _spelled(self, edited: Cutter, stage: int, call: Call) -> tuple[str, Span]:
        """The name of a call of the edited step, and where it stands: works of both cutters are in one order."""
        for mine, its in zip(edited.works[stage], self.default.works[stage], strict=True):
            if mine.task is None and mine.piece.call == call:
                span = dict(self.calls[stage])[One(its.name)]
                return f"`{its.name}` (line {span.line})", span
        return "what it passes on for a micro-batch", self.ends[stage]


def _known_calls(works: list[list[Work]], microbatches: int, span: Span) -> list[Known]:
    """By stage. W003 for more than `MOST_CALLS`."""
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
    return [_known(stage, microbatches) for stage in works]


def _known(works: list[Work], microbatches: int) -> Known:
    """By call, the number of its work on the stage and which of its turns it is."""
    found: Known = {}
    for number, w in enumerate(works):
        count = microbatches if w.task else w.microbatches
        for m in range(count) if count else (None,):
            for i, layer in enumerate(w.layers) if w.layers else ((0, None),):
                found[One(w.name, layer, m)] = (number, i, w)
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """The calls of the order `asked` for, each looked up among those `known` of the program."""

    asked: CallOrder
    known: list[Known]

    def calls(self) -> list[list[tuple[One, Span]]]:
        """By stage. W204 unless they are those of the program, each once."""
        if len(self.asked.stages) != len(self.known):
            raise fail(
                Code.CALL_TABLE,
                f"the table has {len(self.asked.stages)} stages, and the program {len(self.known)}",
                self.asked.ends[-1],
                help="write the table with the options of the strategy that it is for: `wscc call-order`",
            )
        calls = one_by_one(self.asked)
        for stage, listed in enumerate(calls):
            self._stage(stage, listed)
        return calls

    def _stage(self, stage: int, listed: list[tuple[One, Span]]) -> None:
        known = self.known[stage]
        seen: dict[One, Span] = {}
        for one, span in listed:
            if one not in known:
                raise self._unknown(stage, one, span)
            if one in seen:
                raise fail(
                    Code.CALL_TABLE, f"{one} stands here again: line {seen[one].line} makes it already", span,
                    help="every call is made once: remove it from one of the two lines",
                )  # fmt: skip
            seen[one] = span
        missing = [one for one in known if one not in seen]
        if missing:
            more = f" and {len(missing) - 1} calls more" if len(missing) > 1 else ""
            first = missing[0]
            columns = " ".join("-" if n is None else str(n) for n in (first.layer, first.microbatch))
            raise fail(
                Code.CALL_TABLE, f"stage {stage} never makes {first}{more}", self.asked.ends[stage],
                help=f"add a line `{first.call} {columns}` to the stage",
            )  # fmt: skip

    def _unknown(self, stage: int, one: One, span: Span) -> CompileError:
        known = self.known[stage]
        names = list(dict.fromkeys(o.call for o in known))
        if one.call not in names:
            others = [i for i, k in enumerate(self.known) if any(o.call == one.call for o in k)]
            close = get_close_matches(one.call, names, n=1)
            help = f"it is a call of stage {', '.join(map(str, others))}" if others else ""
            help = help or (f"did you mean `{close[0]}`?" if close else f"its calls are {', '.join(names)}")
            return fail(Code.CALL_TABLE, f"stage {stage} has no call `{one.call}`", span, help=help)
        mine = [o for o in known if o.call == one.call]
        columns = (("layer", [o.layer for o in mine]), ("micro-batch", [o.microbatch for o in mine]))
        help = "; ".join(_column(word, values) for word, values in columns)
        return fail(Code.CALL_TABLE, f"stage {stage} has no {one}", span, help=help)


def _column(word: str, values: list[int | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return f"the {word} column of this call is `-`"
    return f"it has {word} {numbers(min(known), max(known))} here"


def _stuck(error: StuckError, starts: list[dict[Task, Span]], works: list[list[Work]]) -> CompileError:
    """The first stage that waits, at its line; the others in words."""

    def name(task: Task) -> str:
        home = works[task.chunk % len(works)]
        last = [w for w in home if w.task == (task.backward, task.chunk)][-1]
        return f"`{last.name}` of micro-batch {task.microbatch}"

    def words() -> Iterator[str]:
        for stage, wait in enumerate(error.waits):
            if wait is not None:
                task, need = wait
                owner = need.chunk % len(works)
                line = starts[stage][task].line
                yield f"stage {stage} (line {line}) waits for {name(need)} of stage {owner}"

    stage, (task, need) = next((s, w) for s, w in enumerate(error.waits) if w is not None)
    return fail(
        Code.CALL_ORDER,
        f"the stages wait for one another: {'; '.join(words())}",
        starts[stage][task],
        help=f"move {name(need)} up on stage {need.chunk % len(works)}, or these calls down",
    )
