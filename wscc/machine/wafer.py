"""Wafers: meshes of dies joined by links, some of them dead. SI units throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Final

from wscc.diagnostics import Code, CompileError, Diagnostic

Coordinate = tuple[int, int]
DeadLink = tuple[Coordinate, Coordinate]

# The largest wafers known have under 900,000 cores; above this a mesh is a slip of the keyboard.
MAX_DIES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Die:
    """`peak` FLOP/s, memory in bytes (no HBM: 0), HBM bandwidth in B/s, GEMM tile side, FLOP/s per watt."""

    peak: int = 1_800_000_000_000_000
    sram: int = 80_000_000
    hbm: int = 72_000_000_000
    hbm_bandwidth: int = 1_000_000_000_000
    tile: int = 128
    efficiency: float = 2e12


@dataclass(frozen=True, slots=True)
class Link:
    """Per direction, between neighbours: bandwidth in B/s, latency in s, flit in bytes, energy in J/bit."""

    bandwidth: int = 4_000_000_000_000
    latency: float = 200e-9
    flit: int = 64
    energy: float = 5e-12
    channels: int = 2


@dataclass(frozen=True, slots=True)
class Wafer:
    """Dies are numbered row * cols + column; a dead link is the sorted pair of its ends (see `dead_link`).

    Raises `CompileError` with every mistake: W005 a number out of range, W003 a mesh beyond `MAX_DIES`,
    W304 damage that is not on the mesh.
    """

    name: str
    rows: int
    cols: int
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
        for section, record in (("die", self.die), ("link", self.link)):
            for f in fields(record):
                value = getattr(record, f.name)
                if not _is_possible(record, f.name, value):
                    message = f"wafer `{self.name}` has {section} {f.name.replace('_', ' ')} {value}"
                    yield Diagnostic(Code.NUMBER, message, help="use a positive number")

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


def _is_possible(record: Die | Link, name: str, value: float) -> bool:
    """Whether a number is positive; also 0 for the HBM of a die and for the latency and energy of a link."""
    has_hbm = isinstance(record, Die) and record.hbm > 0
    may_be_zero = name in ("hbm", "latency", "energy") or (name == "hbm_bandwidth" and not has_hbm)
    return isfinite(value) and (value > 0 or (may_be_zero and value == 0))
