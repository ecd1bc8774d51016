"""The map of links: each direction of each link in the colour of the bytes that it carries in a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wscc.pictures.facts import LinkLoad, LoadMap, Place
from wscc.pictures.svg import (
    BLANK,
    DEAD,
    FAINT,
    FILLS,
    HEAD,
    LINE,
    MARGIN,
    element,
    line,
    number,
    picture,
    rectangle,
    text,
    titled,
)  # fmt: skip

_PITCH: Final = 66.0
_SIDE: Final = 28.0  # of a die
_EDGE: Final = 22.0
_APART: Final = 4.0  # of the two directions of a link, from the middle
_STUB: Final = 13.0  # of a link around a torus, at both of its ends
_LEAST: Final = 480.0
# From little to much; the first is for what carries anything at all.
_SCALE: Final = ("#fde68a", "#fbbf24", "#f97316", "#dc2626", "#7f1d1d")


def load_svg(facts: LoadMap) -> str:
    """The map as SVG text. Of the two lines of a link, each direction keeps to its right."""
    mesh = facts.mesh
    width = max(_LEAST, 2 * MARGIN + _EDGE + (mesh.cols - 1) * _PITCH + _SIDE)
    bottom = HEAD + _EDGE + (mesh.rows - 1) * _PITCH + _SIDE
    most = max((load.bytes for load in facts.loads), default=0)
    parts = [*_numbers(facts), *(_link(load, most) for load in facts.loads), *_dies(facts)]
    return picture(width, bottom + 66, facts.title, facts.subtitle, [*parts, *_legend(most, bottom + 18)])


def _centre(place: Place) -> tuple[float, float]:
    x = MARGIN + _EDGE + place[1] * _PITCH + _SIDE / 2
    return x, HEAD + _EDGE + place[0] * _PITCH + _SIDE / 2


def _numbers(facts: LoadMap) -> Iterator[str]:
    for c in range(facts.mesh.cols):
        yield text(_centre((0, c))[0], HEAD + _EDGE - 8, str(c), 11, FAINT, "middle")
    for r in range(facts.mesh.rows):
        yield text(MARGIN + 4, _centre((r, 0))[1] + 4, facts.mesh.row_name(r), 11, FAINT, "middle")


def _dies(facts: LoadMap) -> Iterator[str]:
    for r in range(facts.mesh.rows):
        for c in range(facts.mesh.cols):
            x, y = _centre((r, c))
            is_dead = (r, c) in facts.mesh.dead_dies
            fill = "#fef2f2" if is_dead else FILLS[0] if (r, c) in facts.used else BLANK
            state = "dead" if is_dead else "used" if (r, c) in facts.used else "idle"
            more = {"stroke_dasharray": "3 3"} if state != "used" else {}
            box = rectangle(
                x - _SIDE / 2,
                y - _SIDE / 2,
                _SIDE,
                _SIDE,
                fill,
                stroke=DEAD if is_dead else LINE,
                rx=5,
                **more,
            )
            yield titled(box, f"die ({r}, {c}): {state}")


def _link(load: LinkLoad, most: int) -> str:
    (x1, y1), (x2, y2) = _centre(load.source), _centre(load.target)
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    if is_far := abs(x2 - x1) + abs(y2 - y1) > 1.5 * _PITCH:  # around a torus: it leaves on the other side
        dx, dy = -dx, -dy
    sx, sy = -dy * _APART, dx * _APART
    reach = _SIDE / 2
    start, end = (x1 + sx + dx * reach, y1 + sy + dy * reach), (x2 + sx - dx * reach, y2 + sy - dy * reach)
    stub = (dx * _STUB, dy * _STUB)
    ends = (
        [(*start, start[0] + stub[0], start[1] + stub[1]), (end[0] - stub[0], end[1] - stub[1], *end)]
        if is_far
        else [(*start, *end)]
    )
    colour = _colour(load.bytes, most)
    shape = "".join(line(*e, colour, 5 if load.bytes else 2) for e in ends)
    return titled(shape, f"{load.source} to {load.target}: {load.bytes:,} bytes")


def _colour(amount: int, most: int) -> str:
    if not amount:
        return "#e5e7eb"
    return _SCALE[min(len(_SCALE) - 1, len(_SCALE) * amount // most)]


def _legend(most: int, y: float) -> Iterator[str]:
    x = MARGIN
    yield line(x, y + 6, x + 22, y + 6, "#e5e7eb", 2)
    yield text(x + 28, y + 10, "nothing")
    x += 92
    for i, colour in enumerate(_SCALE):
        yield rectangle(x + 26 * i, y, 26, 12, colour)
    unit = size(most)
    yield text(x, y + 27, "more than 0", 11, FAINT)
    yield text(x + 26 * len(_SCALE) + 8, y + 10, f"up to {unit} a step and direction")
    head = f"M{number(x + 26 * len(_SCALE) - 8)} {number(y + 17)}l8 4l-8 4"
    yield element("path", d=head, fill="none", stroke=FAINT)
    yield text(x + 26 * len(_SCALE) + 8, y + 27, "each direction keeps to its right", 11, FAINT)


def size(amount: int) -> str:
    """Words for a number of bytes: three digits and a unit."""
    value, units = float(amount), ["B", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
