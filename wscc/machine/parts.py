"""The parts of machines: dies, links, and what joins dies, wafers and nodes. SI units throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from wscc.diagnostics.limits import Limits, beyond_limits

Coordinate = tuple[int, int]
DeadLink = tuple[Coordinate, Coordinate]

# The largest wafers known have under 900,000 cores; above this a mesh is a slip of the keyboard.
MAX_DIES: Final = 1 << 20
# Of bytes, FLOP/s and the like; seconds and joules stay below it as well.
_MOST: Final = 10**30
Positive = Annotated[int, Limits(least=1, most=_MOST)]
Amount = Annotated[int, Limits(least=0, most=_MOST)]
Measure = Annotated[float, Limits(least=0, most=_MOST)]


@dataclass(frozen=True, slots=True)
class Die:
    """`peak` FLOP/s, memory in bytes (no HBM: 0), HBM bandwidth in B/s, GEMM tile side, FLOP/s per watt."""

    peak: Positive = 1_800_000_000_000_000
    sram: Positive = 80_000_000
    hbm: Amount = 72_000_000_000
    hbm_bandwidth: Amount = 1_000_000_000_000
    tile: Positive = 128
    efficiency: Annotated[float, Limits(least=0, above=True, most=_MOST)] = 2e12

    def least(self, other: Die) -> Die:
        """What both dies have."""
        return replace(
            self, peak=min(self.peak, other.peak), hbm=min(self.hbm, other.hbm),
            hbm_bandwidth=min(self.hbm_bandwidth, other.hbm_bandwidth),
        )  # fmt: skip

    def most(self, other: Die) -> Die:
        """What either die has."""
        return replace(
            self, peak=max(self.peak, other.peak), hbm=max(self.hbm, other.hbm),
            hbm_bandwidth=max(self.hbm_bandwidth, other.hbm_bandwidth),
        )  # fmt: skip

    def with_cores(self, left: int, total: int) -> Die:
        """This die where so many of its cores are left, each with an equal share of the peak."""
        return replace(self, peak=max(1, self.peak * left // total))

    def cores_of(self, other: Die, total: int) -> int:
        """The cores of another die, if it has `total`, which reach the peak of this one."""
        return -(-total * self.peak // other.peak)

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Fields that do not agree with others, each with why not."""
        if self.hbm and not self.hbm_bandwidth:
            yield "hbm_bandwidth", "must be positive where there is HBM"


@dataclass(frozen=True, slots=True)
class Link:
    """Per direction, between neighbours: bandwidth in B/s, latency in s, flit in bytes, energy in J/bit."""

    bandwidth: Positive = 4_000_000_000_000
    latency: Measure = 200e-9
    flit: Positive = 64
    energy: Measure = 5e-12
    channels: Positive = 2

    def is_faster_than(self, other: Link) -> bool:
        """Whether some message is over sooner on this link."""
        return self.bandwidth > other.bandwidth or self.latency < other.latency

    def faster(self, factor: int) -> Link:
        """This link with so many times the bandwidth."""
        return replace(self, bandwidth=self.bandwidth * factor)

    def at_least(self, other: Link) -> Link:
        """This link, with what is faster of another."""
        return replace(
            self, bandwidth=max(self.bandwidth, other.bandwidth), latency=min(self.latency, other.latency)
        )

    @property
    def speed(self) -> str:
        """Bandwidth and latency, as options of commands have them."""
        return f"bandwidth={self.bandwidth / 1e12:g}TB/s,latency={self.latency * 1e9:g}ns"


@dataclass(frozen=True, slots=True)
class Torus:
    """Whether a link joins both ends of each row, of each column, and the first and last plane. Where there are two
    dies or fewer it would join what a link joins already, and there is none."""

    rows: bool = False
    cols: bool = False
    planes: bool = field(default=False, metadata={"left_out": True})


OPEN: Final = Torus()


