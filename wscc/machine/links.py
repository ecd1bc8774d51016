"""Time of a message on a link: the one formula of the simulator and of `wscc collective`, below all other rates
(`wscc.analysis.cost`)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Generic, TypeVar

from wscc.machine.wafer import Wafer

STORE_AND_FORWARD: Final = "store-and-forward"
CUT_THROUGH: Final = "cut-through"
LINK_MODELS: Final = (CUT_THROUGH, STORE_AND_FORWARD)

N = TypeVar("N", float, Fraction)


@dataclass(frozen=True)
class LinkTimes(Generic[N]):
    """A directed link: bandwidth in B/s, latency in byte times (what one byte takes), flit in bytes.

    *store-and-forward*: a message holds its link for latency + its bytes in whole flits, and is passed on
    after that. *cut-through*: it holds the link for its flits only (the latency is that of its length, so
    messages follow each other on it), and is passed on as soon as its first byte arrives.

    Times are in the kind of number that the latency is: exact with a `Fraction`.
    """

    bandwidth: int
    latency: N
    flit: int
    store_and_forward: bool = False

    def on_link(self, size: int) -> int:
        """Bytes on the link: whole flits."""
        return -(-size // self.flit) * self.flit

    def hold(self, size: int) -> N:
        """Byte times that a message keeps its link from the next."""
        return self.on_link(size) + self.latency * self.store_and_forward

    def span(self, size: int) -> N:
        """Byte times from the start of a message to the arrival of its last byte."""
        return self.on_link(size) + self.latency


def joint_times(wafer: Wafer) -> tuple[tuple[float, float, int], ...]:
    """Of the links between wafers of a system, by class: what a byte takes, and the latency, both in byte times of the
    wafer's own links; and the flit. The first is class 1 (`Wafer.link_class`)."""
    own = wafer.link.bandwidth
    return tuple(
        (own / link.bandwidth, float(exact(link.latency) * own), link.flit) for link in wafer.links[1:]
    )


def exact(seconds: Fraction | float) -> Fraction:
    """`seconds` as a fraction; a float is taken as the decimal number that it prints: 200e-9 is 1/5000000."""
    return seconds if isinstance(seconds, Fraction) else Fraction(repr(seconds))
