"""The operands of a procedure at their addresses on one die, and which of them have bytes in common.

A set of operands is an integer with a bit for each. What the caller has written before are operands too, behind those
of the procedure: all that is accessed in a space, or of an argument that lies among the locals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.body import Body
from wscc.backends.verify.views import Ints, Runs, meets, relation, union, view_runs, within

LOCAL: Final = -1

# (space of the argument, bytes to add to its offsets): arguments that share memory share a space.
Sharing = tuple[tuple[int, int], ...]
# Whether two operands share a byte, the first is within the second, and the second within the first.
Relation = tuple[bool, bool, bool]

Bools = NDArray[np.bool_]


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(members: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


def numbers_of(mask: int, count: int) -> Ints:
    """The numbers in a set of less than `count`."""
    packed = np.frombuffer(mask.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


@dataclass(slots=True)
class _Row:
    """Of one operand, the others that share a byte with it, those that contain it and those within it; the
    `rest` with which it was not compared yet, and those of which this is `unsure` without a look at their bytes."""

    touching: int
    inside: int
    around: int
    rest: int
    unsure: int = 0


class Places:
    """All spaces lie behind one another on one line of addresses, with gaps between them; locals are where they are.

    `given` are the operands that the caller has written, `handed` those among them that lie among the locals."""

    def __init__(self, body: Body, offsets: Ints, sharing: Sharing) -> None:
        self.body = body
        spaces = np.array([(s, start) for s, start in sharing] + [(LOCAL, 0)], np.int64)
        self.space: list[int] = spaces[body.argument, 0].tolist()
        origin = offsets + spaces[body.argument, 1]
        self.base = {LOCAL: 0}
        space, low, high = spaces[body.argument, 0], origin + body.low, origin + body.high
        some = high > low
        self._given: list[tuple[int, Runs]] = []
        end = int(high[some & (space == LOCAL)].max(initial=0))
        for s in np.unique(space[some & (space >= 0)]).tolist():
            mine = some & (space == s)
            first, last = int(low[mine].min()), int(high[mine].max())
            self.base[s] = end + 1 - first
            self._given.append((s, (np.array([end + 1]), np.array([end + 1 + last - first]))))
            end += 1 + last - first
            origin = origin + np.where(space == s, self.base[s], 0)
        self._origin: list[int] = origin.tolist()
        self._place_given(origin, sharing)
        self._rows: list[_Row | None] = [None] * len(self.low)

    def _place_given(self, origin: Ints, sharing: Sharing) -> None:
        body, count = self.body, len(self.body.operands)
        self.handed = 0
        for arg, (s, _) in enumerate(sharing):
            own = [v for v in np.flatnonzero(body.argument == arg).tolist() if s == LOCAL]
            if own and len((runs := union(map(self.runs, own)))[0]):
                self.handed |= 1 << count + len(self._given)
                self._given.append((LOCAL, runs))
        self.given = (1 << count + len(self._given)) - (1 << count)
        ends = [(int(starts[0]), int(ends[-1]), int(len(starts) == 1)) for _, (starts, ends) in self._given]
        low, high, single = np.array(ends, np.int64).reshape(-1, 3).T
        self.low = np.concatenate([origin + body.low, low])
        self.high = np.concatenate([origin + body.high, high])
        self.count = np.concatenate([body.count, single])
        self.stride = np.concatenate([body.stride, np.ones_like(single)])
        self.width = np.concatenate([body.width, high - low])
        self.space += [s for s, _ in self._given]
        self._empty: list[bool] = (self.low == self.high).tolist()

    def is_empty(self, v: int) -> bool:
        return self._empty[v]

    def runs(self, v: int) -> Runs:
        """The bytes of an operand, on the one line of addresses."""
        if v >= len(self._origin):
            return self._given[v - len(self._origin)][1]
        starts, ends = view_runs(*self.body.forms[v])
        return starts + self._origin[v], ends + self._origin[v]

    def address(self, v: int, at: int) -> int:
        """The address in the space of operand v."""
        return at - self.base[self.space[v]]

    def relation(self, v: int, u: int) -> Relation:
        """How the bytes of two operands lie."""
        if not self.touching(v, 1 << u):
            return False, False, False
        return True, bool(self.inside(v) >> u & 1), bool(self.around(v) >> u & 1)

    def touching(self, v: int, among: int) -> int:
        """Those `among` a set that share a byte with v."""
        row = self._rows[v] or self._row(v)
        if row.rest & among:
            self._compare(v, row)
        if unsure := row.unsure & among:
            self._compare_bytes(v, row, unsure)
        return row.touching & among

    def inside(self, v: int) -> int:
        """The operands that contain v, of those that `touching` was asked for before."""
        return (self._rows[v] or self._row(v)).inside

    def around(self, v: int) -> int:
        """The operands within v, of those that `touching` was asked for before."""
        return (self._rows[v] or self._row(v)).around

    def _row(self, v: int) -> _Row:
        """How all others lie to v, those aside of which this takes more than to compare ends."""
        low, high = self.low[v], self.high[v]
        between = (self.low < high) & (self.high > low) & (self.low < self.high)
        known = between & (self.count == 1) if self.count[v] == 1 else np.zeros_like(between)
        known[v] = between[v] = not self._empty[v]
        inside, around = (
            known & (self.low <= low) & (self.high >= high),
            known & (self.low >= low) & (self.high <= high),
        )
        row = self._rows[v] = _Row(*map(mask_of, (known, inside, around, between & ~known)))
        return row

    def _compare(self, v: int, row: _Row) -> None:
        """Compare v with the rest."""
        rest = numbers_of(row.rest, len(self.low))
        touching, inside, known = self.compared(v, rest)
        _, around, _ = self.compared(rest, v)
        members = np.zeros((4, len(self.low)), np.bool_)
        members[:, rest] = touching & known, inside & touching & known, around & touching & known, ~known
        found = [mask_of(m) for m in members]
        row.touching |= found[0]
        row.inside |= found[1]
        row.around |= found[2]
        row.unsure, row.rest = found[3], 0

    def _compare_bytes(self, v: int, row: _Row, unsure: int) -> None:
        """Compare v with those that it was not to be compared with otherwise."""
        for u in bits(unsure):
            touches, is_inside, is_around = self._exact(v, u)
            row.touching |= touches << u
            row.inside |= is_inside << u
            row.around |= is_around << u
        row.unsure &= ~unsure

    def _exact(self, v: int, u: int) -> Relation:
        if max(u, v) < len(self._origin):
            forms = self.body.forms
            return relation(forms[v], forms[u], self._origin[u] - self._origin[v])
        x, y = self.runs(v), self.runs(u)
        return meets(x, y), within(x, y), within(y, x)

    def compared(self, v: Ints | int, u: Ints | int) -> tuple[Bools, Bools, Bools]:
        """Whether operands v and u share a byte, and v is within u, where the third says that both are known: of runs
        of one stride, or without gaps. Run k of v is compared with run k - m of u, for all m at once."""
        count, width = self.count, self.width
        distance = self.low[u] - self.low[v]
        stride = np.where(count[v] > 1, self.stride[v], self.stride[u])
        first = np.maximum((distance - width[v]) // stride + 1, 1 - count[u])
        last = np.minimum(-(-(distance + width[u]) // stride) - 1, count[v] - 1)
        m = -(-distance // stride)
        around = (m <= 0) & (m >= count[v] - count[u]) & (m * stride <= distance + width[u] - width[v])
        whole = (self.low[u] <= self.low[v]) & (self.high[u] >= self.high[v])
        few = np.minimum(count[v], count[u])
        known = (few == 1) & (np.maximum(count[v], count[u]) > 0) | (few > 1) & (
            self.stride[v] == self.stride[u]
        )
        return first <= last, np.where(count[u] == 1, whole, around), known

    def covers(self, cover: int, v: int) -> bool:
        """True if every byte of v is in one of the set."""
        return within(self.runs(v), union(map(self.runs, bits(cover))))
