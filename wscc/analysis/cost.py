"""The rates of a machine: seconds of work, of bytes and of messages on the dies and links of a wafer.

This is the one place that divides by a peak or a bandwidth. Everything that compares times takes them from here: the
layout search, the promotion to fast memory, the overlap of messages and work, the strategy search, the fault study and
the simulator. Each of them documents what it counts and what it leaves out.

Rates come in two kinds of number: `Rates.of(wafer)` in doubles, for estimates, and `Rates.exact(wafer)` in fractions,
where no size may be rounded away. The same holds for `DieRates` and `LinkRates`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Generic, TypeVar

from wscc.machine.links import CUT_THROUGH, STORE_AND_FORWARD, LinkTimes, exact
from wscc.machine.wafer import Die, Link, Wafer

N = TypeVar("N", float, Fraction)


def in_tiles(sides: Iterable[int], tile: int) -> int:
    """Product of the sides (m, n and k of a matrix product), each rounded up to whole tiles."""
    return prod(-(-side // tile) * tile for side in sides)


@dataclass(frozen=True, slots=True)
class DieRates(Generic[N]):
    """A die: `peak` in FLOP/s, `hbm_bandwidth` in B/s (0 without HBM), `tile` the side of its matrix unit."""

    peak: N
    hbm_bandwidth: N
    tile: int

    @staticmethod
    def of(die: Die) -> DieRates[float]:
        """The rates of a die in doubles."""
        return DieRates(die.peak, die.hbm_bandwidth, die.tile)

    @staticmethod
    def exact(die: Die) -> DieRates[Fraction]:
        """The rates of a die in fractions."""
        return DieRates(Fraction(die.peak), Fraction(die.hbm_bandwidth), die.tile)

    @property
    def has_hbm(self) -> bool:
        """Whether the die has HBM."""
        return self.hbm_bandwidth > 0

    def compute(self, flops: N | int) -> N:
        """Seconds of so many FLOPs at the peak."""
        return flops / self.peak

    def hbm(self, amount: N | int) -> N:
        """Seconds that the port of the HBM is busy with so many bytes, read or written; 0 without HBM, where nothing
        can lie in it."""
        return amount / self.hbm_bandwidth if self.has_hbm else self.hbm_bandwidth

    def efficiency(self, sides: Iterable[int]) -> float:
        """The fraction of the peak that a matrix product of sides m, n and k reaches: it takes whole tiles."""
        sides = tuple(sides)
        return prod(sides) / in_tiles(sides, self.tile)


@dataclass(frozen=True, slots=True)
class LinkRates(Generic[N]):
    """A directed link between neighbours: `bandwidth` in B/s, `latency` in seconds, `flit` in bytes."""

    bandwidth: N
    latency: N
    flit: int

    @staticmethod
    def of(link: Link) -> LinkRates[float]:
        """The rates of a link in doubles."""
        return LinkRates(link.bandwidth, link.latency, link.flit)

    @staticmethod
    def exact(link: Link) -> LinkRates[Fraction]:
        """The rates of a link in fractions."""
        return LinkRates(Fraction(link.bandwidth), exact(link.latency), link.flit)

    def busy(self, amount: N | int) -> N:
        """Seconds that so many bytes occupy a link, without latency and not rounded to flits."""
        return amount / self.bandwidth

    def flight(self, amount: N | int) -> N:
        """Seconds from the start of so many bytes on a link to the arrival of the last."""
        return self.latency + self.busy(amount)

    def capacity(self, seconds: N) -> N:
        """Bytes that a link carries in so many seconds."""
        return seconds * self.bandwidth

    def times(self, model: str = CUT_THROUGH) -> LinkTimes[N]:
        """Byte times of single messages, in whole flits and with latency, under a link model."""
        latency = self.capacity(self.latency)
        return LinkTimes(int(self.bandwidth), latency, self.flit, model == STORE_AND_FORWARD)


@dataclass(frozen=True, slots=True)
class Rates(Generic[N]):
    """The rates of a wafer, of a die, and of its links by class: those of the wafer itself first, then those of the
    joints of a system. The die is what every die of a program has at least: `die` of `of` and `exact`, where dies are
    not alike."""

    wafer: Wafer
    die: DieRates[N]
    links: tuple[LinkRates[N], ...]

    @staticmethod
    def of(wafer: Wafer, die: Die | None = None) -> Rates[float]:
        """The rates of a wafer in doubles."""
        return Rates(wafer, DieRates.of(die or wafer.die), tuple(map(LinkRates.of, wafer.links)))

    @staticmethod
    def exact(wafer: Wafer, die: Die | None = None) -> Rates[Fraction]:
        """The rates of a wafer in fractions."""
        return Rates(wafer, DieRates.exact(die or wafer.die), tuple(map(LinkRates.exact, wafer.links)))

    @property
    def link(self) -> LinkRates[N]:
        """The rates of the wafer's own links."""
        return self.links[0]

    def between(self, a: int, b: int) -> LinkRates[N]:
        """The rates of the link between two neighbouring dies."""
        return self.links[self.wafer.link_class(a, b)]
