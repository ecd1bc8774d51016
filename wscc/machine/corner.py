"""The corner of a large wafer that a program of few dies lives in: what is placed, routed and counted stays in it.

Placing and routing look at every die of a topology, and a wafer may have a hundred thousand times as many as a program
uses. Numbers and coordinates of dies are those of the whole wafer, so that nothing else has to know of the corner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from math import isqrt
from typing import Final

from wscc.machine.topology import Topology, mesh_topology, neighbour_topology
from wscc.machine.wafer import Wafer

# Wafers of up to so many dies, and those of which a program uses more than one in so many, are looked at whole.
_WHOLE: Final = 256
_SPARE: Final = 16
# Rows and columns of the first corner: enough for four times the dies, each for itself with room to go around it.
_LEAST, _ROOM = 8, 4


def corners(wafer: Wafer, used: int) -> Iterator[Topology]:
    """Corners in which a program of `used` dies may find its place, each larger than the one before it; the last one
    is the whole wafer."""
    if wafer.switch is not None:
        yield neighbour_topology(wafer)
        return
    side = max(_LEAST, isqrt(_ROOM * used - 1) + 1)
    if wafer.dies > _WHOLE and used * _SPARE <= wafer.dies:
        while side < max(wafer.rows, wafer.cols):
            yield _corner(wafer, side)
            side *= 2
    yield mesh_topology(wafer)


def topology_of(wafer: Wafer, dies: Collection[int]) -> Topology:
    """The smallest of these corners in which live links join all the dies that a program was placed on."""
    if wafer.switch is not None:
        return mesh_topology(wafer)
    for topology in corners(wafer, len(dies)):
        if is_whole(topology, wafer) or any(set(dies) <= set(island) for island in topology.islands):
            return topology
    return mesh_topology(wafer)


def is_whole(topology: Topology, wafer: Wafer) -> bool:
    """Whether a topology has all the live dies of the wafer."""
    return len(topology.live) == wafer.live_dies


@lru_cache(maxsize=64)
def _corner(wafer: Wafer, side: int) -> Topology:
    return Topology.corner(wafer, min(side, wafer.rows), min(side, wafer.cols))
