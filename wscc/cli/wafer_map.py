"""A wafer as text: which logical die sits where."""

from __future__ import annotations

from math import prod

from wscc.ir.module import Module

_LARGEST = 16  # columns or rows that fit a terminal


def wafer_map(placed: Module) -> list[str]:
    """One line per row of the mesh: each used die by its coordinates on the axes, `-` over the whole width idle,
    `X` dead.
    Empty for one die, and for meshes too large to print."""
    wafer = placed.machine
    if placed.dies_used == 1 or max(wafer.rows, wafer.cols) > _LARGEST:
        return []
    names = {die: _coordinates(i, placed.axes) for i, die in enumerate(placed.dies)}
    width = max(map(len, names.values()))
    rows = []
    for r in range(wafer.rows):
        cells = []
        for c in range(wafer.cols):
            idle = "X" * width if (r, c) in wafer.dead_dies else "-" * width
            cells.append(names.get(r * wafer.cols + c, idle).rjust(width))
        rows.append("  ".join(cells))
    return rows


def _coordinates(index: int, axes: tuple[tuple[str, int], ...]) -> str:
    sizes = [n for _, n in axes]
    return ".".join(str(index // prod(sizes[i + 1 :]) % n) for i, n in enumerate(sizes))
