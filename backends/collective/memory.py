"""The memory layout of each die that executes a collective: addresses and sizes of the chunks, in elements.

A die's arena is [inputs and results][chunks that are forwarded][receive slots][buffers of merged messages]; the
first part belongs to the host and is an argument of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from wscc.collectives.plan import COPY, Link, Plan, Request
from wscc.ir.streams.program import Operand
from wscc.ir.types import DType

ELEMENT: Final = DType.F64
# Limit of the elements that all dies together hold and receive: seconds of work and some hundred megabytes.
_MOST: Final = 1 << 22


@dataclass(frozen=True)
class Scale:
    """Elements per byte: one or, where that is too much, fewer in proportion, and at least one a chunk.

    Parts of equal bytes have equal numbers of elements, however they are cut into chunks.
    """

    per_byte: float
    pieces: int

    @classmethod
    def of(cls, request: Request, plan: Plan) -> Scale:
        copies = [len(c.sources | c.targets) for c in plan.chunks]
        for m in plan.messages:
            for c in m.chunks:
                copies[c] += 1
        total = request.bytes + sum(c.bytes * n for c, n in zip(plan.chunks, copies, strict=True))
        pieces = max((len(of) for of in _parts(plan).values()), default=0)
        return cls(min(1.0, _MOST / max(total, 1)), pieces)

    def elements(self, size: int) -> int:
        """The number of elements of a part of `size` bytes."""
        return size if self.per_byte == 1.0 or not size else self.pieces + int(size * self.per_byte)

    def chunks(self, plan: Plan) -> list[int]:
        """The number of elements of each chunk."""
        count = [0] * len(plan.chunks)
        for part in _parts(plan).values():
            sizes = [plan.chunks[c].bytes for c in part]
            total, end_bytes, start = sum(sizes), 0, 0
            extra = self.elements(total) - len(part)
            for i, c in enumerate(part):
                end_bytes += sizes[i]
                end = end_bytes * extra // total
                count[c] = sizes[i] if self.per_byte == 1.0 else 1 + end - start
                start = end
        return count


def _parts(plan: Plan) -> dict[tuple[frozenset[int], frozenset[int]], list[int]]:
    """The chunks that have the same dies before and after, in order."""
    parts: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    for i, c in enumerate(plan.chunks):
        parts.setdefault((c.sources, c.targets), []).append(i)
    return parts


@dataclass
class Layout:
    """The memory of one die: `places[c]` is the address of chunk c (in elements), `host_size` the number of elements
    that the host writes and reads, `size` that of the arena."""

    elements: Sequence[int]
    places: dict[int, int] = field(default_factory=dict)
    host_size: int = 0
    size: int = 0
    slots: dict[Link, int] = field(default_factory=dict)
    packs: dict[Link, int] = field(default_factory=dict)

    def chunk(self, c: int) -> Operand:
        """The view of chunk c: of argument 0 in the host's part, else local."""
        start = self.places[c]
        return self._operand(start, self.elements[c], 0 if start < self.host_size else -1)

    def slot(self, link: Link, first: int, count: int) -> Operand:
        """The view of elements of the slot for messages over a link into this die."""
        return self._operand(self.slots[link] + first, count, -1)

    def pack(self, link: Link, first: int, count: int) -> Operand:
        """The view of elements of the buffer for merged messages over a link out of this die."""
        return self._operand(self.packs[link] + first, count, -1)

    def _operand(self, start: int, count: int, arg: int) -> Operand:
        return Operand(arg, start * ELEMENT.size, (count,), (1,), ELEMENT)


def layouts(request: Request, plan: Plan, elements: Sequence[int]) -> dict[int, Layout]:
    """The memory layout of each live die."""
    by_die = {d: Layout(elements) for d in request.dies}
    for c, chunk in enumerate(plan.chunks):
        for d in chunk.sources | chunk.targets:
            by_die[d].places[c] = by_die[d].size
            by_die[d].size += elements[c]
    for layout in by_die.values():
        layout.host_size = layout.size
    largest: tuple[dict[Link, int], dict[Link, int]] = ({}, {})
    for m in plan.messages:
        link, layout = (m.src, m.dst), by_die[m.dst]
        size = sum(elements[c] for c in m.chunks)
        for c in m.chunks:
            if c not in layout.places:
                layout.places[c] = layout.size
                layout.size += elements[c]
        if not lands_in_place(m.op, len(m.chunks)):
            largest[0][link] = max(size, largest[0].get(link, 0))
        if len(m.chunks) > 1:
            largest[1][link] = max(size, largest[1].get(link, 0))
    for of, end in zip(largest, (1, 0), strict=True):
        for link, size in of.items():
            layout = by_die[link[end]]
            (layout.slots if end else layout.packs)[link] = layout.size
            layout.size += size
    return by_die


def lands_in_place(op: str, chunks: int) -> bool:
    """True if a message is received at the address of its chunk, without a slot of its own."""
    return op == COPY and chunks == 1
