"""Pictures of a compiled program and the facts for them: places of dies, calls over time, bytes over links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from wscc.driver.compile import graph_of
from wscc.driver.simulate import simulate
from wscc.driver.timeline import StageCall, stage_calls
from wscc.driver.types import Artifact
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.machine.corner import topology_of
from wscc.machine.links import CUT_THROUGH
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer
from wscc.pictures.facts import Bar, Die, LinkLoad, LoadMap, Mesh, Ring, Timeline, WaferMap
from wscc.pictures.load import load_svg
from wscc.pictures.timeline import time, timeline_svg
from wscc.pictures.wafer import wafer_svg
from wscc.strategy import policy, stage_axes

FORWARD, BACKWARD, BETWEEN, REST = "forward", "backward", "messages between stages", "sums and update"
_COLOURED: Final = 8  # positions along an axis that have a colour each


def draw_wafer(artifact: Artifact) -> str:
    """SVG text of the wafer: dies with their coordinates on the axes, rings of the streaming axis, damage."""
    return wafer_svg(wafer_facts(artifact))


def draw_timeline(artifact: Artifact, link_model: str = CUT_THROUGH) -> str:
    """SVG text of a simulated step: the work of each pipeline stage over time."""
    return timeline_svg(timeline_facts(artifact, link_model))


def draw_load(artifact: Artifact, link_model: str = CUT_THROUGH) -> str:
    """SVG text of the mesh: bytes that each direction of each link carries in a step."""
    return load_svg(load_facts(artifact, link_model))


DRAWINGS: Final[dict[str, Callable[[Artifact], str]]] = {
    "wafer": draw_wafer,
    "timeline": draw_timeline,
    "load": draw_load,
}


def _mesh(wafer: Wafer) -> Mesh:
    joint, down = wafer.joint, wafer.circuits.down if wafer.circuits else frozenset()
    return Mesh(
        wafer.rows, wafer.cols, wafer.dead_dies, wafer.dead_links, wafer.torus.rows, wafer.torus.cols,
        (joint.rows, joint.cols) if joint else None, down.union(wafer.unbuilt_links()),
        tuple(".".join(map(str, wafer.place_of((r, 0))[:-1])) for r in range(wafer.rows)),
    )  # fmt: skip


def _strategy(graph: Module) -> str:
    return " ".join(f"{a}={n}" for a, n in graph.axes) or "one die"


def _title(graph: Module, what: str) -> str:
    return f"{graph.name} on {graph.machine.name}, {_strategy(graph)}: {what}"


# ---- the wafer


def wafer_facts(artifact: Artifact) -> WaferMap:
    """The map of the dies of a program: colours tell positions along the first axis, rings are those of the axis
    along which shards travel."""
    graph = graph_of(artifact)
    mesh, wafer = LogicalMesh(graph.axes), graph.machine
    places = [wafer.coordinate(die) for die in artifact.streams.dies]
    first = graph.axes[0] if graph.axes else None
    colours = mesh.coordinates(first[0]) if first else [0] * len(places)
    dies = tuple(Die(place, _label(mesh, i), colours[i] % _COLOURED) for i, place in enumerate(places))
    streaming = _streaming(graph)
    rings: tuple[Ring, ...] = ()
    if streaming:
        near = topology_of(wafer, artifact.streams.dies).are_adjacent
        groups = [[artifact.streams.dies[i] for i in group] for group in mesh.groups(streaming)]
        rings = tuple(
            Ring(tuple(wafer.coordinate(d) for d in group), len(group) > 2 and near(group[-1], group[0]))
            for group in groups
        )
    names = ".".join(a for a, _ in graph.axes)
    labels = f"; labels are positions on {names}" if names else ""
    subtitle = f"{len(places)} of {wafer.live_dies} live dies of a {wafer.size} mesh{labels}"
    words = tuple(f"{first[0]} {i}" for i in range(first[1])) if first and first[1] <= _COLOURED else ()
    return WaferMap(
        _title(graph, "placement"), subtitle, _mesh(wafer), dies, rings, words,
        _ring_words(streaming, rings),
    )  # fmt: skip


def _ring_words(axis: str, rings: Sequence[Ring]) -> str:
    if not rings:
        return ""
    shape = "ring" if all(r.closed for r in rings) else "chain"
    if all(len(r.places) == 2 for r in rings):
        shape = "pair"
    return f"{shape} of {axis}: shards travel from neighbour to neighbour"


def _label(mesh: LogicalMesh, die: int) -> str:
    return ".".join(str(mesh.coordinates(a)[die]) for a, _ in mesh.axes) or "0"


def _streaming(graph: Module) -> str:
    """The axis whose shards travel at rest too, else the last along which anything does; empty: none."""
    axes = [a for a, _ in graph.axes if policy(a).stream]
    sharded = [a for a in axes if policy(a).store == "shard"]
    return (sharded or axes or [""])[-1]


# ---- the timeline


def timeline_facts(artifact: Artifact, link_model: str) -> Timeline:
    """The timeline of a simulated step: calls of a stage that follow one another and are of one kind make one bar;
    micro-batches are numbered where each is one bar."""
    graph = graph_of(artifact)
    calls = stage_calls(artifact, link_model)
    stages = 1 + max((c.stage for c in calls), default=0)
    seconds = max((c.end for c in calls), default=0.0)
    bars = tuple(b for s in range(stages) for b in _bars([c for c in calls if c.stage == s], graph))
    present = {b.kind for b in bars}
    kinds = tuple(k for k in (FORWARD, BACKWARD, BETWEEN, REST) if k in present)
    names = tuple(f"stage {s}" for s in range(stages)) if stages > 1 else ("all dies",)
    parts = f"{graph.train.microbatches} micro-batches" if graph.train.microbatches > 1 else "one micro-batch"
    axis = stage_axes(graph.sizes)
    cut = f" in {stages} stages ({axis[0]})" if axis and stages > 1 else ""
    subtitle = f"{time(seconds)} for {parts}{cut}, as simulated on {link_model} links"
    return Timeline(_title(graph, "one step"), subtitle, names, kinds, bars, seconds)


def _kind(call: StageCall) -> str:
    if call.shared:
        return BETWEEN
    if call.procedure.endswith(".fwd"):
        return FORWARD
    return BACKWARD if call.procedure.endswith(".bwd") else REST


def _bars(calls: Sequence[StageCall], graph: Module) -> Iterator[Bar]:
    working = [c for c in calls if c.end > c.begin]
    runs = [(kind, list(run)) for kind, run in groupby(working, _kind)]
    numbered = {
        kind
        for kind in (FORWARD, BACKWARD)
        if sum(k == kind for k, _ in runs) == graph.train.microbatches > 1
    }
    count = dict.fromkeys(numbered, 0)
    for kind, run in runs:
        label = ""
        if kind in numbered:
            count[kind] += 1
            label = str(count[kind])
        yield Bar(run[0].stage, run[0].begin, max(c.end for c in run), kind, label)


# ---- the load of links


def load_facts(artifact: Artifact, link_model: str) -> LoadMap:
    """The load map of a simulated step: bytes by link and direction."""
    graph = graph_of(artifact)
    wafer = graph.machine
    account = simulate(artifact, link_model).account
    loads = tuple(
        LinkLoad(
            wafer.coordinate(a),
            wafer.coordinate(b),
            account.links[a, b].bytes if (a, b) in account.links else 0,
        )
        for a, b in mesh_topology(wafer).links
    )
    total = sum(x.bytes for x in loads)
    busy = sum(1 for x in loads if x.bytes)
    subtitle = f"{total:,} bytes x links in a step, over {busy} of {len(loads)} directions of live links"
    used = frozenset(wafer.coordinate(die) for die in artifact.streams.dies)
    return LoadMap(_title(graph, "load of links"), subtitle, _mesh(wafer), used, loads)


__all__ = ["DRAWINGS", "draw_load", "draw_timeline", "draw_wafer"]
