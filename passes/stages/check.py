"""Check of a step in a given call order against the reference step of `stages`, from the steps alone.

Both are walked call by call, exchanges between stages included. Their values are compared in expanded steps, where each
micro-batch has a slot of its own. Then the step itself is compared with its expanded form, to see that its slots
suffice.
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
from wscc.passes.stages.conflicts import Access, CallAccesses, Element, Groups

# The name of a call of a stage in the call order, and its place there.
Describe: TypeAlias = Callable[[int, Call], tuple[str, Span]]


def check_step_order(
    reference: Module, reordered: Module, expanded: Module, span: Span, describe: Describe
) -> None:
    """Fail with W205 unless the step of `reordered` computes what that of `reference` does and cannot deadlock.

    `reference` and `expanded` have a slot for each micro-batch; `reordered` is `expanded` with fewer slots. The error
    is at `span`, or where `describe` locates the call of a stage.
    """
    for stage in range(reference.stages):
        _check_values(reference, expanded, stage, span)
        _check_slots(reordered, expanded, stage, span)
    _check_communication(expanded, describe)


def _order_error(stage: int, message: str, span: Span) -> CompileError:
    return fail(
        Code.CALL_ORDER, f"in this order stage {stage} {message}", span,
        help="begin with the order that `wscc call-order` writes, and move fewer calls",
    )  # fmt: skip


# -- values -------------------------------------------------------------------------------------------------


def _check_values(reference: Module, expanded: Module, stage: int, span: Span) -> None:
    groups = Groups()
    for call, accesses in _accesses(reference, expanded, stage):
        for access in accesses:
            groups.record(call, access)
    for call, accesses in _accesses(expanded, reference, stage):
        for access in accesses:
            if (call, access) not in groups.group or not groups.follow(call, access):
                raise _order_error(stage, f"touches `%{access[0][0]}` out of turn", span)
    if any(n for sizes in groups.sizes.values() for n in sizes):
        raise _order_error(stage, "leaves out a call", span)


def _accesses(module: Module, other: Module, stage: int) -> Iterator[tuple[Hashable, list[Access]]]:
    """Each call with its accesses; an exchange between stages as single moves, which may be grouped in another way."""
    call_accesses = CallAccesses.of(module, stage, (other,))
    moving = {p.name for p in module.procedures if _only_moves(p)}
    # Two modules may name one procedure differently.
    content = {p.name: hash(replace(p, name="")) for p in module.procedures}
    seen: Counter[Hashable] = Counter()
    for call, variables in walk(module.steps()[stage]):
        if call.procedure in moving:
            parts = zip(*_halves(call_accesses.arguments(call, variables)), strict=True)
            units = [(0, [t for t in move if t]) for move in parts]
        else:
            units = [(content[call.procedure], call_accesses.accesses(call, variables))]
        for content_key, accesses in units:
            key = (content_key, tuple(accesses))
            seen[key] += 1
            yield (key, seen[key]), accesses


def _halves(accesses: list[Access | None]) -> tuple[list[Access | None], list[Access | None]]:
    return accesses[: len(accesses) // 2], accesses[len(accesses) // 2 :]


def _only_moves(p: Procedure) -> bool:
    return (
        len(p.inputs) == len(p.outputs)
        and all(o.mode is Mode.WRITE for o in p.outputs)
        and all(isinstance(s, Reshard) and s.kind == "permute" for s in p.statements)
    )


# -- slots --------------------------------------------------------------------------------------------------


def _check_slots(reordered: Module, expanded: Module, stage: int, span: Span) -> None:
    """Fail with W205 where an element gets a value while later calls access the value that it holds."""
    elements = CallAccesses.of(reordered, stage, (expanded,))
    values = CallAccesses.of(expanded, stage, (reordered,))
    pairs = [
        (element, value)
        for (a, x), (b, y) in zip(walk(reordered.steps()[stage]), walk(expanded.steps()[stage]), strict=True)
        for element, value in zip(elements.arguments(a, x), values.arguments(b, y), strict=True)
        if element and value
    ]
    remaining = Counter(value for _, (value, _) in pairs)
    contents: dict[Element, Element] = {}
    for (element, _), (value, _) in pairs:
        if contents.setdefault(element, value) != value:
            if remaining[contents[element]]:
                raise _order_error(stage, f"overwrites `%{element[0]}` while it is needed", span)
            contents[element] = value
        remaining[value] -= 1


# -- communication ------------------------------------------------------------------------------------------


def _check_communication(module: Module, describe: Describe) -> None:
    """Fail with W205 unless all stages make the calls in which they communicate in one order."""
    participants = {p.name: _communicating_stages(p, module.stages) for p in module.procedures}
    queues = [
        [
            (call.procedure, tuple((r.array, *(i.at(variables) for i in r.index)) for r in call.args), call)
            for call, variables in walk(step)
            if participants[call.procedure]
        ]
        for step in module.steps()
    ]
    positions = [0] * len(queues)
    while any(i < len(q) for i, q in zip(positions, queues, strict=True)):
        heads = [q[i] if i < len(q) else None for i, q in zip(positions, queues, strict=True)]
        calls = [h and h[:2] for h in heads]
        ready = [
            s for s, h in enumerate(heads) if h and all(calls[o] == calls[s] for o in participants[h[0]])
        ]
        if not ready:
            raise _deadlock([(s, *describe(s, h[2])) for s, h in enumerate(heads) if h])
        for stage in ready:
            positions[stage] += 1


def _deadlock(waits: list[tuple[int, str, Span]]) -> CompileError:
    description = "; ".join(f"stage {stage} in {name}" for stage, name, _ in waits)
    return fail(
        Code.CALL_ORDER,
        f"the stages wait for one another: {description}",
        waits[-1][2],
        help="calls that several stages make together, as these, stand in the same order on all of them",
    )


def _communicating_stages(p: Procedure, stages: int) -> frozenset[int]:
    """The stages that make the calls of a procedure together; empty if it does not communicate."""
    members: set[int] = set()
    for stmt in p.statements:
        match stmt:
            case Reshard(kind="stage_sum"):
                return frozenset(range(stages))
            case Reshard(kind="permute"):
                members |= {stmt.source, stmt.target}
    return frozenset(members)
