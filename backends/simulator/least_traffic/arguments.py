"""Distinct bytes of each argument that a procedure reads and writes on one die."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Final, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from wscc.backends.simulator.calls import Builder
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Instruction

# Arguments of more cells have the bytes of their largest operand.
_MOST_CELLS: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Touched:
    """The bytes from `low` up to `high` are touched: `reads` and `writes` say how. Of at least `read` of them what the
    caller gave is read, at least `written` are written."""

    low: int
    high: int
    reads: bool
    read: int
    writes: bool
    written: int


class Arguments(Protocol):
    """What procedures do with their arguments."""

    def reaches(self, procedure: str) -> Mapping[int, tuple[int, int]]:
        """By the number of an argument that is touched, the first and last (exclusive) byte, from its address."""

    def touched(self, procedure: str, together: tuple[int, ...]) -> Touched:
        """What is done with arguments of these numbers that are bound to one address, from that address on."""


@dataclass(frozen=True, slots=True)
class _Access:
    """An operand from byte `low` on: `run` bytes side by side, again for each turn of `outer` (turns, bytes apart).
    `some` are named by integers: not all need be touched."""

    low: int
    run: int
    outer: tuple[tuple[int, int], ...]
    writes: bool
    some: bool

    @property
    def high(self) -> int:
        return self.low + self.run + sum((n - 1) * stride for n, stride in self.outer)


@dataclass(slots=True)
class OfDie:
    """The arguments of the procedures of a logical die."""

    builder: Builder
    die: int
    _accesses: dict[str, list[tuple[int, _Access]]] = field(default_factory=dict)
    _touched: dict[tuple[str, tuple[int, ...]], Touched] = field(default_factory=dict)

    def reaches(self, procedure: str) -> Mapping[int, tuple[int, int]]:
        reaches = self.builder.reaches(self.builder.stages[self.die], procedure)
        return {arg: reaches[arg] for arg in {arg for arg, _ in self._all(procedure)}}

    def touched(self, procedure: str, together: tuple[int, ...]) -> Touched:
        key = procedure, together
        if key not in self._touched:
            accesses = (a for n, a in self._all(procedure) if n in together)
            self._touched[key] = _count(list(dict.fromkeys(accesses)))
        return self._touched[key]

    def _all(self, procedure: str) -> list[tuple[int, _Access]]:
        """All accesses in their order, equal ones once."""
        if procedure not in self._accesses:
            body = self.builder.code(self.die, procedure).body
            found = (access for x in body for access in _accesses(self.builder, self.die, x))
            self._accesses[procedure] = list(dict.fromkeys(found))
        return self._accesses[procedure]


def _accesses(builder: Builder, die: int, x: Instruction) -> Iterator[tuple[int, _Access]]:
    """The arguments that an instruction accesses, its reads first."""
    if x.opcode in ("wait", "delay"):
        return
    names, indexed = INSTRUCTIONS[x.opcode].names, INSTRUCTIONS[x.opcode].indexed
    adds = any(k == "accumulate" and v for k, v in x.attrs)
    for n, o in enumerate((*x.reads, *x.writes)):
        if o.arg < 0 or 0 in o.shape:
            continue
        writes = n >= len(x.reads)
        name = names[n - len(x.reads) if writes else n + len(x.writes)]
        low, run, outer = _runs(o.shape, o.strides, o.dtype.size)
        low += builder.integer(die, o.offset)
        some = name == indexed and (adds or not writes)
        if adds and n == len(x.reads):
            yield o.arg, _Access(low, run, outer, False, some)
        yield o.arg, _Access(low, run, outer, writes, some)


@lru_cache(maxsize=8192)
def _runs(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int
) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Of a view the first byte from its offset, bytes side by side, and (turns, bytes apart) of the rest."""
    dims = sorted((abs(s) * size, n) for n, s in zip(shape, strides, strict=True) if n > 1 and s)
    low = sum((n - 1) * s * size for n, s in zip(shape, strides, strict=True) if s < 0)
    run, outer = size, list[tuple[int, int]]()
    for stride, n in dims:
        if stride <= run:
            run = (n - 1) * stride + run
        else:
            outer.append((n, stride))
    return low, run, tuple(outer)


def _count(accesses: list[_Access]) -> Touched:
    low, high = min(a.low for a in accesses), max(a.high for a in accesses)
    unit = gcd(*(n for a in accesses for n in (a.low - low, a.run, *(s for _, s in a.outer))))
    cells = (high - low) // unit
    reads, writes = (any(a.writes == w for a in accesses) for w in (False, True))
    if cells > _MOST_CELLS:
        return Touched(
            low, high, reads, _largest(accesses, writes=False), writes, _largest(accesses, writes=True)
        )
    read, written = (np.zeros(cells, np.bool_) for _ in range(2))
    for a in accesses:
        if a.some:
            continue
        at = (a.low - low) // unit
        if a.writes:
            _view(written, at, a, unit)[...] = True
        else:
            needed = _view(read, at, a, unit)
            needed |= ~_view(written, at, a, unit)
    return Touched(low, high, reads, int(read.sum()) * unit, writes, int(written.sum()) * unit)


def _view(cells: NDArray[np.bool_], at: int, a: _Access, unit: int) -> NDArray[np.bool_]:
    shape = (*(n for n, _ in a.outer), a.run // unit)
    return as_strided(cells[at:], shape, (*(s // unit for _, s in a.outer), 1))


def _largest(accesses: list[_Access], *, writes: bool) -> int:
    """Bytes of the largest operand that is read before any is written, or that is written."""
    most = 0
    for a in accesses:
        if a.writes and not writes:
            break
        if a.writes == writes and not a.some and all(s >= a.run for _, s in a.outer[:1]):
            turns = 1
            reach = a.run
            for n, s in a.outer:
                if s < reach:
                    break
                turns, reach = turns * n, reach + (n - 1) * s
            most = max(most, turns * a.run)
    return most
