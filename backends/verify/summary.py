"""The bytes that a procedure needs, leaves and destroys on one die: all that its caller must know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from wscc.backends.verify.body import DTYPES
from wscc.backends.verify.places import LOCAL, Placed, Places, bits
from wscc.backends.verify.procedure import Outcome
from wscc.backends.verify.views import Runs, minus, union

Range = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """Ranges as (space, start, end, number in `DTYPES`): those read before they are written, those that hold a value
    when the procedure ends, and those that it destroys (of no element type); `local` are ranges of its local bytes."""

    needs: tuple[Range, ...]
    leaves: tuple[Range, ...]
    loses: tuple[Range, ...]
    local: tuple[tuple[int, int], ...]


def summary(outcome: Outcome, placed: Placed, places: Places) -> Summary:
    """The summary of a procedure on a die, after its scan."""
    operands = places.operands
    needs, leaves, loses = _Bytes(places), _Bytes(places), _Bytes(places)
    for key, runs in _needed(outcome, places):
        needs.add(key, runs)
    for v, runs in _last_written(outcome, placed, places):
        space = places.space[v]
        if not outcome.ended >> v & 1:
            leaves.add(
                (space, DTYPES.index(operands[v].dtype), operands[v].arg if space == LOCAL else -1), runs
            )
        elif space != LOCAL:
            loses.add((space, 0, -1), runs)
    return Summary(needs.ranges, leaves.ranges, loses.ranges, tuple(_local(outcome, placed, places)))


# Space, number of the element type, and of what is handed on the argument (else -1).
_Key = tuple[int, int, int]


class _Bytes:
    """Bytes by what they hold."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.parts: dict[_Key, list[Runs]] = {}

    def add(self, key: _Key, runs: Runs) -> None:
        self.parts.setdefault(key, []).append(runs)

    @property
    def ranges(self) -> tuple[Range, ...]:
        found = []
        for (space, kind, arg), parts in self.parts.items():
            starts, ends = union(parts)
            base = self.places.base[space]
            found += [
                (arg, space, a, b, kind)
                for a, b in zip((starts - base).tolist(), (ends - base).tolist(), strict=True)
            ]
        return tuple(r[1:] for r in sorted(found))


def _needed(outcome: Outcome, places: Places) -> Iterator[tuple[_Key, Runs]]:
    """The bytes of the caller that are read, by the element type in which they are read first."""
    before: dict[int, int] = {}
    for v, own in outcome.taken:
        kind = DTYPES.index(places.operands[v].dtype)
        others = places.touching(v, own | sum(known for k, known in before.items() if k != kind))
        yield (places.space[v], kind, -1), _without(v, others, places)
        before[kind] = before.get(kind, 0) | 1 << v


def _last_written(outcome: Outcome, placed: Placed, places: Places) -> Iterator[tuple[int, Runs]]:
    """The bytes of arguments that each operand was the last to write."""
    later = 0
    for v in reversed(outcome.written):
        if places.space[v] != LOCAL or (placed.handed and places.operands[v].arg >= 0):
            yield v, _without(v, places.touching(v, later), places)
        if places.space[v] != LOCAL or placed.handed:
            later |= 1 << v


def _without(v: int, others: int, places: Places) -> Runs:
    runs = places.runs(v)
    return minus(runs, places.union(bits(others))) if others else runs


def _local(outcome: Outcome, placed: Placed, places: Places) -> Iterable[tuple[int, int]]:
    """The ranges of local bytes that are accessed, but for what was handed on and is whole."""
    numbers = np.unique(np.array(placed.numbers, np.int64))
    local = (np.array(places.space)[numbers] == LOCAL) & (places.low[numbers] < places.high[numbers])
    runs = places.union(numbers[local].tolist())
    written = sum(1 << v for v in outcome.written)
    for h in bits(placed.handed):
        over = places.touching(h, written)
        if all(places.relation(u, h)[1] for u in bits(over)):
            runs = minus(runs, _without(h, over, places))
    return zip(runs[0].tolist(), runs[1].tolist(), strict=True)
