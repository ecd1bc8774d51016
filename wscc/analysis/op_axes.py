"""Axes of the mesh along which dies divide the work of an op."""

from __future__ import annotations

from wscc.ir.op import Op


def split_axes(op: Op, factor: str) -> tuple[str, ...]:
    """The axes that split a factor of an op, major first, in the operand or result that has most of them."""
    axes: tuple[str, ...] = ()
    for value, term in op.terms():
        if factor in term and value.type.layout is not None:
            splits = value.type.layout.dims[term.index(factor)]
            axes = splits if len(splits) > len(axes) else axes
    return axes


def working_axes(op: Op) -> set[str]:
    """Axes along which dies do different parts of an op: those that split a result, or leave it partial."""
    axes: set[str] = set()
    for value in op.results:
        if value.type.layout is not None:
            axes |= {*value.type.layout.axes, *(a for a, _ in value.type.layout.partial)}
    return axes
