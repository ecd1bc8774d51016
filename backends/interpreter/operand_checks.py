"""A check of one instruction by itself: attributes, element types and views are as its declaration says, and it does no
more work than the elements that its operands have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from wscc.ir.streams.instruction_def import InstructionDef
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Column, Instruction, Operand
from wscc.ir.types import DType

FLAGS: Final = frozenset({"accumulate", "causal", "renormalise"})
WHOLE: Final = frozenset(
    {
        "channel", "peer", "route", "start", "q_start", "k_start", "e_start", "c_start", "capacity", "k", "limit",
        "time", "width", "interleaved", "salt", "window", "heads", "group", "h_start", "g_start",
    }
)  # fmt: skip
TEXTS: Final = frozenset({"axes", "side", "strides"})
# Of whole numbers and addresses: sums of a few fit 64 bits, and doubles are exact.
MOST: Final = 1 << 53
_MOST_DIMS: Final = 24
_FREE: Final = 4096  # elements that any instruction may touch


def mistakes_of(x: Instruction) -> Iterator[str]:
    """The texts of the errors of an instruction; the later ones rely on those before."""
    row = INSTRUCTIONS.get(x.opcode)
    if row is None:
        yield f"unknown opcode `{x.opcode}`"
        return
    writes, reads = len(row.writes.split()), len(row.reads.split())
    if (len(x.writes), len(x.reads)) != (writes, reads):
        yield f"`{row.opcode}` writes {writes} and reads {reads} operands, no others"
        return
    if not row.takes(tuple(k for k, _ in x.attrs)):
        yield f"`{row.opcode}` has the attributes ({row.attrs}), in this order"
        return
    yield from wrong_attributes(x)
    yield from _types(x, row)
    yield from _views(x)


def wrong_attributes(x: Instruction) -> Iterator[str]:
    """The texts of the errors in the values of attributes."""
    for name, value in x.attrs:
        if name in FLAGS:
            fits = isinstance(value, bool)
        elif name in TEXTS:
            fits = isinstance(value, str)
        elif isinstance(value, Column):
            fits = name != "channel"
        else:
            number = isinstance(value, int if name in WHOLE else int | float) and not isinstance(value, bool)
            fits = number and (isinstance(value, float) or abs(value) <= MOST)  # type: ignore[arg-type]
        if not fits:
            yield f"`{x.opcode}` has {name}={value!r}" + (
                ": a channel is a number, the same on all dies" if name == "channel" else ""
            )
        elif name == "rate" and not (isinstance(value, float) and 0 <= value < 1):
            yield f"`{x.opcode}` has rate={value}, no share below 1"
        elif name in ("capacity", "k", "heads", "group", "cap") and value == 0:
            yield f"`{x.opcode}` has {name}=0"
        elif (
            name in ("channel", "limit", "capacity", "k", "window", "heads", "group")
            and isinstance(value, int)
            and value < 0
        ):
            yield f"`{x.opcode}` has {name}={value}, which is negative"


def _types(x: Instruction, row: InstructionDef) -> Iterator[str]:
    for name, o in zip(row.names, (*x.writes, *x.reads), strict=True):
        if not row.any_type and (name in row.integers) != (o.dtype is DType.I32):
            yield f"`{name}` of `{x.opcode}` is {o.dtype}"
    if x.opcode == "copy" and x.writes[0].dtype != x.reads[0].dtype:
        yield f"`copy` from {x.reads[0].dtype} to {x.writes[0].dtype}"


def _views(x: Instruction) -> Iterator[str]:
    operands = (*x.writes, *x.reads)
    if any(len(o.shape) > _MOST_DIMS or any(abs(n) > MOST for n in (*o.shape, *o.strides)) for o in operands):
        yield f"`{x.opcode}` has an operand of more than {_MOST_DIMS} dimensions, or of one beyond {MOST:,}"
        return
    if x.opcode == "sum" and x.writes[0].shape != _summed(x.reads[0].shape, str(x.attr("axes"))):
        yield f"`sum` of {list(x.reads[0].shape)} over `{x.attr('axes')}` is not {list(x.writes[0].shape)}"
    if x.opcode == "dropout" and not _are_strides(x):
        yield f"`dropout` of {list(x.reads[0].shape)} has the strides `{x.attr('strides')}`"
    if x.opcode == "rope" and (wrong := _unturnable(x)):
        yield wrong
    if x.opcode == "route" and x.writes[0].shape[-1:] > x.reads[0].shape[-1:]:
        yield f"`route` chooses {x.writes[0].shape[-1]} of {x.reads[0].shape[-1]} experts"
    distinct = [_distinct(o) for o in operands]
    for o, count in zip(operands, distinct, strict=True):
        if count * o.dtype.size > _span(o):
            yield f"`{x.opcode}` has an operand {list(o.shape)} of {count:,} elements in {_span(o):,} bytes"
    # Elements that a view repeats are work without memory: as many as another operand has, but no more.
    most = max((prod(o.shape) for o in operands), default=0)
    if x.opcode not in ("gemm", "send") and most > max([*distinct, _FREE]):
        yield f"`{x.opcode}` repeats its operands to {most:,} elements, of {max(distinct):,} that they have"
    if x.opcode == "gemm" and distinct[0] < prod(x.writes[0].shape):
        yield "`gemm` writes elements that repeat"


def _are_strides(x: Instruction) -> bool:
    """Whether the strides of places are a number for each dimension but the first."""
    text = str(x.attr("strides"))
    parts = text.split(",") if text else []
    return len(parts) == len(x.reads[0].shape) - 1 and all(
        n.isascii() and n.isdigit() and len(n) < 16 for n in parts
    )


def _unturnable(x: Instruction) -> str:
    """What is wrong with the width of a `rope`, in words; the empty text if nothing is."""
    size, width = x.reads[0].shape[-1], dict(x.attrs).get("width", 2)
    if isinstance(width, int) and 0 < width <= size and width % 2 == 0:
        return ""
    return f"`rope` turns {width} elements of {size}"


def _distinct(o: Operand) -> int:
    """The elements of a view, those that stride 0 repeats once."""
    return prod(n for n, s in zip(o.shape, o.strides, strict=True) if s)


def _span(o: Operand) -> int:
    """The bytes from the first to the last of a view."""
    if 0 in o.shape:
        return 0
    return (1 + sum((n - 1) * abs(s) for n, s in zip(o.shape, o.strides, strict=True))) * o.dtype.size


def _summed(shape: Sequence[int], axes: str) -> tuple[int, ...] | None:
    """The shape of a sum over `axes`, such as "0,2"; None if they are no axes of it."""
    numbers = {int(a) for a in axes.split(",") if a.isascii() and a.isdigit() and len(a) < 3}
    if len(numbers) != len(axes.split(",")) or any(a >= len(shape) for a in numbers):
        return None
    return tuple(n for d, n in enumerate(shape) if d not in numbers)
