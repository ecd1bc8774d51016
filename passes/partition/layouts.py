"""What a split of factors does to the operands and results of an op."""

from __future__ import annotations

from wscc.ir.op import Op
from wscc.ir.types import Layout, Reduction

# By factor, the axes that split it, major first; under PARTIAL, the axes over which a linear op passes parts.
Assignment = dict[str, tuple[str, ...]]
PARTIAL = "+"


def operand_layouts(op: Op, assignment: Assignment) -> list[Layout]:
    """The layout in which the op must find each operand."""
    passing = {a: Reduction.SUM for a in assignment.get(PARTIAL, ())}
    return [
        Layout(tuple(assignment.get(f, ()) for f in term)).with_partial(passing)
        for _, term in zip(op.operands, op.rule.ins, strict=False)
    ]


def result_layouts(op: Op, assignment: Assignment) -> list[Layout]:
    """The layout that the op gives each result: partial over axes that split a factor it lacks."""
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
    """A forward op's assignment, for an op that shares its factor names."""
    own = set(op.rule.factors)
    return {f: axes for f, axes in assignment.items() if f in own}


def following(op: Op, layouts: list[Layout]) -> Assignment:
    """The assignment that takes operands as they come: each factor is split as in the first operand that
    has it split; conflicting axes are dropped, whole factors stay whole."""
    chosen: Assignment = {}
    taken: set[str] = set()
    for layout, term in zip(layouts, op.rule.ins, strict=False):
        for axes, factor in zip(layout.dims, term, strict=True):
            free = tuple(a for a in axes if a not in taken)
            if free == axes and axes and factor not in chosen and op.rule.may_split(factor):
                chosen[factor] = axes
                taken |= set(axes)
    return chosen


def passed(op: Op, layouts: list[Layout], taken: set[str]) -> tuple[str, ...]:
    """Axes over which all operands of a linear op are partial sums, so that the result may be one too."""
    if not op.definition.linear or not layouts:
        return ()
    common = set.intersection(*({a for a, kind in lay.partial if kind is Reduction.SUM} for lay in layouts))
    return tuple(sorted(common - taken))


def can_shard(left: list[int], degrees: list[int]) -> bool:
    """Whether each degree finds a dimension that it divides, beside those before it."""
    if not degrees:
        return True
    return any(
        n % degrees[0] == 0 and can_shard([*left[:i], n // degrees[0], *left[i + 1 :]], degrees[1:])
        for i, n in enumerate(left)
    )
