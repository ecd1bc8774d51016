"""Which bytes of its own memory a procedure holds something in, instruction by instruction."""

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
# From when on, until when (both included), and which bytes.
Life = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Locals:
    """The most bytes that are live at one instruction of a procedure, and whose results they are."""

    peak: int
    by_origin: tuple[tuple[Origin, int], ...]


def locals_of(builder: Builder, die: int, procedure: str, origins: Sequence[Origin]) -> Locals:
    """Of one die. A byte is live from a write to its last read before the next; a slot from its `post`, and
    what is sent until its `wait`."""
    touches = list(_touches(builder, die, procedure))
    edges = np.unique(np.array([e for _, lo, hi, _ in touches for e in (lo, hi)], np.int64))
    if len(edges) < 2:
        return Locals(0, ())
    lives = _lives(touches, edges)
    end = 1 + max(i for i, *_ in touches)
    change = np.zeros(end + 1, np.int64)
    np.add.at(change, lives[:, 0], lives[:, 2])
    np.add.at(change, lives[:, 1] + 1, -lives[:, 2])
    live = np.cumsum(change)
    at = int(live.argmax())
    found: dict[Origin, int] = {}
    for first, last, size in lives.tolist():
        if first <= at <= last:
            found[origins[first]] = found.get(origins[first], 0) + size
    return Locals(int(live[at]), tuple(sorted(found.items(), key=lambda f: (-f[1], f[0].op))))


def _lives(touches: Sequence[tuple[int, int, int, bool]], edges: Ints) -> Ints:
    """(first, last, bytes) of everything that is held, piece by piece between edges."""
    sizes = np.diff(edges)
    first, last = np.full(len(sizes), -1, np.int64), np.zeros(len(sizes), np.int64)
    closed: list[Ints] = []

    def close(where: slice, before: int) -> None:
        """What is overwritten by an instruction that reads it makes room for the result in that instruction."""
        ends = np.minimum(last[where], before - 1)
        held = np.flatnonzero((first[where] >= 0) & (ends >= first[where]))
        closed.append(np.stack([first[where][held], ends[held], sizes[where][held]], axis=1))

    for i, low, high, fresh in touches:
        where = slice(int(np.searchsorted(edges, low)), int(np.searchsorted(edges, high)))
        if fresh:
            close(where, i)
            first[where] = i
        last[where] = i
        first[where] = np.where(first[where] < 0, i, first[where])
    close(slice(0, len(sizes)), 1 + max(i for i, *_ in touches))
    return np.concatenate(closed)


def _touches(builder: Builder, die: int, procedure: str) -> Iterator[tuple[int, int, int, bool]]:
    """(instruction, first byte, last byte (exclusive), whether what was there is of no more use) of each operand in
    the procedure's own memory; what an instruction reads comes first."""
    messages: dict[tuple[object, bool], tuple[int, int]] = {}
    for i, x in enumerate(builder.code(die, procedure).body):
        if x.opcode == "wait":
            key = x.attr("channel"), x.attr("side") == "sent"
            if key in messages:
                yield i, *messages[key], False
            continue
        reaches = builder.work(x).reaches
        writes, reads = reaches[: len(x.writes)], reaches[len(x.writes) :]
        for r in _own(reads):
            yield i, *_span(builder, die, r), False
        for r in _own(writes):
            yield i, *_span(builder, die, r), not adds(x)
        if x.opcode in ("post", "send") and reaches[0].arg < 0:
            messages[x.attr("channel"), x.opcode == "send"] = _span(builder, die, reaches[0])


def adds(x: Instruction) -> bool:
    """Whether an instruction adds to what it writes."""
    return any(k == "accumulate" and v for k, v in x.attrs)


def _own(reaches: Sequence[Reach]) -> Iterator[Reach]:
    return (r for r in reaches if r.arg < 0 and r.high > r.low)


def _span(builder: Builder, die: int, r: Reach) -> tuple[int, int]:
    at = builder.integer(die, r.offset)
    return at + r.low, at + r.high
