"""The map of a wafer: each die where it lies, its coordinates on the axes, and the rings along which shards travel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from wscc.pictures.facts import Die, Mesh, Place, Ring, WaferMap
from wscc.pictures.svg import (
    ACCENT,
    BLANK,
    DEAD,
    FAINT,
    FILLS,
    HEAD,
    LINE,
    MARGIN,
    element,
    fitting,
    legend,
    line,
    number,
    picture,
    rectangle,
    swatch,
    text,
    titled,
    width_of,
)  # fmt: skip

_WIDE: Final = 74.0
_HIGH: Final = 54.0
_GAP: Final = 16.0
_EDGE: Final = 22.0  # for the numbers of rows and columns
_LEAST: Final = 480.0
_RING_AT: Final = 0.68  # of the height of a die: below its label


def wafer_svg(facts: WaferMap) -> str:
    """The map as SVG text; dead dies are crossed out, dead links too, dies without a part are blank."""
    mesh = facts.mesh
    width = max(_LEAST, 2 * MARGIN + _EDGE + mesh.cols * (_WIDE + _GAP) - _GAP)
    bottom = HEAD + _EDGE + mesh.rows * (_HIGH + _GAP)
    marks, height = legend(list(_legend(facts)), MARGIN, bottom + 4, width - 2 * MARGIN)
    parts = [*_numbers(mesh), *_links(mesh), *_dies(facts), *_rings(facts), *_labels(facts), *marks]
    return picture(width, bottom + height + MARGIN - 6, facts.title, facts.subtitle, parts)


def _corner(place: Place) -> tuple[float, float]:
    return MARGIN + _EDGE + place[1] * (_WIDE + _GAP), HEAD + _EDGE + place[0] * (_HIGH + _GAP)


def _centre(place: Place) -> tuple[float, float]:
    x, y = _corner(place)
    return x + _WIDE / 2, y + _HIGH / 2


def _numbers(mesh: Mesh) -> Iterator[str]:
    for c in range(mesh.cols):
        yield text(_centre((0, c))[0], HEAD + _EDGE - 8, str(c), 11, FAINT, "middle")
    for r in range(mesh.rows):
        yield text(MARGIN + 4, _centre((r, 0))[1] + 4, mesh.row_name(r), 11, FAINT, "middle")


def _links(mesh: Mesh) -> Iterator[str]:
    """A short line between neighbours that can talk, a thick one between wafers, a stub at both ends of a link around
    a torus; a cross where the link between them is dead."""
    dead = {frozenset(pair) for pair in mesh.dead_links}
    for r in range(mesh.rows):
        for c in range(mesh.cols):
            for other in ((r, c + 1), (r + 1, c)):
                if other[0] == mesh.rows or other[1] == mesh.cols or mesh.dead_dies & {(r, c), other}:
                    continue
                (x1, y1), (x2, y2) = _centre((r, c)), _centre(other)
                if frozenset({(r, c), other}) in dead:
                    yield _cross((x1 + x2) / 2, (y1 + y2) / 2, 4)
                elif ((r, c), other) not in mesh.unbuilt:
                    yield line(
                        x1, y1, x2, y2, *(("#9ca3af", 5) if mesh.is_across((r, c), other) else ("#d1d5db", 2))
                    )
    yield from _around(mesh, dead | {frozenset(pair) for pair in mesh.unbuilt})


def _around(mesh: Mesh, dead: set[frozenset[Place]]) -> Iterator[str]:
    """The stubs of links around a torus."""
    rows = [((r, 0), (r, mesh.cols - 1)) for r in range(mesh.rows) if mesh.closed_rows and mesh.cols > 2]
    columns = [((0, c), (mesh.rows - 1, c)) for c in range(mesh.cols) if mesh.closed_cols and mesh.rows > 2]
    for first, last in (*rows, *columns):
        if not mesh.dead_dies & {first, last} and frozenset({first, last}) not in dead:
            yield _stub(first, first[0] == last[0], -1)
            yield _stub(last, first[0] == last[0], 1)


def _stub(place: Place, in_row: bool, step: int, colour: str = "#d1d5db") -> str:
    """A line that leaves the mesh from a die."""
    x, y = _centre(place)
    dx, dy = (step * (_WIDE / 2 + _GAP * 0.7), 0.0) if in_row else (0.0, step * (_HIGH / 2 + _GAP * 0.7))
    return line(x, y, x + dx, y + dy, colour, 3 if colour == ACCENT else 2)


def _cross(x: float, y: float, size: float) -> str:
    return element(
        "path", d=f"M{number(x - size)} {number(y - size)}l{number(2 * size)} {number(2 * size)}"
        f"M{number(x - size)} {number(y + size)}l{number(2 * size)} {number(-2 * size)}", stroke=DEAD,
        stroke_width=2, fill="none",
    )  # fmt: skip


def _dies(facts: WaferMap) -> Iterator[str]:
    used = {d.place: d for d in facts.dies}
    for r in range(facts.mesh.rows):
        for c in range(facts.mesh.cols):
            yield _die((r, c), used.get((r, c)), is_dead=(r, c) in facts.mesh.dead_dies)


def _die(place: Place, die: Die | None, *, is_dead: bool) -> str:
    x, y = _corner(place)
    where = f"die ({place[0]}, {place[1]})"
    if is_dead:
        box = rectangle(x, y, _WIDE, _HIGH, "#fef2f2", stroke=DEAD, rx=6, stroke_dasharray="3 3")
        return titled(box + _cross(x + _WIDE / 2, y + _HIGH / 2, 9), f"{where}: dead")
    if die is None:
        box = rectangle(x, y, _WIDE, _HIGH, BLANK, stroke=LINE, rx=6, stroke_dasharray="3 3")
        return titled(box, f"{where}: idle")
    box = rectangle(x, y, _WIDE, _HIGH, FILLS[die.colour % len(FILLS)], stroke=LINE, rx=6)
    return titled(box, f"{where}: {die.label}")


def _labels(facts: WaferMap) -> Iterator[str]:
    """Above the rings, on a patch in the colour of the die: a ring that passes is interrupted."""
    height = 22 if facts.rings else _HIGH / 2 + 5
    for die in facts.dies:
        x, y = _corner(die.place)
        size = fitting(_WIDE - 12, die.label, 14)
        wide = width_of(die.label, size) + 4
        yield rectangle(
            x + (_WIDE - wide) / 2, y + height - size, wide, size + 3, FILLS[die.colour % len(FILLS)]
        )
        yield text(x + _WIDE / 2, y + height, die.label, size, anchor="middle", font_weight=600)


def _rings(facts: WaferMap) -> Iterator[str]:
    for ring in facts.rings:
        yield from _ring(ring, facts.mesh)


def _ring(ring: Ring, mesh: Mesh) -> Iterator[str]:
    """Hops between neighbours are whole lines, longer ones dashed; a dot on each die, a larger one on the first."""
    points = [(_centre(p)[0], _corner(p)[1] + _HIGH * _RING_AT) for p in ring.places]
    hops = [*pairwise(ring.places)]
    if ring.closed and len(ring.places) > 2:
        hops.append((ring.places[-1], ring.places[0]))
    for a, b in hops:
        (x1, y1), (x2, y2) = (_centre(p) for p in (a, b))
        shift = _HIGH * (_RING_AT - 0.5)
        if mesh.is_around(a, b):
            in_row = a[0] == b[0]
            yield from (_stub(p, in_row, 1 if p == max(a, b) else -1, ACCENT) for p in (a, b))
            continue
        near = abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
        more = {} if near else {"stroke_dasharray": "5 4", "opacity": 0.6}
        yield line(x1, y1 + shift, x2, y2 + shift, ACCENT, 3, stroke_linecap="round", **more)
    for i, (x, y) in enumerate(points):
        yield element("circle", cx=x, cy=y, r=5 if i == 0 else 3.5, fill=ACCENT)


def _legend(facts: WaferMap) -> Iterator[tuple[str, str]]:
    for i, words in enumerate(facts.colours):
        yield swatch(FILLS[i % len(FILLS)]), words
    if facts.rings:
        yield line(0, 6, 16, 6, ACCENT, 3, stroke_linecap="round"), facts.ring
    places = {d.place for d in facts.dies} | facts.mesh.dead_dies
    if len(places) < facts.mesh.rows * facts.mesh.cols:
        yield rectangle(0, 0, 16, 12, BLANK, stroke=LINE, stroke_dasharray="3 3", rx=2), "idle"
    if facts.mesh.dead_dies or facts.mesh.dead_links:
        yield _cross(8, 6, 4), "dead"
