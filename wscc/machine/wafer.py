"""Wafers: meshes of dies joined by links, some of them dead. SI units throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final

from wscc.diagnostics import Code, CompileError, Diagnostic
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


@dataclass(frozen=True, slots=True)
class Wafer:
    """Dies are numbered row * cols + column; a dead link is the sorted pair of its ends (see `dead_link`).

    Raises `CompileError` with every mistake: W005 a number out of range, W003 a mesh beyond `MAX_DIES`,
    W304 damage that is not on the mesh.
    """

    name: str
    rows: Annotated[int, Limits(least=1, most=MAX_DIES)]
    cols: Annotated[int, Limits(least=1, most=MAX_DIES)]
    die: Die = Die()
    link: Link = Link()
    dead_dies: frozenset[Coordinate] = frozenset()
    dead_links: frozenset[DeadLink] = frozenset()

    def __post_init__(self) -> None:
        if mistakes := [*self._number_mistakes()] or [*self._damage_mistakes()]:
            raise CompileError(*mistakes)

    @property
    def dies(self) -> int:
        """Dies of the mesh, dead ones included."""
        return self.rows * self.cols

    @property
    def live_dies(self) -> int:
        return self.dies - len(self.dead_dies)

    @property
    def live_links(self) -> int:
        """Live links between neighbours, each of its two directions counted."""
        around = {
            dead_link((r, c), n)
            for r, c in self.dead_dies
            for n in ((r, c - 1), (r, c + 1), (r - 1, c), (r + 1, c))
            if self._is_on_mesh(n)
        }
        built = self.rows * (self.cols - 1) + self.cols * (self.rows - 1)
        return 2 * (built - len(self.dead_links | around))

    def number(self, coordinate: Coordinate) -> int:
        """The number of the die at (row, column)."""
        return coordinate[0] * self.cols + coordinate[1]

    def with_faster_links(self, factor: int) -> Wafer:
        """The same wafer with links of so many times the bandwidth."""
        return replace(self, link=replace(self.link, bandwidth=self.link.bandwidth * factor))

    def coordinate(self, die: int) -> Coordinate:
        """(row, column) of a die."""
        return divmod(die, self.cols)

    def _number_mistakes(self) -> Iterator[Diagnostic]:
        mesh = f"wafer `{self.name}` has a mesh of {self.rows} x {self.cols} dies"
        if self.rows < 1 or self.cols < 1:
            yield Diagnostic(Code.NUMBER, mesh, help="use at least 1 row and 1 column")
        elif self.dies > MAX_DIES:
            yield Diagnostic(Code.LIMIT, f"{mesh}; the largest has {MAX_DIES}", help="use a smaller mesh")
        mistakes = [("die", m) for m in (*beyond_limits(self.die), *self.die.disagreements())]
        mistakes += [("link", m) for m in beyond_limits(self.link)]
        for section, (name, words) in mistakes:
            message = f"wafer `{self.name}`: {section} {name.replace('_', ' ')} {words}"
            yield Diagnostic(Code.NUMBER, message)

    def _damage_mistakes(self) -> Iterator[Diagnostic]:
        extent = f"rows are 0 to {self.rows - 1}, columns 0 to {self.cols - 1}"
        off = f"is not on the mesh of `{self.name}`"
        for die in sorted(self.dead_dies):
            if not self._is_on_mesh(die):
                yield Diagnostic(Code.OFF_MESH, f"dead die {die} {off}", help=extent)
        for a, b in sorted(self.dead_links):
            link = f"dead link {a} - {b}"
            strays = [end for end in (a, b) if not self._is_on_mesh(end)]
            if strays:
                yield Diagnostic(Code.OFF_MESH, f"{link}: die {strays[0]} {off}", help=extent)
            elif not are_neighbours(a, b):
                message = f"{link} does not join two neighbours"
                yield Diagnostic(Code.OFF_MESH, message, help="name two dies that share an edge")
            else:
                assert a < b, "dead links are sorted pairs: make them with `dead_link`"

    def _is_on_mesh(self, coordinate: Coordinate) -> bool:
        return 0 <= coordinate[0] < self.rows and 0 <= coordinate[1] < self.cols


def dead_link(a: Coordinate, b: Coordinate) -> DeadLink:
    """The sorted pair of two neighbours, an element of `Wafer.dead_links`: a dead link is dead both ways."""
    return (a, b) if a <= b else (b, a)


def dead_links(pairs: Iterable[tuple[Coordinate, Coordinate]]) -> frozenset[DeadLink]:
    """`Wafer.dead_links` of pairs of neighbours."""
    return frozenset(dead_link(a, b) for a, b in pairs)


def are_neighbours(a: Coordinate, b: Coordinate) -> bool:
    """Whether two coordinates share an edge."""
    return abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