@dataclass(frozen=True, slots=True)
class Joint:
    """Where wafers of `rows` x `cols` dies meet edge to edge. `link` is all that joins two edges, whose bandwidth its
    ports share; `ports` are the places along every edge whose dies have one, counted from 0, or from -1 backwards
    (empty: all of them)."""

    rows: Annotated[int, Limits(least=1, most=MAX_DIES)]
    cols: Annotated[int, Limits(least=1, most=MAX_DIES)]
    link: Link = Link()
    ports: tuple[Annotated[int, Limits(least=-MAX_DIES, most=MAX_DIES)], ...] = ()

    def places(self, edge: int) -> frozenset[int]:
        """The places with a port on an edge of so many dies."""
        return (
            frozenset(p % edge for p in self.ports if -edge <= p < edge)
            if self.ports
            else frozenset(range(edge))
        )

    def has_port(self, a: Coordinate, b: Coordinate) -> bool:
        """Whether the edges of two wafers have a link at these neighbouring dies."""
        if not self.ports:
            return True
        return (
            a[0] % self.rows in self.places(self.rows)
            if a[0] == b[0]
            else a[1] % self.cols in self.places(self.cols)
        )

    @property
    def links(self) -> tuple[Link, Link]:
        """One link of a port: on an edge beside which a row goes on, and on one beside which a column does."""
        side, end = (len(self.places(edge)) or 1 for edge in (self.rows, self.cols))
        return self._shared(side), self._shared(end)

    def mistakes_on(self, rows: int, cols: int) -> Iterator[tuple[str, str]]:
        """Fields that are out of range or do not agree with a system of so many dies, each with why not."""
        yield from (*beyond_limits(self), *beyond_limits(self.link))
        if self.rows < 1 or self.cols < 1:
            return
        if rows % self.rows or cols % self.cols:
            yield "mesh", f"of {self.rows} x {self.cols} dies does not divide that of the system"
        many_rows, many_cols = rows > self.rows, cols > self.cols
        for is_joined, edge in ((many_cols, self.rows), (many_rows, self.cols)):
            if is_joined and not self.places(edge):
                yield "ports", f"are none of an edge of {edge} dies"

    def _shared(self, ports: int) -> Link:
        return replace(self.link, bandwidth=max(1, self.link.bandwidth // ports))


@dataclass(frozen=True, slots=True)
class Hub:
    """What joins the dies of a node all to all: a link for each pair, or with a `capacity` (B/s, of all messages
    together) a switch, which every die has one link to, and which takes `latency` s."""

    capacity: Amount = 0
    latency: Measure = 0.0


@dataclass(frozen=True, slots=True)
class Leaves:
    """A network of several switches, the leaves, below a spine: each is of so many `nodes` that follow one another, or
    with 0, as rails, of the dies in one place of every node. `uplink` is the bandwidth in B/s between a leaf and the
    spine, per direction; the spine carries that of all."""

    nodes: Annotated[int, Limits(least=0, most=MAX_DIES)]
    uplink: Positive

    @property
    def are_rails(self) -> bool:
        return self.nodes == 0


@dataclass(frozen=True, slots=True)
class Network:
    """What joins nodes: a switch, or several `leaves`, one of which every die has a `link` to; what dies of one switch
    send one another is `capacity` B/s in all, and takes `latency` s."""

    link: Link = Link()
    capacity: Positive = 1
    latency: Measure = 0.0
    leaves: Leaves | None = field(default=None, metadata={"left_out": True})


@dataclass(frozen=True, slots=True)
class Circuits:
    """Links that optical switches set up: of the `of` neighbours that a die can have at most, no more than `up` have a
    link to it in one program. Setting them takes `reconfiguration` s, once before the first step. Once they `are_set`,
    `down` are the links between neighbours that are not up, as sorted pairs."""

    up: Annotated[int, Limits(least=1, most=6)]
    of: Annotated[int, Limits(least=1, most=6)]
    reconfiguration: Measure = 0.0
    are_set: bool = False
    down: frozenset[DeadLink] = frozenset()

    @property
    def words(self) -> str:
        """As the language has them."""
        return f"circuits {self.pair}"

    def static(self, link: Link) -> Link:
        """A link where all are up: it has the bandwidth that the ports of a die have left for it."""
        return replace(link, bandwidth=max(1, link.bandwidth * self.up // self.of))

    def mistakes_on(self, dimensions: int, is_mesh: bool) -> Iterator[tuple[str, str]]:
        """Fields that do not agree with others or with the machine, each with why not. `is_mesh`: it is one mesh or
        torus of so many dimensions."""
        yield from beyond_limits(self)
        if not is_mesh:
            yield self.pair, "are between the dies of one mesh, and not of nodes or several wafers"
        elif self.of != 2 * dimensions:
            yield (
                f"{self.pair}:",
                f"a die of a mesh of {dimensions} dimensions can have links to {2 * dimensions} others",
            )
        if self.up > self.of:
            yield self.pair, "are more than there are"
        if self.down and not self.are_set:
            yield "down", "are given before circuits are set"

    @property
    def pair(self) -> str:
        """The two numbers, as the language has them."""
        return f"{self.up} of {self.of}"


def dead_link(a: Coordinate, b: Coordinate) -> DeadLink:
    """The sorted pair of two neighbours, an element of `Wafer.dead_links`: a dead link is dead both ways."""
    return (a, b) if a <= b else (b, a)


def dead_links(pairs: Iterable[tuple[Coordinate, Coordinate]]) -> frozenset[DeadLink]:
    """`Wafer.dead_links` of pairs of neighbours."""
    return frozenset(dead_link(a, b) for a, b in pairs)
