"""Where the chunks of a collective lie on each die, and how many elements stand for their bytes.

A die's arena is [what the collective reads and leaves][chunks passing through][receive slots][messages being
put together]; the first part belongs to the host and is an argument of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from wscc.collectives.plan import COPY, Link, Plan, Request
from wscc.ir.streams.program import Operand
from wscc.ir.types import DType

ELEMENT: Final = DType.F64
# Elements that all dies together hold and receive, at most: seconds of work and some hundred megabytes.
_MOST: Final = 1 << 22


@dataclass(frozen=True)
class Scale:
    """One element for each byte or, where that is too much, fewer in proportion, and at least one a chunk.

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
        """Those of a part of `size` bytes."""
        return size if self.per_byte == 1.0 or not size else self.pieces + int(size * self.per_byte)

    def chunks(self, plan: Plan) -> list[int]:
        """By chunk."""
        count = [0] * len(plan.chunks)
        for part in _parts(plan).values():
            sizes = [plan.chunks[c].bytes for c in part]
            whole, done, before = sum(sizes), 0, 0
            extra = self.elements(whole) - len(part)
            for i, c in enumerate(part):
                done += sizes[i]
                upto = done * extra // whole
                count[c] = sizes[i] if self.per_byte == 1.0 else 1 + upto - before
                before = upto
        return count


def _parts(plan: Plan) -> dict[tuple[frozenset[int], frozenset[int]], list[int]]:
    """The chunks that have the same dies before and after, in order."""
    parts: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    for i, c in enumerate(plan.chunks):
        parts.setdefault((c.sources, c.targets), []).append(i)
    return parts


@dataclass
class Layout:
    """The memory of one die: `places[c]` is the address of chunk c (in elements), `kept` the elements that the
    host writes and reads, `size` those of the arena."""

    elements: Sequence[int]
    places: dict[int, int] = field(default_factory=dict)
    kept: int = 0
    size: int = 0
    slots: dict[Link, int] = field(default_factory=dict)
    packs: dict[Link, int] = field(default_factory=dict)

    def chunk(self, c: int) -> Operand:
        at = self.places[c]
        return self._operand(at, self.elements[c], 0 if at < self.kept else -1)

    def slot(self, link: Link, first: int, count: int) -> Operand:
        """Elements of the slot for messages over a link into this die."""
        return self._operand(self.slots[link] + first, count, -1)

    def pack(self, link: Link, first: int, count: int) -> Operand:
        """Elements of the buffer in which messages over a link out of this die are put together."""
        return self._operand(self.packs[link] + first, count, -1)

    def _operand(self, at: int, count: int, arg: int) -> Operand:
        return Operand(arg, at * ELEMENT.size, (count,), (1,), ELEMENT)


def layouts(request: Request, plan: Plan, elements: Sequence[int]) -> dict[int, Layout]:
    """By live die."""
    made = {d: Layout(elements) for d in request.dies}
    for c, chunk in enumerate(plan.chunks):
        for d in chunk.sources | chunk.targets:
            made[d].places[c] = made[d].size
            made[d].size += elements[c]
    for layout in made.values():
        layout.kept = layout.size
    largest: tuple[dict[Link, int], dict[Link, int]] = ({}, {})
    for m in plan.messages:
        link, layout = (m.src, m.dst), made[m.dst]
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
            layout = made[link[end]]
            (layout.slots if end else layout.packs)[link] = layout.size
            layout.size += size
    return made


def lands_in_place(op: str, chunks: int) -> bool:
    """Whether a message is received where its chunk lies, without a slot of its own."""
    return op == COPY and chunks == 1
