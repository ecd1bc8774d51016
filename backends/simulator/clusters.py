"""Clusters of dies of a call that depend on one another, and the step of a stage with the memories of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wscc.backends.simulator.calls import DieCall
from wscc.backends.simulator.scripts import Scripts
from wscc.disjoint_sets import DisjointSets
from wscc.ir.streams.program import Address, ProgramCall, ProgramLoop, ProgramStep


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Dies of one call that exchange messages or share a link, directly or through others, and the links."""

    dies: tuple[int, ...]
    calls: tuple[DieCall, ...]
    links: frozenset[tuple[int, int]]
    scripts: Scripts


def groups_of(dies: Iterable[int], joined: DisjointSets[object]) -> tuple[tuple[int, ...], ...]:
    """The dies by group, in the order of the first of each."""
    groups: dict[object, list[int]] = {}
    for die in dies:
        groups.setdefault(joined[die], []).append(die)
    return tuple(map(tuple, groups.values()))


def clusters_of(calls: Mapping[int, DieCall]) -> tuple[Cluster, ...]:
    """The clusters of a call by die."""
    joined: DisjointSets[object] = DisjointSets()
    links = {}
    for die, call in calls.items():
        legs = {leg.links for cargo in call.cargos for leg in cargo.legs}
        links[die] = {link for path in legs for link in path}
        joined.union(die, *{cargo.to for cargo in call.cargos}, *links[die])
    return tuple(
        Cluster(
            dies,
            tuple(calls[d] for d in dies),
            frozenset(link for d in dies for link in links[d]),
            Scripts.of({d: [(0, calls[d])] for d in dies}),
        )
        for dies in groups_of(calls, joined)
    )


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of the step; `places` are the memories of its arguments if they are the same in every turn, else None."""

    procedure: str
    args: tuple[Address, ...]
    places: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class LoopNode:
    """A loop; `uniform`: every turn does the same; `steady`: and has no messages to or from other stages."""

    variable: str
    count: int
    body: tuple[CallNode | LoopNode, ...]
    uniform: bool
    steady: bool

    def calls(self) -> Iterable[CallNode]:
        for node in self.body:
            if isinstance(node, CallNode):
                yield node
            else:
                yield from node.calls()


Node = CallNode | LoopNode
Locate = Callable[[str, Sequence[int]], tuple[int, ...]]


def nodes(
    step: ProgramStep,
    locate: Locate,
    is_joint: Callable[[str], bool],
    counts: Mapping[str, int] | None = None,
) -> tuple[Node, ...]:
    """The step of a stage as a tree of calls and loops. `locate` gives the memories of arguments at addresses,
    `is_joint` is true of a procedure that has messages between stages."""
    counts = counts or {}
    tree: list[Node] = []
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            body = nodes(stmt.body, locate, is_joint, {**counts, stmt.variable: stmt.count})
            steady = all(_is_steady(n, is_joint) for n in body)
            uniform = all(n.uniform if isinstance(n, LoopNode) else n.places is not None for n in body)
            tree.append(LoopNode(stmt.variable, stmt.count, body, uniform, steady))
        else:
            tree.append(_call(stmt, locate, counts))
    return tuple(tree)


def _is_steady(node: Node, is_joint: Callable[[str], bool]) -> bool:
    if isinstance(node, LoopNode):
        return node.steady
    return node.places is not None and not is_joint(node.procedure)


def _call(call: ProgramCall, locate: Locate, counts: Mapping[str, int]) -> CallNode:
    """The node of a call. Its arguments stay in one memory if that of their lowest and highest address is the same:
    the memories follow one another in the address space."""
    if any(count < 1 for count in counts.values()):
        return CallNode(call.procedure, call.args, None)
    spans = [a.span(counts) for a in call.args]
    low = locate(call.procedure, [a for a, _ in spans])
    high = locate(call.procedure, [b for _, b in spans])
    return CallNode(call.procedure, call.args, low if low == high else None)
