"""The operands of a procedure at their addresses on all dies, and which of them have bytes in common.

Dies have most operands in common, though they take them in other orders: how two lie is found once for all dies. A set
of operands is an integer with a bit for each. What the caller has written before are operands too, behind those of the
procedure: all that is accessed in a space, or of an argument that lies among the locals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.body import DTYPES, Body
from wscc.backends.verify.views import Form, Ints, Runs, joined, meets, relation, union, view_runs, within
from wscc.ir.streams.program import Operand

LOCAL: Final = -1
# Of `Places.readable`: no part of the caller's is read.
OWN: Final = -1
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
    this takes a look at their bytes. What is beyond `reach` does not."""

    touching: int
    inside: int
    around: int
    unsure: int
    reach: int = field(init=False)

    def __post_init__(self) -> None:
        self.reach = self.touching | self.unsure


class _Line:
    """A procedure on one die: the `space` of each operand and its `origin` on the line of addresses; `ends` has the
    first byte that is accessed of each space and what is behind the last."""

    def __init__(self, body: Body, offsets: Ints, spaces: Ints) -> None:
        self.body = body
        self.space: Ints = spaces[body.argument, 0]
        self.origin: Ints = offsets + spaces[body.argument, 1]
        low, high = self.origin + body.low, self.origin + body.high
        some = high > low
        self.ends: dict[int, tuple[int, int]] = {}
        for s in np.unique(self.space[some]).tolist():
            mine = some & (self.space == s)
            self.ends[s] = int(low[mine].min()), int(high[mine].max())

    def runs(self, v: int) -> Runs:
        starts, ends = view_runs(*self.body.forms[v])
        return starts + self.origin[v], ends + self.origin[v]


@dataclass(frozen=True, slots=True)
class Placed:
    """A procedure on one die: the number of each operand of its body in the `Places`; `given` are the operands that the
    caller has written, `handed` those among them that lie among the locals."""

    body: Body
    numbers: tuple[int, ...]
    given: int
    handed: int


