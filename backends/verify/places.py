"""The operands of a procedure at their addresses on one die, and which of them have bytes in common.

A set of operands is an integer with a bit for each. What the caller has written before are operands too, behind those
of the procedure: all that is accessed in a space, or of an argument that lies among the locals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.body import Body
from wscc.backends.verify.views import Ints, Runs, joined, meets, relation, union, view_runs, within

LOCAL: Final = -1
# Pairs of operands that are compared at once.
_BLOCK: Final = 1 << 18

# (space of the argument, bytes to add to its offsets): arguments that share memory share a space.
Sharing = tuple[tuple[int, int], ...]
# Whether two operands share a byte, the first is within the second, and the second within the first.
Relation = tuple[bool, bool, bool]

Bools = NDArray[np.bool_]


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, in descending order: the highest is found without a copy of the set."""
    while mask:
        n = mask.bit_length() - 1
        yield n
        mask ^= 1 << n


def mask_of(members: Bools) -> int:
    return next(masks_of(members[None]))


def masks_of(rows: Bools) -> Iterator[int]:
    """The set of each row."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    return (int.from_bytes(row.tobytes(), "little") for row in packed)


@dataclass(slots=True)
class _Row:
    """Of one operand, the others that share a byte with it, those that contain it and those within it; of the `unsure`
    this takes a look at their bytes."""

    touching: int
    inside: int
    around: int
    unsure: int


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
        if row.unsure and (unsure := row.unsure & among):
            self._compare_bytes(v, row, unsure)
        return row.touching & among

    def inside(self, v: int) -> int:
        """The operands that contain v, of those that `touching` was asked for before."""
        return (self._rows[v] or self._row(v)).inside

    def around(self, v: int) -> int:
        """The operands within v, of those that `touching` was asked for before."""
        return (self._rows[v] or self._row(v)).around

    def _row(self, v: int) -> _Row:
        self.prepare([v])
        row = self._rows[v]
        assert row is not None
        return row

    def prepare(self, asked: Iterable[int]) -> None:
        """Find how all others lie to these operands, which takes far longer one by one. Those of the same bytes have
        one row."""
        numbers = np.array([v for v in asked if self._rows[v] is None], np.int64)
        ends = (self.low, self.high, self.count, self.stride, self.width)
        alike: dict[tuple[int, ...], list[int]] = {}
        for v, *key in zip(numbers.tolist(), *(x[numbers].tolist() for x in ends), strict=True):
            alike.setdefault((*key, -1 if key[2] else v), []).append(v)
        groups, size = list(alike.values()), 1 + _BLOCK // (1 + len(self.low))
        for n in range(0, len(groups), size):
            block = groups[n : n + size]
            for group, row in zip(block, self._compare(np.array([g[0] for g in block])), strict=True):
                for v in group:
                    self._rows[v] = row

    def _compare(self, v: Ints) -> Iterator[_Row]:
        """The rows of operands."""
        low, high, single = self.low, self.high, self.count == 1
        first, last = low[v, None], high[v, None]
        near = (low < last) & (first < high) & (low < high) & (first < last)
        # Of two without gaps the ends say all.
        touching = near & single & single[v, None]
        inside, around = (
            touching & (low <= first) & (last <= high),
            touching & (first <= low) & (high <= last),
        )
        n, u = np.nonzero(near & ~touching)
        found = self.compared(v[n], u)
        touching[n, u], inside[n, u], around[n, u] = found[:3]
        unsure = np.zeros_like(near)
        unsure[n, u] = ~found[3]
        return itertools.starmap(_Row, zip(*map(masks_of, (touching, inside, around, unsure)), strict=True))

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

    def compared(self, v: Ints, u: Ints) -> tuple[Bools, Bools, Bools, Bools]:
        """Whether operands v and u share a byte, v is within u, and u within v, where the last says that this is known:
        of runs of one stride, or without gaps."""
        a, b = self.stride[v], self.stride[u]
        regular = self.count > 0
        known = ((a == b) | (a == 1) | (b == 1)) & regular[v] & regular[u]  # 1: without gaps
        stride = np.maximum(a, b)
        after = (self.low[u] - self.low[v]) % stride
        touching = known & ((after < self.width[v]) | (stride - after < self.width[u]))
        found = np.zeros((3, len(v)), np.bool_)
        found[:, touching] = self._compared_runs(v[touching], u[touching], stride[touching])
        return found[0], found[1], found[2], known

    def _compared_runs(self, v: Ints, u: Ints, stride: Ints) -> tuple[Bools, Bools, Bools]:
        """Run k of v is compared with run k - m of u, for all m at once."""
        several, others, width, other = self.count[v], self.count[u], self.width[v], self.width[u]
        distance, beyond = self.low[u] - self.low[v], self.high[u] - self.high[v]
        first = np.maximum((distance - width) // stride + 1, 1 - others)
        last = np.minimum((distance + other - 1) // stride, several - 1)
        # Run 0 of u begins `after` run m of v does, and `before` its run `up`.
        m, after = np.divmod(distance, stride)
        before = (after > 0) * (stride - after)
        fewer, up = several - others, m + (after > 0)
        inside = (up <= 0) & (up >= fewer) & (before + width <= other)
        around = (m >= 0) & (m <= fewer) & (after + other <= width)
        inside = np.where(others == 1, (distance <= 0) & (beyond >= 0), inside)
        around = np.where(several == 1, (distance >= 0) & (beyond <= 0), around)
        touching = first <= last
        return touching, touching & inside, touching & around

    def union(self, operands: Iterable[int]) -> Runs:
        """The bytes that are in one of the operands. Of those with as many runs at one stride, the first runs are
        joined before they are repeated."""
        parts: list[Runs] = []
        alike: dict[tuple[int, int], list[int]] = {}
        for v in operands:
            if count := int(self.count[v]):
                alike.setdefault((count, int(self.stride[v])), []).append(v)
            else:
                parts.append(self.runs(v))
        for (count, stride), group in alike.items():
            low = self.low[group]
            starts, ends = joined(low, low + self.width[group])
            steps = np.arange(count)[:, None] * stride
            parts.append(((starts + steps).reshape(-1), (ends + steps).reshape(-1)))
        return union(parts)

    def covers(self, cover: int, v: int) -> bool:
        """True if every byte of v is in one of the set."""
        return within(self.runs(v), self.union(bits(cover)))
