"""Facts that pictures are drawn from: plain numbers and words, no modules and no artifacts."""

from __future__ import annotations

from dataclasses import dataclass

Place = tuple[int, int]  # row, column of a die


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh of `rows` x `cols` dies with its damage; each of `dead_links` joins two places, in any order.

    `closed_rows`, `closed_cols`: links join both ends of each row or column. `wafer` is the extent of one wafer of a
    system, and `unbuilt` are neighbours that no link joins. `row_names`: what stands beside each row."""

    rows: int
    cols: int
    dead_dies: frozenset[Place] = frozenset()
    dead_links: frozenset[tuple[Place, Place]] = frozenset()
    closed_rows: bool = False
    closed_cols: bool = False
    wafer: Place | None = None
    unbuilt: frozenset[tuple[Place, Place]] = frozenset()
    row_names: tuple[str, ...] = ()

    def row_name(self, row: int) -> str:
        """What stands beside a row."""
        return self.row_names[row] if self.row_names else str(row)

    def is_around(self, a: Place, b: Place) -> bool:
        """Whether a link around the mesh joins two places."""
        down, right = abs(a[0] - b[0]), abs(a[1] - b[1])
        is_row = self.closed_rows and down == 0 and right == self.cols - 1 > 1
        return is_row or (self.closed_cols and right == 0 and down == self.rows - 1 > 1)

    def is_across(self, a: Place, b: Place) -> bool:
        """Whether neighbours lie on different wafers."""
        w = self.wafer
        return w is not None and (a[0] // w[0], a[1] // w[1]) != (b[0] // w[0], b[1] // w[1])


@dataclass(frozen=True, slots=True)
class Die:
    """A die with a part in the program: its label, and the number of its colour, from 0."""

    place: Place
    label: str
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """Dies in the order in which shards travel; `closed` where the last passes on to the first."""

    places: tuple[Place, ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class WaferMap:
    """The map of a wafer: `colours` are the words for the colours of dies, in order; `ring` those for the rings, empty
    without any."""

    title: str
    subtitle: str
    mesh: Mesh
    dies: tuple[Die, ...]
    rings: tuple[Ring, ...] = ()
    colours: tuple[str, ...] = ()
    ring: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """Work of one row from `begin` to `end`, in seconds; `kind` is one of `Timeline.kinds`."""

    row: int
    begin: float
    end: float
    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a step of so many `seconds`: `rows` are names of rows, `kinds` all kinds of bars in the order of
    the legend."""

    title: str
    subtitle: str
    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    bars: tuple[Bar, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Bytes that one direction of a link carries."""

    source: Place
    target: Place
    bytes: int


@dataclass(frozen=True, slots=True)
class LoadMap:
    """The load of links in a step: `used` are the dies with a part in the program, `loads` the live links, both
    directions of each."""

    title: str
    subtitle: str
    mesh: Mesh
    used: frozenset[Place]
    loads: tuple[LinkLoad, ...]
