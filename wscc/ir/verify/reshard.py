"""The check that the result of a reshard has the layout that its kind and fields make of its operand's.

An axis is added to a dimension, and taken from it, as the minor one.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from wscc.ir.op import Reshard
from wscc.ir.ops import RESHARDS
from wscc.ir.text.words import spell_type
from wscc.ir.types import Layout, Reduction
from wscc.ir.verify.finding import Findings, Place, listed

_OPTIONAL: Final = frozenset(name for own in RESHARDS.values() for name in own)


def check_reshard(place: Place, op: Reshard, sizes: dict[str, int]) -> Findings:
    """The mistakes of a reshard; the layouts of its operand and result are well-formed. `sizes`: degrees of axes."""
    if wrong := _wrong_fields(op, sizes):
        yield place.wrong(wrong)
        return
    x, y = op.operand, op.result
    if (x.type.shape, x.type.dtype) != (y.type.shape, y.type.dtype):
        yield place.wrong(
            f"{spell_type(x.type)} becomes {spell_type(y.type)}: a reshard changes only the layout"
        )
        return
    assert x.type.layout is not None
    after = _after(op, x.type.layout)
    if isinstance(after, str):
        yield place.wrong(after)
    elif after != y.type.layout:
        result = spell_type(x.type.with_layout(after))
        yield place.wrong(f"it makes {result} of `%{x.name}`, and `%{y.name}` is {spell_type(y.type)}")


def _wrong_fields(op: Reshard, sizes: dict[str, int]) -> str | None:
    declared = RESHARDS.get(op.kind)
    if declared is None:
        return f"there is no reshard `{op.kind}`"
    present = tuple(f.name for f in fields(op) if f.name in _OPTIONAL and getattr(op, f.name) != f.default)
    if set(present) - set(declared) or ("reduction" in declared and op.reduction is None):
        return f"it has {listed(present)}, and must have {listed(declared)}"
    if op.axis not in sizes:
        return f"the module has no axis `{op.axis}`"
    rank = len(op.operand.type.shape)
    for name, value in (("dim", op.dim), ("to", op.to)):
        if name in declared and not 0 <= value < rank:
            return f"`{name}` is {value}, and `%{op.operand.name}` has {rank} dimensions"
    if "source" in declared and not _are_stages(op.source, op.target, sizes[op.axis]):
        return f"{op.source} and {op.target} are not two stages along `{op.axis}`"
    return None


def _are_stages(source: int, target: int, count: int) -> bool:
    return source != target and 0 <= source < count and 0 <= target < count


def _after(op: Reshard, before: Layout) -> Layout | str:
    """The layout after the reshard, or the reason why there is none, in words."""
    axis, dim, partial = op.axis, op.dim, before.reduction_of(op.axis)
    match op.kind:
        case "permute" | "stage_sum" if axis in before.axes or partial:
            return f"`%{op.operand.name}` is laid out along `{axis}`, which cuts stages"
        case "permute" | "stage_sum":
            return before
        case "slice" | "mask" if axis in before.axes or partial:
            return f"`%{op.operand.name}` is not the same on all dies along `{axis}`"
        case "slice":
            return before.closed(dim, axis)
        case "mask":
            return before.with_partial({**dict(before.partial), axis: Reduction.SUM})
        case "all_gather" | "all_to_all" if before.dims[dim][-1:] != (axis,):
            return f"`{axis}` is not the minor axis of dimension {dim}"
        case "all_gather":
            return _opened(before, dim)
        case "all_to_all":
            return _opened(before, dim).closed(op.to, axis)
        case "reduce_scatter" if partial is not Reduction.SUM:
            return f"`%{op.operand.name}` is no partial sum over `{axis}`"
        case "reduce_scatter":
            return _without(before, axis).closed(dim, axis)
        case _:
            if partial is None or partial != op.reduction:
                return f"`%{op.operand.name}` is no partial {op.reduction} over `{axis}`"
            return _without(before, axis)


def _opened(layout: Layout, dim: int) -> Layout:
    return Layout(tuple(a[:-1] if d == dim else a for d, a in enumerate(layout.dims)), layout.partial)


def _without(layout: Layout, axis: str) -> Layout:
    return Layout(layout.dims, tuple((a, kind) for a, kind in layout.partial if a != axis))
