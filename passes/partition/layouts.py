"""Layouts of the operands and results of an op whose factors are split over axes."""

from __future__ import annotations

from wscc.ir.op import Op
from wscc.ir.types import Layout, Reduction

# By factor, the axes that split it, major first; under PARTIAL, the axes over which a linear op maps partial sums to
# partial sums.
Assignment = dict[str, tuple[str, ...]]
PARTIAL = "+"


def operand_layouts(op: Op, assignment: Assignment) -> list[Layout]:
    """The layout that the op requires of each operand."""
    passing = {a: Reduction.SUM for a in assignment.get(PARTIAL, ())}
    return [
        Layout(tuple(assignment.get(f, ()) for f in term)).with_partial(passing)
        for _, term in zip(op.operands, op.rule.ins, strict=False)
    ]


def result_layouts(op: Op, assignment: Assignment) -> list[Layout]:
    """The layout of each result: partial over the axes that split a factor which the result lacks."""
    passing = {a: Reduction.SUM for a in assignment.get(PARTIAL, ())}
    layouts = []
    for term in op.rule.outs:
        missing = {
            a: op.definition.combine
            for f, axes in assignment.items()
            if f not in term and f != PARTIAL
            for a in axes
        }
        layouts.append(
            Layout(tuple(assignment.get(f, ()) for f in term)).with_partial({**passing, **missing})
        )
    return layouts


def restricted(op: Op, assignment: Assignment) -> Assignment:
    """The part of a forward op's assignment that concerns factors of `op`, which has the same factor names."""
    factors = set(op.rule.factors)
    return {f: axes for f, axes in assignment.items() if f in factors}


def propagated(op: Op, layouts: list[Layout]) -> Assignment:
    """The assignment that follows from the layouts of the operands (sharding propagation).

    Each factor is split as in the first operand that has it split; conflicting axes are dropped, and factors that must
    be whole stay whole.
    """
    assignment: Assignment = {}
    assigned_axes: set[str] = set()
    for layout, term in zip(layouts, op.rule.ins, strict=False):
        for axes, factor in zip(layout.dims, term, strict=True):
            free_axes = tuple(a for a in axes if a not in assigned_axes)
            if free_axes == axes and axes and factor not in assignment and op.rule.may_split(factor):
                assignment[factor] = axes
                assigned_axes |= set(axes)
    return assignment


def passing_axes(op: Op, layouts: list[Layout], taken: set[str]) -> tuple[str, ...]:
    """The axes, except `taken`, over which all operands of a linear op are partial sums, so that its results may be."""
    if not op.definition.linear or not layouts:
        return ()
    partial_axes = set.intersection(
        *({a for a, kind in lay.partial if kind is Reduction.SUM} for lay in layouts)
    )
    return tuple(sorted(partial_axes - taken))


def can_shard(shape: list[int], degrees: list[int]) -> bool:
    """Whether each of `degrees` can divide a dimension of `shape`, beside the degrees before it."""
    if not degrees:
        return True
    return any(
        n % degrees[0] == 0 and can_shard([*shape[:i], n // degrees[0], *shape[i + 1 :]], degrees[1:])
        for i, n in enumerate(shape)
    )
