"""An independent check of a placement, from the wafer and the placement alone: no code of the solver is used."""

from __future__ import annotations

from collections import deque
from math import prod

from wscc.machine.wafer import Wafer, ends_around
from wscc.passes.place.types import GroupKind, Placement, Shape


class PlacementBug(AssertionError):
    """A placement of the solver is wrong: a fault of wscc."""


def check_placement(wafer: Wafer, shape: Shape, placement: Placement) -> None:
    """Check that dies are live, used once and connected, and groups as reported. Raises `PlacementBug` if not."""
    dies = [divmod(d, wafer.cols) for d in placement.dies]
    if len(dies) != prod(a.size for a in shape):
        raise PlacementBug(f"{len(dies)} dies for a strategy of {[a.size for a in shape]}")
    if len(set(dies)) != len(dies):
        raise PlacementBug("a die is used twice")
    for r, c in dies:
        if not (0 <= r < wafer.rows and 0 <= c < wafer.cols) or (r, c) in wafer.dead_dies:
            raise PlacementBug(f"die {(r, c)} is not live")
    stride = len(dies)
    for axis, placed in zip(shape, placement.axes, strict=True):
        stride //= axis.size
        firsts = [i for i in range(len(dies)) if i // stride % axis.size == 0]
        kinds = [_kind(wafer, [dies[i + k * stride] for k in range(axis.size)]) for i in firsts]
        if tuple(kinds) != placed.groups or placed.name != axis.name:
            raise PlacementBug(f"groups of `{axis.name}` are not as reported")
        if axis.ring and GroupKind.NEAR in kinds:
            raise PlacementBug(f"a group of `{axis.name}` is not a path of neighbours")
    _check_connected(wafer, dies)


def _kind(wafer: Wafer, group: list[tuple[int, int]]) -> GroupKind:
    if not all(_are_adjacent(wafer, group[k], group[k + 1]) for k in range(len(group) - 1)):
        return GroupKind.NEAR
    closed = len(group) < 3 or _are_adjacent(wafer, group[-1], group[0])
    return GroupKind.RING if closed else GroupKind.PATH


def _are_adjacent(wafer: Wafer, a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether a live link joins two live dies."""
    if not wafer.joins(a, b) or {a, b} & wafer.dead_dies:
        return False
    return not wafer.is_missing(a, b)


def _check_connected(wafer: Wafer, dies: list[tuple[int, int]]) -> None:
    """Raise `PlacementBug` unless all dies are on one island (paths between them may pass other live dies)."""
    # The nearest first, and no further than the last of them: the wafer may be much larger.
    reached, frontier, missing = {dies[0]}, deque([dies[0]]), set(dies[1:])
    while frontier and missing:
        die = frontier.popleft()
        for n in ends_around(wafer, die):
            if n not in reached and _are_adjacent(wafer, die, n):
                reached.add(n)
                frontier.append(n)
                missing.discard(n)
    if missing:
        raise PlacementBug("the dies lie on several islands")
