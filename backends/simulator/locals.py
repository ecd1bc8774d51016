"""Live ranges of the local memory of a procedure, and the most bytes that are live at one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.costs import Reach
from wscc.ir.streams.profile import Origin
from wscc.ir.streams.program import Instruction

Ints = NDArray[np.int64]
# (instruction, first byte, last byte (exclusive), is a write that ends the value of before)
Access = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class Locals:
    """The most bytes that are live at one instruction of a procedure, in total and by the origin of the values."""

    peak: int
    by_origin: tuple[tuple[Origin, int], ...]


def locals_of(builder: Builder, die: int, procedure: str, origins: Sequence[Origin]) -> Locals:
    """The peak of a procedure on one die; `origins` are those of its instructions. A byte is live from a write to its
    last read before the next write; a slot from its `post`, and the bytes of a message until its `wait`."""
    accesses = list(_accesses(builder, die, procedure))
    edges = np.unique(np.array([e for _, lo, hi, _ in accesses for e in (lo, hi)], np.int64))
    if len(edges) < 2:
        return Locals(0, ())
    ranges = _live_ranges(accesses, edges)
    end = 1 + max(i for i, *_ in accesses)
    change = np.zeros(end + 1, np.int64)
    np.add.at(change, ranges[:, 0], ranges[:, 2])
    np.add.at(change, ranges[:, 1] + 1, -ranges[:, 2])
    live = np.cumsum(change)
    peak = int(live.argmax())
    by_origin: dict[Origin, int] = {}
    for first, last, size in ranges.tolist():
        if first <= peak <= last:
            by_origin[origins[first]] = by_origin.get(origins[first], 0) + size
    return Locals(int(live[peak]), tuple(sorted(by_origin.items(), key=lambda f: (-f[1], f[0].op))))


def _live_ranges(accesses: Sequence[Access], edges: Ints) -> Ints:
    """Live ranges as rows (first instruction, last instruction, bytes), for each interval between two edges."""
    sizes = np.diff(edges)
    first, last = np.full(len(sizes), -1, np.int64), np.zeros(len(sizes), np.int64)
    closed: list[Ints] = []

    def close(intervals: slice, before: int) -> None:
        """End the live ranges before instruction `before`: if it reads a value that it overwrites, the value counts
        as dead in it, as the result takes its bytes."""
        ends = np.minimum(last[intervals], before - 1)
        live = np.flatnonzero((first[intervals] >= 0) & (ends >= first[intervals]))
        closed.append(np.stack([first[intervals][live], ends[live], sizes[intervals][live]], axis=1))

    for i, low, high, overwrites in accesses:
        intervals = slice(int(np.searchsorted(edges, low)), int(np.searchsorted(edges, high)))
        if overwrites:
            close(intervals, i)
            first[intervals] = i
        last[intervals] = i
        first[intervals] = np.where(first[intervals] < 0, i, first[intervals])
    close(slice(0, len(sizes)), 1 + max(i for i, *_ in accesses))
    return np.concatenate(closed)


def _accesses(builder: Builder, die: int, procedure: str) -> Iterator[Access]:
    """The accesses of the operands in the procedure's local memory; of an instruction, reads come first."""
    messages: dict[tuple[object, bool], tuple[int, int]] = {}
    for i, x in enumerate(builder.code(die, procedure).body):
        if x.opcode == "wait":
            key = x.attr("channel"), x.attr("side") == "sent"
            if key in messages:
                yield i, *messages[key], False
            continue
        reaches = builder.work(x).reaches
        writes, reads = reaches[: len(x.writes)], reaches[len(x.writes) :]
        for r in _local(reads):
            yield i, *_span(builder, die, r), False
        for r in _local(writes):
            yield i, *_span(builder, die, r), not adds(x)
        if x.opcode in ("post", "send") and reaches[0].arg < 0:
            messages[x.attr("channel"), x.opcode == "send"] = _span(builder, die, reaches[0])


def adds(x: Instruction) -> bool:
    """True if an instruction adds to the operand that it writes."""
    return any(k == "accumulate" and v for k, v in x.attrs)


def _local(reaches: Sequence[Reach]) -> Iterator[Reach]:
    return (r for r in reaches if r.arg < 0 and r.high > r.low)


def _span(builder: Builder, die: int, r: Reach) -> tuple[int, int]:
    offset = builder.integer(die, r.offset)
    return offset + r.low, offset + r.high
