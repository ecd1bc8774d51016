"""The load of links as text: a map of the mesh, and a table of the hottest links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import prod

from wscc.ir.module import Module
from wscc.machine.topology import Hop
from wscc.machine.wafer import Wafer
from wscc.routing.flows import Ints
from wscc.routing.loads import LinkLoad

_WIDTH = 100  # columns of a terminal
_LARGEST = 24  # rows of a mesh that is drawn
_NAMED = 16  # columns or rows of a mesh whose dies are named


def heat_maps(wafer: Wafer, links: Sequence[Hop], before: Ints, after: Ints) -> list[str]:
    """Maps of both loads (bytes by link, in the order of `links`), side by side where they fit; empty for a mesh too
    large to draw. Between two dies stands the larger load of the two directions in tenths of the largest load before,
    `.` for none."""
    maps = [heat_map(wafer, links, load, int(before.max(initial=0))) for load in (before, after)]
    width = 4 * wafer.cols - 3 + 4 * wafer.torus.rows
    if wafer.hub or width > _WIDTH or wafer.rows > _LARGEST or wafer.dies == 1:
        return []
    if 2 * width + 6 > _WIDTH:
        return ["before", *maps[0], "", "after", *maps[1]]
    pairs = zip_longest(["before", *maps[0]], ["after", *maps[1]], fillvalue="")
    return [f"{left:<{width}}      {right}".rstrip() for left, right in pairs]


def heat_map(wafer: Wafer, links: Sequence[Hop], load: Ints, top: int) -> list[str]:
    """A map of loads in tenths of `top`: `o` a die, `X` a dead one, a blank where no live link is. A link around a
    torus stands at both ends of its row or column. Of three dimensions the folded mesh is drawn (`wscc.machine.fold`),
    and of links between planes those where it folds."""
    top_rows, left = int(wafer.torus.cols or wafer.torus.planes), 2 * wafer.torus.rows
    rows = [[" "] * (4 * wafer.cols - 3 + 2 * left) for _ in range(2 * wafer.rows - 1 + 2 * top_rows)]
    for die in range(wafer.dies):
        r, c = wafer.coordinate(die)
        rows[2 * r + top_rows][4 * c + left] = "X" if (r, c) in wafer.dead_dies else "o"
    larger: dict[Hop, int] = {}
    for (a, b), amount in zip(links, load.tolist(), strict=True):
        pair = (min(a, b), max(a, b))
        larger[pair] = max(larger.get(pair, 0), amount)
    for (a, b), amount in larger.items():
        mark = "." if not amount else str(min(9, 10 * amount // top))
        (r, c), (r2, c2) = wafer.coordinate(a), wafer.coordinate(b)
        if abs(r - r2) + abs(c - c2) == 1:
            rows[r + r2 + top_rows][2 * (c + c2) + left] = mark
        elif r == r2:
            rows[2 * r + top_rows][0] = rows[2 * r + top_rows][-1] = mark
        elif c == c2 and {r, r2} == {0, wafer.rows - 1}:
            rows[0][4 * c + left] = rows[-1][4 * c + left] = mark
    return ["".join(row).rstrip() for row in rows]


def die_map(wafer: Wafer, share: Mapping[int, float]) -> list[str]:
    """A map of dies in tenths of 1: `X` a dead one, `-` one without a value. Empty for a mesh too large to draw."""
    if 2 * wafer.cols - 1 > _WIDTH or wafer.rows > _LARGEST:
        return []
    rows = []
    for r in wafer.rows_by_place:
        cells = []
        for c in range(wafer.cols):
            value = share.get(wafer.number((r, c)))
            idle = "X" if (r, c) in wafer.dead_dies else "-"
            cells.append(idle if value is None else str(min(9, int(10 * value))))
        rows.append(" ".join(cells))
    return rows


def hottest_links(wafer: Wafer, before: Ints, after: Sequence[LinkLoad], count: int = 5) -> list[str]:
    """A table of the most loaded links after routing, with their loads before; empty if no link is loaded."""
    hottest = sorted(range(len(after)), key=lambda i: (-after[i].bytes, i))[:count]
    lines = [
        f"{'hottest links':<22}{'XY bytes':>18}{'bytes':>18}{'messages':>10}{'queueing':>10}{'conflicts':>10}"
    ]
    for i in hottest:
        link = after[i]
        if link.bytes:
            name = " - ".join(",".join(map(str, wafer.place(d))) for d in link.link)
            numbers = f"{int(before[i]):>18,}{link.bytes:>18,}"
            lines.append(f"{name:<22}{numbers}{link.messages:>10,}{link.queueing:>10,}{link.conflicts:>10,}")
    return lines if len(lines) > 1 else []


def wafer_map(placed: Module) -> list[str]:
    """One line per row of the mesh: each used die by its coordinates on the axes, idle ones as `-` and dead ones as `X`
    over the whole width. Empty for one die, and for meshes too large to print."""
    wafer = placed.machine
    if placed.dies_used == 1 or max(wafer.rows, wafer.cols) > _NAMED:
        return []
    names = {die: _coordinates(i, placed.axes) for i, die in enumerate(placed.dies)}
    width = max(map(len, names.values()))
    rows = []
    for r in wafer.rows_by_place:
        cells = []
        for c in range(wafer.cols):
            idle = "X" * width if (r, c) in wafer.dead_dies else "-" * width
            cells.append(names.get(r * wafer.cols + c, idle).rjust(width))
        rows.append("  ".join(cells))
    return rows


def _coordinates(index: int, axes: tuple[tuple[str, int], ...]) -> str:
    sizes = [n for _, n in axes]
    return ".".join(str(index // prod(sizes[i + 1 :]) % n) for i, n in enumerate(sizes))
