"""The check that one assignment of axes to factors explains every layout of an op, its partial results included.

Layouts are those that the kernel of an op sees: without the axis of a stream, whose shards pass through one by one.
Everything follows from rules and layouts alone, nothing from the way in which a pass chose them.
"""

from __future__ import annotations

from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard
from wscc.ir.rule import Rule
from wscc.ir.types import Layout, Reduction
from wscc.ir.verify.finding import Findings, Place, at_op
from wscc.ir.verify.reshard import check_reshard

Assignment = dict[str, tuple[str, ...]]


def check_sharded(module: Module, procedure: Procedure) -> Findings:
    """The mistakes in the layouts of a procedure whose ops are right otherwise."""
    for op in procedure.statements:
        place = at_op(procedure, op)
        if isinstance(op, Reshard):
            yield from check_reshard(place, op, module.sizes)
            continue
        if wrong := _check_stream(op, module.sizes):
            yield place.wrong(wrong)
            continue
        yield from _check_layouts(place, op)


def _check_layouts(place: Place, op: Op) -> Findings:
    operands, results = _seen_by_kernel(op)
    assignment: Assignment = {}
    owner: dict[str, str] = {}
    terms = zip((*operands, *results), op.terms(), strict=True)
    for layout, (value, term) in terms:
        for axes, factor in zip(layout.dims, term, strict=True):
            if assignment.setdefault(factor, axes) != axes:
                yield place.wrong(
                    f"factor `{factor}` is split by {_words(assignment[factor])} in `%{owner[factor]}` "
                    f"and by {_words(axes)} in `%{value.name}`"
                )
                return
            owner.setdefault(factor, value.name)
    if wrong := _wrong_split(op.rule, assignment):
        yield place.wrong(wrong)
        return
    passing, problems = _passing(op, operands)
    yield from (place.wrong(p) for p in problems)
    if not problems:
        yield from _check_results(place, op, results, assignment, passing)


def _words(axes: tuple[str, ...]) -> str:
    return f"`{'/'.join(axes)}`" if axes else "nothing"


def _wrong_split(rule: Rule, assignment: Assignment) -> str | None:
    splits: dict[str, str] = {}
    for factor, axes in assignment.items():
        if axes and not rule.may_split(factor):
            return f"factor `{factor}` must be whole, and {_words(axes)} splits it"
        for a in axes:
            # Each die would compute only the blocks on the diagonal.
            if splits.setdefault(a, factor) != factor:
                return f"axis `{a}` splits factors `{splits[a]}` and `{factor}`"
    return None


def _passing(op: Op, operands: tuple[Layout, ...]) -> tuple[frozenset[str], list[str]]:
    """The axes over which partial sums pass through the op, and operands that it would misread."""
    passing: set[str] = set()
    problems = []
    for value, layout in zip(op.operands, operands, strict=True):
        for axis, kind in layout.partial:
            everywhere = all(o.reduction_of(axis) is Reduction.SUM for o in operands)
            if op.definition.moments is not None:
                problems.append(f"an update reads `%{value.name}`, which is partial over `{axis}`")
            elif kind is not Reduction.SUM or not op.definition.linear:
                problems.append(f"`%{value.name}` is partial ({kind}) over `{axis}`, and is read as complete")
            elif not everywhere:
                problems.append(f"`%{value.name}` is partial over `{axis}`, and another operand is not")
            passing.add(axis)
    return frozenset(passing), problems


def _check_results(
    place: Place, op: Op, results: tuple[Layout, ...], assignment: Assignment, passing: frozenset[str]
) -> Findings:
    for value, layout, term in zip(op.results, results, op.rule.outs, strict=True):
        due = dict.fromkeys(passing, Reduction.SUM)
        why = dict.fromkeys(passing, "its operands are")
        for factor, axes in assignment.items():
            if factor not in term:
                due |= dict.fromkeys(axes, op.definition.combine)
                why |= dict.fromkeys(axes, f"it lacks factor `{factor}`, which the axis splits")
        pending = dict(layout.partial)
        # Zero is a part of any sum of zeros.
        if op.kind == "fill" and op.attr("value") == 0.0:
            due |= {a: kind for a, kind in pending.items() if kind is Reduction.SUM}
        for axis in sorted(due.keys() | pending.keys()):
            if axis not in pending:
                yield place.wrong(
                    f"`%{value.name}` is partial over `{axis}` ({why[axis]}), and its type does not say so"
                )
            elif axis not in due:
                yield place.wrong(
                    f"`%{value.name}` is partial over `{axis}` by its type, and nothing makes it so"
                )
            elif due[axis] is not pending[axis]:
                yield place.wrong(
                    f"`%{value.name}` is partial ({due[axis]}) over `{axis}`, not ({pending[axis]})"
                )


# --------------------------------------------------------------------------------------------------- streams


def _check_stream(op: Op, sizes: dict[str, int]) -> str | None:
    s, rule = op.stream, op.rule
    if s is None:
        return None
    if s.axis not in sizes:
        return f"the module has no axis `{s.axis}` to stream over"
    if s.factor not in rule.factors:
        return f"it streams over factor `{s.factor}`, which it does not have"
    if s.factor in rule.whole and s.factor not in rule.streamed:
        return f"factor `{s.factor}` is whole and cannot be streamed"
    if op.definition.combine is not Reduction.SUM:
        return "its chunks do not add up, so it cannot be streamed"
    if not s.moving_in and not s.moving_out:
        return "nothing moves in its stream"
    return _wrong_moves(op)


def _wrong_moves(op: Op) -> str | None:
    assert op.stream is not None
    factor, axis = op.stream.factor, op.stream.axis
    for numbers, values, terms, word in (
        (op.stream.moving_in, op.operands, op.rule.ins, "operand"),
        (op.stream.moving_out, op.results, op.rule.outs, "result"),
    ):
        if list(numbers) != sorted(set(numbers)) or not all(0 <= i < len(values) for i in numbers):
            return f"the numbers of moving {word}s are not those of {word}s, in order"
        for i in numbers:
            name, layout = values[i].name, values[i].type.layout
            assert layout is not None
            if factor not in terms[i]:
                return f"`%{name}` moves and does not have the streamed factor `{factor}`"
            if layout.dims[terms[i].index(factor)][-1:] != (axis,):
                return f"`%{name}` moves, and the minor axis of its `{factor}` is not `{axis}`"
    return None


def _seen_by_kernel(op: Op) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    """Layouts of operands and results in the kernel: moving operands gathered, moving results not yet scattered."""
    operands = [v.type.layout or Layout(()) for v in op.operands]
    results = [v.type.layout or Layout(()) for v in op.results]
    if op.stream is None:
        return tuple(operands), tuple(results)
    axis, factor = op.stream.axis, op.stream.factor
    for i in op.stream.moving_in:
        operands[i] = _opened(operands[i], op.rule.ins[i].index(factor))
    for j in op.stream.moving_out:
        whole = _opened(results[j], op.rule.outs[j].index(factor))
        results[j] = whole.with_partial({**dict(whole.partial), axis: Reduction.SUM})
    return tuple(operands), tuple(results)


def _opened(layout: Layout, dim: int) -> Layout:
    dims = tuple(axes[:-1] if d == dim else axes for d, axes in enumerate(layout.dims))
    return Layout(dims, layout.partial)
