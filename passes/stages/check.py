"""Whether the step that was made of an edited table does what the step of `stages` does: asked of the steps alone.

They are walked call by call, exchanges between stages included. Values are compared in steps where each micro-batch
has a slot of its own; then the step itself is compared with that one, to see whether its slots suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import TypeAlias

from wscc.diagnostics import Code, CompileError, Span, fail
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.op import Reshard
from wscc.ir.step import Call, walk
from wscc.passes.stages.conflicts import Element, Groups, Touch, Toucher

# How the table names a call of a stage, and where it stands there.
Spell: TypeAlias = Callable[[int, Call], tuple[str, Span]]


def check_step_order(wanted: Module, made: Module, apart: Module, span: Span, spell: Spell) -> None:
    """`wanted` and `apart` have a slot for each micro-batch; `made` is `apart` with fewer. Fails with W205, at `span`
    or where `spell` finds the call of a stage."""
    for stage in range(wanted.stages):
        _check_values(wanted, apart, stage, span)
        _check_slots(made, apart, stage, span)
    _check_meetings(apart, spell)


def _wrong(stage: int, message: str, span: Span) -> CompileError:
    return fail(
        Code.CALL_ORDER, f"in this order stage {stage} {message}", span,
        help="begin with the order that `wscc call-order` writes, and move fewer calls",
    )  # fmt: skip


# -- values -------------------------------------------------------------------------------------------------


def _check_values(wanted: Module, apart: Module, stage: int, span: Span) -> None:
    groups = Groups()
    for who, touches in _accesses(wanted, apart, stage):
        for touch in touches:
            groups.record(who, touch)
    for who, touches in _accesses(apart, wanted, stage):
        for touch in touches:
            if (who, touch) not in groups.group or not groups.follow(who, touch):
                raise _wrong(stage, f"touches `%{touch[0][0]}` out of turn", span)
    if any(n for sizes in groups.sizes.values() for n in sizes):
        raise _wrong(stage, "leaves out a call", span)


def _accesses(module: Module, other: Module, stage: int) -> Iterator[tuple[Hashable, list[Touch]]]:
    """Each call with what it touches; one that passes values on as single moves, which may be grouped otherwise."""
    toucher = Toucher.of(module, stage, (other,))
    moving = {p.name for p in module.procedures if _only_moves(p)}
    # Steps may have other names for the same procedure.
    content = {p.name: hash(replace(p, name="")) for p in module.procedures}
    seen: Counter[Hashable] = Counter()
    for call, variables in walk(module.steps()[stage]):
        if call.procedure in moving:
            parts = zip(*_halves(toucher.arguments(call, variables)), strict=True)
            found = [(0, [t for t in move if t]) for move in parts]
        else:
            found = [(content[call.procedure], toucher.touches(call, variables))]
        for name, touches in found:
            who = (name, tuple(touches))
            seen[who] += 1
            yield (who, seen[who]), touches


def _halves(touches: list[Touch | None]) -> tuple[list[Touch | None], list[Touch | None]]:
    return touches[: len(touches) // 2], touches[len(touches) // 2 :]


def _only_moves(p: Procedure) -> bool:
    return (
        len(p.inputs) == len(p.outputs)
        and all(o.mode is Mode.WRITE for o in p.outputs)
        and all(isinstance(s, Reshard) and s.kind == "permute" for s in p.statements)
    )


# -- slots --------------------------------------------------------------------------------------------------


def _check_slots(made: Module, apart: Module, stage: int, span: Span) -> None:
    """No value is overwritten while it is needed: an element changes hands when all of the last holder is over."""
    few, many = Toucher.of(made, stage, (apart,)), Toucher.of(apart, stage, (made,))
    pairs = [
        (place, value)
        for (a, x), (b, y) in zip(walk(made.steps()[stage]), walk(apart.steps()[stage]), strict=True)
        for place, value in zip(few.arguments(a, x), many.arguments(b, y), strict=True)
        if place and value
    ]
    left = Counter(value for _, (value, _) in pairs)
    held: dict[Element, Element] = {}
    for (place, _), (value, _) in pairs:
        if held.setdefault(place, value) != value:
            if left[held[place]]:
                raise _wrong(stage, f"overwrites `%{place[0]}` while it is needed", span)
            held[place] = value
        left[value] -= 1


# -- meetings -----------------------------------------------------------------------------------------------


def _check_meetings(module: Module, spell: Spell) -> None:
    """All stages make the calls in which they meet in one order."""
    who = {p.name: _meeting(p, module.stages) for p in module.procedures}
    queues = [
        [
            (call.procedure, tuple((r.array, *(i.at(v) for i in r.index)) for r in call.args), call)
            for call, v in walk(step)
            if who[call.procedure]
        ]
        for step in module.steps()
    ]
    at = [0] * len(queues)
    while any(i < len(q) for i, q in zip(at, queues, strict=True)):
        heads = [q[i] if i < len(q) else None for i, q in zip(at, queues, strict=True)]
        named = [h and h[:2] for h in heads]
        ready = [s for s, h in enumerate(heads) if h and all(named[o] == named[s] for o in who[h[0]])]
        if not ready:
            raise _apart([(s, *spell(s, h[2])) for s, h in enumerate(heads) if h])
        for stage in ready:
            at[stage] += 1


def _apart(waits: list[tuple[int, str, Span]]) -> CompileError:
    words = "; ".join(f"stage {stage} in {name}" for stage, name, _ in waits)
    return fail(
        Code.CALL_ORDER,
        f"the stages wait for one another: {words}",
        waits[-1][2],
        help="calls that several stages make together, as these, stand in the same order on all of them",
    )


def _meeting(p: Procedure, stages: int) -> frozenset[int]:
    """The stages that make the calls of a procedure together."""
    found: set[int] = set()
    for stmt in p.statements:
        match stmt:
            case Reshard(kind="stage_sum"):
                return frozenset(range(stages))
            case Reshard(kind="permute"):
                found |= {stmt.source, stmt.target}
    return frozenset(found)
