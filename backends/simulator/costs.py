"""Ticks that instructions and messages take on a wafer: whole numbers, so that no size is rounded away.

A tick is 10^-18 s, and every duration is rounded up to one, from the exact rates of the wafer. Instruction time =
max(FLOPs / (peak x tile efficiency), bytes of operands in HBM / HBM bandwidth). Only contractions have FLOPs, as in the
report: a die has no other rate, so that work on elements costs the bytes it moves. Left out are the time of the SRAM,
and of what starts an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, prod
from typing import Final

from wscc.analysis.cost import DieRates, Rates, in_tiles
from wscc.ir.routes import Route
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Field, Instruction, Operand
from wscc.machine.links import CUT_THROUGH, LinkTimes
from wscc.machine.wafer import Wafer

SECOND: Final = 10**18


def ticks(seconds: Fraction) -> int:
    """Whole ticks, rounded up."""
    return ceil(seconds * SECOND)


@dataclass(frozen=True, slots=True)
class Reach:
    """The bytes that an operand takes part with, and the first and last (exclusive) that its view touches,
    from `offset` of argument `arg` (-1: of the arena)."""

    arg: int
    offset: Field
    low: int
    high: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Work:
    """The work of an instruction: FLOPs, FLOPs with m, n, k rounded up to whole tiles, and the memory it accesses."""

    flops: int
    tiled: int
    reaches: tuple[Reach, ...]


def work_of(x: Instruction, tile: int) -> Work:
    """The work of a compute instruction, or of the operand of a `post` or `send`."""
    operands = (*x.writes, *x.reads)
    amounts = [_bytes(o) for o in operands]
    row = INSTRUCTIONS[x.opcode]
    indexed = row.names.index(row.indexed) if row.indexed else None
    if indexed is not None and indexed >= len(x.writes):
        amounts[indexed] = _named(x, operands[indexed], amounts[indexed])
    if indexed == 0:
        amounts[0] = _scattered(x)
    elif any(k == "accumulate" and v for k, v in x.attrs):
        amounts[0] *= 2  # read, added to and written
    reaches = tuple(_reach(o, n) for o, n in zip(operands, amounts, strict=True))
    if x.opcode != "gemm":
        return Work(0, 0, reaches)
    count, *sides = _matrices(x)
    return Work(2 * count * prod(sides), 2 * count * in_tiles(sides, tile), reaches)


def _matrices(x: Instruction) -> tuple[int, int, int, int]:
    """The number of products in a gemm, and their m, n and k. A leading dimension that an operand does not have (it
    repeats) is none of separate products: rows of one, columns of the other follow one another."""
    a, b = x.reads
    m, n = x.writes[0].shape[-2:]
    count = 1
    for size, has_a, has_b in zip(x.writes[0].shape[:-2], a.strides[:-2], b.strides[:-2], strict=True):
        if size > 1 and not has_b:
            m *= size
        elif size > 1 and not has_a:
            n *= size
        else:
            count *= size
    return count, m, n, a.shape[-1]


def _bytes(o: Operand) -> int:
    """Each element once, also where the view repeats it."""
    return prod(n for n, s in zip(o.shape, o.strides, strict=True) if s) * o.dtype.size


def _named(x: Instruction, o: Operand, whole: int) -> int:
    """The bytes of an operand that integers name elements of. Rows of a table, labels' logits: as many elements as are
    written, and not all; rows that entries of a sparse matrix name: one for each entry."""
    if INSTRUCTIONS[x.opcode].integers == ("entries",):
        rows = next(r.shape[1] for r in (*x.writes, *x.reads[1:]) if len(r.shape) > 1)
        return prod(o.shape) // max(1, o.shape[1]) * (x.reads[0].shape[0] - rows - 1) * o.dtype.size
    return min(whole, prod(x.writes[0].shape) * o.dtype.size)


def _scattered(x: Instruction) -> int:
    """Rows are read and written; without `accumulate` the table is zeroed first."""
    table, rows = _bytes(x.writes[0]), _bytes(x.reads[1])
    return 2 * min(table, rows) + (0 if x.attr("accumulate") else table)


def _reach(o: Operand, amount: int) -> Reach:
    if 0 in o.shape:
        return Reach(o.arg, o.offset, 0, 0, 0)
    spans = [(n - 1) * s * o.dtype.size for n, s in zip(o.shape, o.strides, strict=True)]
    low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)
    return Reach(o.arg, o.offset, low, high + o.dtype.size, amount)


@dataclass(frozen=True, slots=True)
class LinkTicks:
    """Ticks that a message takes on a link, which it keeps for `hold`; its last byte arrives `span` after its start;
    `latency` is that of the link."""

    hold: int
    span: int
    latency: int


@dataclass(frozen=True, slots=True)
class Leg:
    """A path of a message in times: `links` are pairs of dies, `ticks` its times on each, `part` the bytes that it
    carries."""

    links: tuple[tuple[int, int], ...]
    ticks: tuple[LinkTicks, ...]
    part: int


@dataclass
class Costs:
    """Durations on one wafer under one link model; `links` and `dies` by class, of which the first is that of most
    dies. Dies of a program are much alike, so durations are remembered by size."""

    wafer: Wafer
    rates: Rates[Fraction]
    links: tuple[LinkTimes[Fraction], ...]
    dies: tuple[DieRates[Fraction], ...]
    _class_of: dict[int, int] = field(repr=False, compare=False)
    _compute: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)
    _hbm: dict[tuple[int, int], int] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(wafer: Wafer, kind: str = CUT_THROUGH) -> Costs:
        rates = Rates.exact(wafer)
        classes = list(dict.fromkeys((wafer.die, *(die for _, die in wafer.unlike))))
        of_die = {wafer.number(at): classes.index(die) for at, die in wafer.unlike}
        dies = tuple(map(DieRates.exact, classes))
        return Costs(wafer, rates, tuple(link.times(kind) for link in rates.links), dies, of_die)

    def die_class(self, physical: int) -> int:
        """The class of a physical die: its place in `dies`."""
        return self._class_of.get(physical, 0)

    @property
    def store_and_forward(self) -> bool:
        """Whether a die passes a message on after its last byte."""
        return self.links[0].store_and_forward

    def compute(self, flops: int, die_class: int = 0) -> int:
        key = flops, die_class
        if key not in self._compute:
            self._compute[key] = ticks(self.dies[die_class].compute(flops))
        return self._compute[key]

    def hbm(self, amount: int, die_class: int = 0) -> int:
        """Ticks of the HBM's port."""
        key = amount, die_class
        if key not in self._hbm:
            self._hbm[key] = ticks(self.dies[die_class].hbm(amount))
        return self._hbm[key]

    def legs(self, route: Route, amount: int) -> tuple[Leg, ...]:
        """A message of so many bytes on a route."""
        return tuple(
            self._leg(tuple(leg.hops), n) for leg, n in zip(route.legs, route.parts(amount), strict=True)
        )

    def _leg(self, hops: tuple[tuple[int, int], ...], amount: int) -> Leg:
        classes = [self.wafer.link_class(*hop) for hop in hops]
        ticks = {c: self._on_link(c, amount) for c in dict.fromkeys(classes)}
        return Leg(hops, tuple(ticks[c] for c in classes), amount)

    def in_hbm(self, r: Reach, base: int) -> int:
        """The bytes of an operand at `base` that are above the SRAM; in proportion, if it is in both memories."""
        sram = self.wafer.die.sram
        low, high = base + r.low, base + r.high
        if high <= sram:
            return 0
        return r.bytes if low >= sram else r.bytes * (high - sram) // (high - low)

    def _on_link(self, link_class: int, amount: int) -> LinkTicks:
        times, busy = self.links[link_class], self.rates.links[link_class].busy
        return LinkTicks(*(ticks(busy(t)) for t in (times.hold(amount), times.span(amount), times.latency)))
