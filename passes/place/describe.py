"""The description of a placement: the kind of each group of each axis, hops, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from wscc.machine.topology import Topology
from wscc.passes.place.hops import Price
from wscc.passes.place.types import (
    AxisPlacement,
    GroupKind,
    IntArray,
    Placement,
    Shape,
    axis_groups,
    kind_of,
)


def describe(
    topology: Topology, shape: Shape, price: Price, dies: IntArray, method: str, *, optimal: bool, open_reason: str
) -> Placement:  # fmt: skip
    """The placement on `dies`; `open_reason` says why a ring axis is not of closed rings, where it is not."""
    axes = []
    for i, (axis, hops) in enumerate(zip(shape, price.by_axis(dies), strict=True)):
        groups = [dies[g].tolist() for g in axis_groups(shape, i)]
        kinds = tuple(kind_of(topology, g) for g in groups)
        worst = max(kinds, key=list(GroupKind).index)
        note = _note(kinds, open_reason) if axis.ring and worst is not GroupKind.RING else ""
        axes.append(AxisPlacement(axis.name, worst, kinds, hops, note))
    return Placement(tuple(dies.tolist()), method, tuple(axes), optimal)


def _note(kinds: Sequence[GroupKind], reason: str) -> str:
    apart = kinds.count(GroupKind.NEAR)
    closed = kinds.count(GroupKind.RING)
    lies = f"{apart} of {len(kinds)} groups are no neighbours" if apart else "open paths, no closed rings"
    mixed = (
        f" ({closed} of {len(kinds)} groups could be closed, but one program serves all)" if closed else ""
    )
    return f"{lies}: {reason}{mixed}"
