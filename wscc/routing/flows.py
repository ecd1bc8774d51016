"""Flows (messages to route), demands (flows merged by content) and the pieces and legs of a routing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, CompileError, Diagnostic
from wscc.machine.topology import UNREACHABLE, Path, Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Bytes of all flows together: every load, and every sum of loads, is then exact in 64 bits.
MAX_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Flow:
    """`bytes` (at least 1) from one die to another, by physical numbers.

    Flows with the same source and `content` are the same bytes for several destinations (multicast); None is
    a content of its own. A `pinned` flow is one hop, stays on its link and is merged with nothing.
    """

    source: int
    destination: int
    bytes: int
    content: str | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """The same bytes for one or several dies. `flows[i]` are the numbers of the flows that end at
    `destinations[i]`; destinations are distinct and none is the source."""

    source: int
    bytes: int
    destinations: tuple[int, ...]
    flows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """`bytes` of a demand, sent on one virtual channel along `paths`, one for each of its destinations.

    A link that several of the paths share carries the bytes once.
    """

    demand: Demand
    bytes: int
    channel: int
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One path of one flow. Legs of one source, content and `piece` are one transmission, which crosses a link
    that they share once."""

    flow: int
    piece: int
    bytes: int
    channel: int
    path: Path


def check_flows(topology: Topology, flows: Sequence[Flow]) -> None:
    """Check that every flow can be routed.

    Raises `CompileError` with every flow that cannot: W005 its bytes, or those of all together; W007 the same
    content with other bytes; W302 an end that is dead or out of reach; W303 a pinned flow of not one hop."""
    diagnostics = [d for i, f in enumerate(flows) for d in _mistakes(topology, i, f)]
    if not diagnostics and sum(f.bytes for f in flows) > MAX_BYTES:
        diagnostics.append(Diagnostic(Code.NUMBER, f"the flows move more than {MAX_BYTES:,} bytes together"))
    sizes: dict[tuple[int, str], int] = {}
    for i, f in enumerate(flows):
        if f.content is not None and not f.pinned:
            size = sizes.setdefault((f.source, f.content), f.bytes)
            if size != f.bytes:
                message = f"flow {i} moves {f.bytes} bytes of `{f.content}`, an earlier one {size}"
                diagnostics.append(Diagnostic(Code.DUPLICATE, message))
    if diagnostics:
        raise CompileError(*diagnostics)


def _mistakes(topology: Topology, i: int, f: Flow) -> list[Diagnostic]:
    for die in (f.source, f.destination):
        if not topology.is_live(die):
            return [Diagnostic(Code.DISCONNECTED, f"flow {i}: die {die} is dead or not on the wafer")]
    if f.bytes < 1:
        return [
            Diagnostic(Code.NUMBER, f"flow {i} moves {f.bytes} bytes", help="a flow moves at least 1 byte")
        ]
    if f.pinned and not topology.are_adjacent(f.source, f.destination):
        return [Diagnostic(Code.NO_PATH, f"flow {i} is pinned, and no live link joins its two dies")]
    if topology.distance(f.source, f.destination) == UNREACHABLE:
        ends = " and ".join(topology.name_of(d) for d in (f.source, f.destination))
        return [Diagnostic(Code.DISCONNECTED, f"flow {i}: no live path joins dies {ends}")]
    return []


def single_demands(flows: Sequence[Flow]) -> tuple[Demand, ...]:
    """A demand for each flow that crosses a link; flows of the same content are not merged."""
    return tuple(
        Demand(f.source, f.bytes, (f.destination,), ((i,),))
        for i, f in enumerate(flows)
        if f.source != f.destination
    )


def merged_demands(flows: Sequence[Flow]) -> tuple[Demand, ...]:
    """The demands of flows that are not pinned, one for each content of a source, in order of first flows."""
    groups: dict[tuple[int, object], dict[int, list[int]]] = {}
    for i, f in enumerate(flows):
        if not f.pinned and f.source != f.destination:
            key = (f.source, i if f.content is None else f.content)
            groups.setdefault(key, {}).setdefault(f.destination, []).append(i)
    return tuple(
        Demand(
            source, flows[next(iter(ends.values()))[0]].bytes, tuple(ends), tuple(map(tuple, ends.values()))
        )
        for (source, _), ends in groups.items()
    )


def legs_of(flows: Sequence[Flow], pieces: Sequence[Piece]) -> tuple[Leg, ...]:
    """The legs of every flow, in order of flows and pieces; the path of a flow from a die to itself is that die."""
    legs = [Leg(i, 0, f.bytes, 0, (f.source,)) for i, f in enumerate(flows) if f.source == f.destination]
    last_piece: dict[tuple[int, object], int] = {}
    for p in pieces:
        first = p.demand.flows[0][0]
        content = None if flows[first].pinned else flows[first].content
        key = (p.demand.source, first if content is None else content)
        piece = last_piece[key] = last_piece.get(key, -1) + 1
        for path, ends in zip(p.paths, p.demand.flows, strict=True):
            legs += [Leg(i, piece, p.bytes, p.channel, path) for i in ends]
    return tuple(sorted(legs, key=lambda leg: (leg.flow, leg.piece)))
