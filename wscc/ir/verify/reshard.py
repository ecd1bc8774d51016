"""Whether a reshard changes the layout just as it claims. A dimension opens and closes at its minor end."""

from __future__ import annotations

from typing import Final

from wscc.ir.op import Op
from wscc.ir.text.words import spell_type
from wscc.ir.types import Layout, Reduction
from wscc.ir.verify.finding import Findings, Place

_ATTRS: Final[dict[str, dict[str, type]]] = {
    "slice": {"axis": str, "dim": int},
    "mask": {"axis": str},
    "all_gather": {"axis": str, "dim": int},
    "reduce_scatter": {"axis": str, "dim": int},
    "all_reduce": {"axis": str, "reduction": str},
    "all_to_all": {"axis": str, "dim": int, "to": int},
    "permute": {"axis": str, "source": int, "target": int},
    "stage_sum": {"axis": str},
}


def check_reshard(place: Place, op: Op, sizes: dict[str, int]) -> Findings:
    """One operand and one result whose layouts are well-formed."""
    if wrong := _wrong_attrs(op, sizes):
        yield place.wrong(wrong)
        return
    (x,), (y,) = op.operands, op.results
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
        made = spell_type(x.type.with_layout(after))
        yield place.wrong(f"it makes {made} of `%{x.name}`, and `%{y.name}` is {spell_type(y.type)}")


def _wrong_attrs(op: Op, sizes: dict[str, int]) -> str | None:
    wanted = _ATTRS[op.kind]
    if [(k, type(v)) for k, v in op.attrs] != list(wanted.items()):
        return f"its attributes are {', '.join(f'{k} ({t.__name__})' for k, t in wanted.items())}"
    if len(op.operands) != 1 or len(op.results) != 1:
        return "it takes one operand and gives one result"
    if op.attr("axis") not in sizes:
        return f"the module has no axis `{op.attr('axis')}`"
    rank = len(op.operands[0].type.shape)
    for name in ("dim", "to"):
        value = dict(op.attrs).get(name, 0)
        if name in wanted and not (isinstance(value, int) and 0 <= value < rank):
            return f"`{name}` is {value}, and `%{op.operands[0].name}` has {rank} dimensions"
    stages = [dict(op.attrs)[k] for k in ("source", "target") if k in wanted]
    if len(set(stages)) != len(stages) or not set(stages) <= set(range(sizes[str(op.attr("axis"))])):
        return f"{stages[0]} and {stages[1]} are not two stages along `{op.attr('axis')}`"
    return None


def _after(op: Op, before: Layout) -> Layout | str:
    """The layout after the reshard, or why there is none."""
    axis, attrs = str(op.attr("axis")), dict(op.attrs)
    dim, to = int(attrs.get("dim", 0)), int(attrs.get("to", 0))
    partial = before.reduction_of(axis)
    match op.kind:
        case "permute" | "stage_sum" if axis in before.axes or partial:
            return f"`%{op.operands[0].name}` is laid out along `{axis}`, which cuts stages"
        case "permute" | "stage_sum":
            return before
        case "slice" | "mask" if axis in before.axes or partial:
            return f"`%{op.operands[0].name}` is not the same on all dies along `{axis}`"
        case "slice":
            return before.closed(dim, axis)
        case "mask":
            return before.with_partial({**dict(before.partial), axis: Reduction.SUM})
        case "all_gather" | "all_to_all" if before.dims[dim][-1:] != (axis,):
            return f"`{axis}` is not the minor axis of dimension {dim}"
        case "all_gather":
            return _opened(before, dim)
        case "all_to_all":
            return _opened(before, dim).closed(to, axis)
        case "reduce_scatter" if partial is not Reduction.SUM:
            return f"`%{op.operands[0].name}` is no partial sum over `{axis}`"
        case "reduce_scatter":
            return _without(before, axis).closed(dim, axis)
        case _:
            if partial is None or partial != attrs["reduction"]:
                return f"`%{op.operands[0].name}` is no partial {attrs['reduction']} over `{axis}`"
            return _without(before, axis)


def _opened(layout: Layout, dim: int) -> Layout:
    return Layout(tuple(a[:-1] if d == dim else a for d, a in enumerate(layout.dims)), layout.partial)


def _without(layout: Layout, axis: str) -> Layout:
    return Layout(layout.dims, tuple((a, kind) for a, kind in layout.partial if a != axis))
