"""Checks of layouts by themselves: axes of the module, each in one place, even splits; orders of positions."""

from __future__ import annotations

from math import prod

from wscc.ir.array import Array
from wscc.ir.types import TensorType
from wscc.ir.verify.finding import Findings, Place


def check_layout(place: Place, kind: TensorType, sizes: dict[str, int]) -> Findings:
    """The mistakes in the layout of a type at the sharded level or below; `sizes` are the degrees of axes."""
    layout = kind.layout
    if layout is None:
        yield place.wrong("a type has a layout from the sharded level on")
        return
    if len(layout.dims) != len(kind.shape):
        yield place.wrong(f"it has {len(kind.shape)} dimensions and a layout of {len(layout.dims)}")
        return
    used = [*layout.axes, *(a for a, _ in layout.partial)]
    if unknown := [a for a in used if a not in sizes]:
        yield place.wrong(f"the module has no axis `{unknown[0]}`")
        return
    for axis in dict.fromkeys(a for a in used if used.count(a) > 1):
        yield place.wrong(f"axis `{axis}` occurs twice in its layout")
    if list(layout.partial) != sorted(layout.partial):
        yield place.wrong("its partial axes are not in order")
    for d, (n, axes) in enumerate(zip(kind.shape, layout.dims, strict=True)):
        parts = prod(sizes[a] for a in axes)
        if n % parts:
            yield place.wrong(f"dimension {d} of {n} does not divide into {parts} parts ({', '.join(axes)})")


def check_orders(place: Place, array: Array, sizes: dict[str, int]) -> Findings:
    """The mistakes in what an array with a right layout says of the order of its positions."""
    dims = array.type.layout.dims if array.type.layout else ((),) * len(array.type.shape)
    if sorted({*array.zigzag} & {*range(len(dims))}) != list(array.zigzag):
        yield place.wrong(
            f"`zigzag` has dimensions {list(array.zigzag)} of {len(dims)}, not some of them in order"
        )
        return
    for d in array.zigzag:
        if not dims[d]:
            yield place.wrong(f"dimension {d} lies in zigzag, and no axis splits it")
        elif array.type.shape[d] % (2 * sizes[dims[d][0]]):
            words = f"dimension {d} of {array.type.shape[d]} lies in zigzag along `{dims[d][0]}`"
            yield place.wrong(f"{words}, and does not divide into {2 * sizes[dims[d][0]]} pieces")