class Places:
    """All spaces lie behind one another on one line of addresses, with gaps between them; locals are where they are.

    `placed` are the dies, `given` the operands that the caller of any of them has written, `bit` is the set of one
    operand, or none if it has no bytes. What is found of an operand among a set of others is kept for the scans of all
    dies: whether the set `covered` it, what the caller's part is of what it is `readable` from, the same if one that
    holds it is newer than others (`ranked`), what it has `overwritten`, and which operands of an instruction are
    `distinct`."""

    def __init__(self, bodies: Sequence[tuple[Body, Ints]], sharing: Sharing) -> None:
        spaces = np.array([(s, start) for s, start in sharing] + [(LOCAL, 0)], np.int64)
        self.base = {LOCAL: 0}
        lines = [_Line(body, offsets, spaces) for body, offsets in bodies]
        self._stack(lines)
        columns, numbers = self._intern(lines)
        self._given: list[tuple[int, Runs]] = []
        self.placed = self._place_given(lines, numbers, sharing)
        self._join(columns)
        self.rows: dict[int, _Row] = {}
        self._good: list[int] | None = None
        self.bit = [0 if empty else 1 << v for v, empty in enumerate(self._empty)]
        self.covered: dict[tuple[int, int], bool] = {}
        self.readable: list[dict[int, int]] = [{} for _ in self.low]
        self.ranked: list[dict[int, tuple[int, int, tuple[int, ...]]]] = [{} for _ in self.low]
        self.overwritten: list[dict[int, tuple[int, int]]] = [{} for _ in self.low]
        self.distinct: set[tuple[bool, int, tuple[int, ...]]] = set()

    def _stack(self, lines: Sequence[_Line]) -> None:
        """Give each space its base, behind all that a die accesses in those before."""
        spans: dict[int, tuple[int, int]] = {LOCAL: (0, 0)}
        for line in lines:
            for s, (low, high) in line.ends.items():
                first, last = spans.get(s, (low, high))
                spans[s] = min(low, first), max(high, last)
        end = spans.pop(LOCAL)[1]
        for s, (first, last) in sorted(spans.items()):
            self.base[s] = end + 1 - first
            end += 1 + last - first
        for line in lines:
            line.origin += np.array([self.base.get(s, 0) for s in line.space.tolist()], np.int64)

    def _intern(self, lines: Sequence[_Line]) -> tuple[list[Ints], list[tuple[int, ...]]]:
        """Number the operands; the columns of all, and the numbers of each die."""
        table: dict[tuple[int, int], int] = {}
        self.operands: list[Operand] = []
        self.forms: list[Form] = []
        self.space: list[int] = []
        rows, numbers = [], []
        for line in lines:
            body = line.body
            own, new = [], []
            for v, key in enumerate(zip(line.origin.tolist(), body.kind.tolist(), strict=True)):
                n = table.setdefault(key, len(table))
                own.append(n)
                if n == len(self.operands):
                    self.operands.append(body.operands[v])
                    self.forms.append(body.forms[v])
                    self.space.append(int(line.space[v]))
                    new.append(v)
            x = np.array(new, np.int64)
            rows.append(
                np.stack(
                    [c[x] for c in (line.origin, body.low, body.high, body.count, body.stride, body.width)]
                )
            )
            numbers.append(tuple(own))
        return list(np.concatenate(rows, axis=1)), numbers

    def _place_given(
        self, lines: Sequence[_Line], numbers: Sequence[tuple[int, ...]], sharing: Sharing
    ) -> tuple[Placed, ...]:
        """Number what the callers have written, behind the operands."""
        table: dict[tuple[int, bytes, bytes], int] = {}

        def number(space: int, runs: Runs) -> int:
            n = table.setdefault((space, runs[0].tobytes(), runs[1].tobytes()), len(table))
            if n == len(self._given):
                self._given.append((space, runs))
            return 1 << len(self.operands) + n

        placed = []
        for line, own in zip(lines, numbers, strict=True):
            given = handed = 0
            for s, (low, high) in line.ends.items():
                if s != LOCAL:
                    base = self.base[s]
                    given |= number(s, (np.array([base + low]), np.array([base + high])))
            for arg, (s, _) in enumerate(sharing):
                mine = np.flatnonzero(line.body.argument == arg).tolist() if s == LOCAL else []
                if mine and len((runs := union(map(line.runs, mine)))[0]):
                    handed |= number(LOCAL, runs)
            placed.append(Placed(line.body, own, given | handed, handed))
        self.given = sum(1 << len(self.operands) + n for n in range(len(self._given)))
        self.handed = any(p.handed for p in placed)
        return tuple(placed)

    def _join(self, columns: Sequence[Ints]) -> None:
        origin, low, high, count, stride, width = columns
        ends = [(int(starts[0]), int(ends[-1]), int(len(starts) == 1)) for _, (starts, ends) in self._given]
        first, last, single = np.array(ends, np.int64).reshape(-1, 3).T
        self._origin: list[int] = origin.tolist()
        self.low = np.concatenate([origin + low, first])
        self.high = np.concatenate([origin + high, last])
        self.count = np.concatenate([count, single])
        self.stride = np.concatenate([stride, np.ones_like(single)])
        self.width = np.concatenate([width, last - first])
        self.space += [s for s, _ in self._given]
        self._empty: list[bool] = (self.low == self.high).tolist()

    @property
    def good(self) -> list[int]:
        """By operand, those whose objects it may read: of its element type, and on its side of what is handed on."""
        if self._good is None:
            self._good = self._readable_objects()
        return self._good

    def _readable_objects(self) -> list[int]:
        dtypes = np.array([DTYPES.index(o.dtype) for o in self.operands], np.int64)
        of_type = {n: self.given | mask_of(dtypes == n) for n in np.unique(dtypes).tolist()}
        if not self.handed:
            return [of_type[n] for n in dtypes.tolist()]
        is_argument = [o.arg >= 0 for o in self.operands]
        arguments = self.given | mask_of(np.array(is_argument))
        sides = zip(dtypes.tolist(), is_argument, strict=True)
        return [of_type[n] & (arguments if argument else ~arguments) for n, argument in sides]

    def is_empty(self, v: int) -> bool:
        return self._empty[v]

    def runs(self, v: int) -> Runs:
        """The bytes of an operand, on the one line of addresses."""
        if v >= len(self._origin):
            return self._given[v - len(self._origin)][1]
        starts, ends = view_runs(*self.forms[v])
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
        row = self._row(v)
        if row.unsure and (unsure := row.unsure & among):
            self._compare_bytes(v, row, unsure)
        return row.touching & among

    def inside(self, v: int) -> int:
        """The operands that contain v, of those that `touching` was asked for before."""
        return self._row(v).inside

    def around(self, v: int) -> int:
        """The operands within v, of those that `touching` was asked for before."""
        return self._row(v).around

    def _row(self, v: int) -> _Row:
        if v not in self.rows:
            self.prepare([v])
        return self.rows[v]

    def prepare(self, asked: Iterable[int]) -> None:
        """Find how all others lie to these operands, which takes far longer one by one. Those of the same bytes have
        one row."""
        numbers = np.array([v for v in asked if v not in self.rows], np.int64)
        ends = (self.low, self.high, self.count, self.stride, self.width)
        alike: dict[tuple[int, ...], list[int]] = {}
        for v, *key in zip(numbers.tolist(), *(x[numbers].tolist() for x in ends), strict=True):
            alike.setdefault((*key, -1 if key[2] else v), []).append(v)
        groups, size = list(alike.values()), 1 + _BLOCK // (1 + len(self.low))
        for n in range(0, len(groups), size):
            block = groups[n : n + size]
            for group, row in zip(block, self._compare(np.array([g[0] for g in block])), strict=True):
                for v in group:
                    self.rows[v] = row

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
        row.reach = row.touching | row.unsure

    def _exact(self, v: int, u: int) -> Relation:
        if max(u, v) < len(self._origin):
            return relation(self.forms[v], self.forms[u], self._origin[u] - self._origin[v])
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
        if (cover, v) not in self.covered:
            self.covered[cover, v] = within(self.runs(v), self.union(bits(cover)))
        return self.covered[cover, v]
