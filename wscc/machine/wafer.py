"""Wafers: meshes of dies joined by links, some of them dead; tori, and systems of wafers. SI units throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Annotated, Final

from wscc.diagnostics import Code, CompileError, Diagnostic
from wscc.diagnostics.limits import Limits, beyond_limits
from wscc.machine.fold import Fold, Place
from wscc.machine.parts import MAX_DIES as MAX_DIES
from wscc.machine.parts import OPEN as OPEN
from wscc.machine.parts import Circuits as Circuits
from wscc.machine.parts import Coordinate as Coordinate
from wscc.machine.parts import DeadLink as DeadLink
from wscc.machine.parts import Die as Die
from wscc.machine.parts import Hub as Hub
from wscc.machine.parts import Joint as Joint
from wscc.machine.parts import Leaves as Leaves
from wscc.machine.parts import Link as Link
from wscc.machine.parts import Network as Network
from wscc.machine.parts import Torus as Torus
from wscc.machine.parts import dead_link as dead_link
from wscc.machine.parts import dead_links as dead_links
from wscc.machine.switches import Switches

_DIE: Final = Die()
_LINK: Final = Link()


@dataclass(frozen=True, slots=True)
class Wafer:
    """Dies are numbered row * cols + column; a dead link is the sorted pair of its ends (see `dead_link`).

    With `planes` the mesh has three dimensions: its `rows` are those of all planes, one below the other (`Fold`), and
    coordinates here are of that folded mesh. A `place` is what a user calls a die: (plane, row, column), else (row,
    column). With a `hub` every row is a node, whose dies are joined all to all, and a `network` joins several nodes. A
    switch is two vertices behind the dies (`Switches`), which are named as if they lay in the two columns behind the
    dies of their node, those of the network in rows of their own.
    All dies are as `die` says but for those `unlike` it, by coordinate, whose peak and HBM may be others. With
    `circuits`, the links of the mesh are those that could be up.

    Raises `CompileError` with every mistake: W005 a number out of range, W003 a mesh beyond `MAX_DIES`,
    W304 damage that is not on the mesh.
    """

    name: str
    rows: Annotated[int, Limits(least=1, most=MAX_DIES)]
    cols: Annotated[int, Limits(least=1, most=MAX_DIES)]
    die: Die = _DIE
    link: Link = _LINK
    dead_dies: frozenset[Coordinate] = frozenset()
    dead_links: frozenset[DeadLink] = frozenset()
    torus: Torus = OPEN
    joint: Joint | None = None
    planes: int | None = None
    hub: Hub | None = None
    network: Network | None = None
    unlike: tuple[tuple[Coordinate, Die], ...] = ()
    circuits: Circuits | None = None

    def __post_init__(self) -> None:
        if mistakes := [*self._number_mistakes()] or [*self._damage_mistakes(), *self._circuit_mistakes()]:
            raise CompileError(*mistakes)

    @property
    def switch(self) -> Hub | None:
        """The hub of a node where it is a switch."""
        return self.hub if self.hub is not None and self.hub.capacity else None

    @property
    def switches(self) -> Switches:
        """Those of nodes, and of the network that joins them."""
        assert self.hub is not None
        return Switches(self.rows, self.cols, self.link, self.hub, self.network)

    @property
    def vertices(self) -> int:
        """Dies, and both vertices of every switch."""
        return self.dies if self.switch is None else self.dies + 2 * self.switches.count

    @property
    def fold(self) -> Fold | None:
        """How a mesh of three dimensions is folded; None of one of two."""
        if not self.planes:
            return None
        closed = self.torus.planes, self.torus.cols, self.torus.rows
        return Fold(self.planes, self.rows // self.planes, self.cols, closed)

    @property
    def extents(self) -> tuple[int, ...]:
        """Rows and columns, behind the planes if there are any: the extent of each part of a place."""
        return self.fold.extents if self.fold else (self.rows, self.cols)

    @property
    def rows_by_place(self) -> tuple[int, ...]:
        """The rows of the mesh in the order in which a user counts them."""
        return tuple(sorted(range(self.rows), key=lambda r: self.place_of((r, 0))))

    @property
    def size(self) -> str:
        """The extents as a user writes them: `4 x 8`."""
        return " x ".join(map(str, self.extents))

    @property
    def dies(self) -> int:
        """Dies of the mesh, dead ones included."""
        return self.rows * self.cols

    @property
    def live_dies(self) -> int:
        return self.dies - len(self.dead_dies)

    def live_numbers(self) -> Iterator[int]:
        """The numbers of the live dies, in order."""
        return (d for d in range(self.dies) if self.coordinate(d) not in self.dead_dies)

    def die_at(self, number: int) -> Die:
        """The die of a number."""
        return dict(self.unlike).get(self.coordinate(number), self.die)

    def weakest(self, dies: Iterable[int]) -> Die:
        """What every one of some dies has at least: the least peak, and the least HBM and bandwidth of it."""
        if not self.unlike:
            return self.die
        unlike = dict(self.unlike)
        return reduce(Die.least, [unlike.get(self.coordinate(d), self.die) for d in dies])

    def by_speed(self) -> list[int]:
        """The live dies, those that hold a program up least first: with more HBM, with a higher peak."""
        unlike = dict(self.unlike)

        def speed(number: int) -> tuple[int, int, int]:
            die = unlike.get(self.coordinate(number), self.die)
            return -die.peak, -die.hbm, -die.hbm_bandwidth

        return sorted(self.live_numbers(), key=speed)

    @property
    def peak(self) -> int:
        """FLOP/s of all live dies."""
        lost = sum(self.die.peak - die.peak for at, die in self.unlike if at not in self.dead_dies)
        return self.live_dies * self.die.peak - lost

    @property
    def live_links(self) -> int:
        """Live links between neighbours, each of its two directions counted."""
        around = {
            dead_link(die, n) for die in self.dead_dies for n in ends_around(self, die) if self.joins(die, n)
        }
        if self.switch is not None:
            return self.switches.links_between(self.live_numbers())
        return 2 * (self._built_links() - len(self.missing_links | around))

    @property
    def missing_links(self) -> frozenset[DeadLink]:
        """Links of the mesh that carry nothing: dead ones, and circuits that are not up."""
        return self.dead_links | (self.circuits.down if self.circuits else frozenset())

    def is_missing(self, a: Coordinate, b: Coordinate) -> bool:
        """Whether the link between two neighbours is one of `missing_links`."""
        link = dead_link(a, b)
        return link in self.dead_links or (self.circuits is not None and link in self.circuits.down)

    @property
    def links(self) -> tuple[Link, ...]:
        """The classes of links: that of the wafer first, then those that join wafers in a row, and in a column, or
        those of switches."""
        if self.hub is not None:
            return self.switches.links
        return (self.link,) if self.joint is None else (self.link, *self.joint.links)

    @property
    def channels(self) -> int:
        """The virtual channels that every link has."""
        return min(link.channels for link in self.links)

    def joins(self, a: Coordinate, b: Coordinate) -> bool:
        """Whether the machine has a link between two coordinates on the mesh, dead or alive."""
        if self.fold is not None:
            return self.fold.joins(a, b)
        if self.hub is not None:
            return a != b
        down, right = abs(a[0] - b[0]), abs(a[1] - b[1])
        is_row = down == 0 and (right == 1 or (self.torus.rows and right == self.cols - 1 > 1))
        is_column = right == 0 and (down == 1 or (self.torus.cols and down == self.rows - 1 > 1))
        if not (is_row or is_column):
            return False
        return self.joint is None or not self.is_across(a, b) or self.joint.has_port(a, b)

    def is_across(self, a: Coordinate, b: Coordinate) -> bool:
        """Whether the link between two neighbours leads from a wafer of a system to another, or around it."""
        if self.joint is None:
            return False
        rows, cols = self.joint.rows, self.joint.cols
        is_far = abs(a[0] - b[0]) + abs(a[1] - b[1]) > 1
        return is_far or (a[0] // rows, a[1] // cols) != (b[0] // rows, b[1] // cols)

    def link_class(self, a: int, b: int) -> int:
        """The class of the link between two neighbouring dies: its place in `links`."""
        if self.hub is not None:
            return self.switches.link_class(a, b)
        if self.joint is None:
            return 0
        ends = self.coordinate(a), self.coordinate(b)
        return 0 if not self.is_across(*ends) else 1 if ends[0][0] == ends[1][0] else 2

    def unbuilt_links(self) -> Iterator[DeadLink]:
        """Neighbours on the mesh that no link joins: edges of wafers without a port."""
        if self.joint is not None and self.joint.ports:
            for die in product(range(self.rows), range(self.cols)):
                for n in ((die[0], die[1] + 1), (die[0] + 1, die[1])):
                    if self._is_on_mesh(n) and not self.joins(die, n):
                        yield (die, n)

    def _built_links(self) -> int:
        if self.fold is not None:
            return self.fold.links
        if self.hub is not None:
            return self.dies * (self.dies - 1) // 2
        around = self.torus.rows and self.cols > 2, self.torus.cols and self.rows > 2
        wraps = around[0] * self.rows + around[1] * self.cols
        mesh = self.rows * (self.cols - 1) + self.cols * (self.rows - 1)
        if self.joint is None or not self.joint.ports:
            return mesh + wraps
        dies = product(range(self.rows), range(self.cols))
        return sum(self.joins(die, n) for die in dies for n in ends_around(self, die)) // 2

    def number(self, coordinate: Coordinate) -> int:
        """The number of the die at (row, column)."""
        return coordinate[0] * self.cols + coordinate[1]

    def with_faster_links(self, factor: int) -> Wafer:
        """The same wafer with links of so many times the bandwidth."""

        joint = self.joint and replace(self.joint, link=self.joint.link.faster(factor))
        return replace(self, link=self.link.faster(factor), joint=joint)

    def coordinate(self, die: int) -> Coordinate:
        """(row, column) of a die; vertices of a switch are named as if they lay behind the dies of their node."""
        if die >= self.dies:
            row, side = divmod(die - self.dies, 2)
            return row, self.cols + side
        return divmod(die, self.cols)

    def place(self, die: int) -> Place:
        """What a user calls a die: (row, column), behind the plane if there are any."""
        return self.place_of(self.coordinate(die))

    def vertex(self, place: Place) -> int:
        """The die or the vertex of a switch that `place` gives the name of."""
        if place[-1] >= self.cols:
            return self.switches.entry(place[0]) + place[-1] - self.cols
        coordinate = self.at(place)
        assert coordinate is not None, "what is reported is on the mesh"
        return self.number(coordinate)

    def place_of(self, coordinate: Coordinate) -> Place:
        """The place at a coordinate."""
        return self.fold.place(coordinate) if self.fold else coordinate

    def at(self, place: Place) -> Coordinate | None:
        """The coordinate of a place; None if it is not on the mesh."""
        if len(place) != len(self.extents) or not all(
            0 <= n < m for n, m in zip(place, self.extents, strict=True)
        ):
            return None
        return self.fold.cell(place) if self.fold else (place[0], place[1])

    def _number_mistakes(self) -> Iterator[Diagnostic]:
        mesh = f"wafer `{self.name}` has a mesh of {self.rows} x {self.cols} dies"
        if self.rows < 1 or self.cols < 1:
            yield Diagnostic(Code.NUMBER, mesh, help="use at least 1 row and 1 column")
        elif self.dies > MAX_DIES:
            yield Diagnostic(Code.LIMIT, f"{mesh}; the largest has {MAX_DIES}", help="use a smaller mesh")
        elif self.hub is not None and (
            (self.rows > 1 and self.network is None) or self.planes or self.joint or self.torus != OPEN
        ):
            yield Diagnostic(Code.NUMBER, f"{mesh}: a node has one row of dies, and a network joins several")
        elif self.planes is not None and (self.planes < 1 or self.rows % self.planes or self.joint):
            why = "is a system" if self.joint else f"is none of {self.planes} planes"
            yield Diagnostic(Code.NUMBER, f"{mesh}, which {why}")
        mistakes = [("die", m) for m in (*beyond_limits(self.die), *self.die.disagreements())]
        for _, die in self.unlike:
            mistakes += [("die", m) for m in (*beyond_limits(die), *die.disagreements())]
        mistakes += [("link", m) for m in beyond_limits(self.link)]
        joint = self.joint.mistakes_on(self.rows, self.cols) if self.joint else ()
        mistakes += [("joint", m) for m in joint]
        mistakes += [("switch", m) for m in self.switches.mistakes()] if self.hub and self.dies > 0 else []
        if self.circuits:
            is_mesh = self.hub is None and self.joint is None
            mistakes += [("circuits", m) for m in self.circuits.mistakes_on(len(self.extents), is_mesh)]
        for section, (name, words) in mistakes:
            message = f"wafer `{self.name}`: {section} {name.replace('_', ' ')} {words}"
            yield Diagnostic(Code.NUMBER, message)

    def _circuit_mistakes(self) -> Iterator[Diagnostic]:
        if self.circuits is None or not self.circuits.are_set:
            return
        for a, b in sorted(self.circuits.down):
            if not (self._is_on_mesh(a) and self._is_on_mesh(b) and self.joins(a, b) and a < b):
                yield Diagnostic(Code.OFF_MESH, f"{a} - {b} is no link of `{self.name}` that could be down")
        for die in sorted({*product(range(self.rows), range(self.cols))} - self.dead_dies):
            links = sum(not self.is_missing(die, n) for n in {*ends_around(self, die)} - self.dead_dies)
            if links > self.circuits.up:
                message = f"die {self.place_of(die)} has {links} links up, by `{self.circuits.words}`"
                yield Diagnostic(Code.NUMBER, message)

    def _damage_mistakes(self) -> Iterator[Diagnostic]:
        extent = self.what_places_are()
        off = f"is not on the mesh of `{self.name}`"
        for at, unlike in self.unlike:
            if not self._is_on_mesh(at):
                yield Diagnostic(Code.OFF_MESH, f"die {at} {off}", help=extent)
            if self.die.least(unlike) != unlike.least(self.die):  # what is no less of either
                message = f"die {at} of `{self.name}` differs in more than its peak and HBM"
                yield Diagnostic(Code.NUMBER, message)
        for die in sorted(self.dead_dies):
            if not self._is_on_mesh(die):
                yield Diagnostic(Code.OFF_MESH, f"dead die {die} {off}", help=extent)
        for a, b in sorted(self.dead_links):
            if self.switch is not None:
                message = f"`{self.name}` has no links between dies: each has one to the switch"
                yield Diagnostic(Code.OFF_MESH, message, help="a die without its link is dead")
                continue
            link = f"dead link {self.place_of(a)} - {self.place_of(b)}"
            strays = [end for end in (a, b) if not self._is_on_mesh(end)]
            if strays:
                yield Diagnostic(Code.OFF_MESH, f"{link}: die {strays[0]} {off}", help=extent)
            elif not self.joins(a, b):
                message = f"{link} does not join two neighbours"
                yield Diagnostic(Code.OFF_MESH, message, help=self.what_links_join())
            else:
                assert a < b, "dead links are sorted pairs: make them with `dead_link`"

    def what_places_are(self) -> str:
        """Words for whoever names a die that does not exist."""
        names = ("planes",) * bool(self.planes) + ("rows", "columns")
        first, *others = zip(names, self.extents, strict=True)
        return ", ".join((f"{first[0]} are 0 to {first[1] - 1}", *(f"{n} 0 to {m - 1}" for n, m in others)))

    def what_links_join(self) -> str:
        """Words for whoever names a link that does not exist."""
        ends = " or the two ends of a closed row or column" if self.torus != OPEN else ""
        if self.hub is not None:
            return "name two dies of the node, which has no switch"
        if self.planes:
            return f"name two dies that differ by one in one of plane, row and column{ends}"
        ports = "; between wafers, dies with a port" if self.joint and self.joint.ports else ""
        return f"name two dies that share an edge{ends}{ports}"

    def _is_on_mesh(self, coordinate: Coordinate) -> bool:
        return 0 <= coordinate[0] < self.rows and 0 <= coordinate[1] < self.cols


def ends_around(wafer: Wafer, die: Coordinate) -> Iterator[Coordinate]:
    """The coordinates where links of a die end: left, right, up and down, around the ends of a torus; dead or not."""
    if wafer.fold is not None:
        yield from wafer.fold.around(die)
        return
    if wafer.hub is not None:
        nodes = range(wafer.rows) if wafer.network else (die[0],)
        yield from ((r, c) for r in nodes for c in range(wafer.cols) if (r, c) != die)
        return
    (r, c), (rows, cols) = die, (wafer.rows, wafer.cols)
    around = wafer.torus.rows and cols > 2, wafer.torus.cols and rows > 2
    for n_r, n_c in ((r, c - 1), (r, c + 1), (r - 1, c), (r + 1, c)):
        if (0 <= n_r < rows or around[1]) and (0 <= n_c < cols or around[0]):
            end = (n_r % rows, n_c % cols)
            if wafer.joint is None or wafer.joins(die, end):
                yield end
