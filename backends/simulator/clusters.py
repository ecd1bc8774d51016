"""Which dies of a call depend on one another, and where its arguments lie in every turn of its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from networkx.utils import UnionFind

from wscc.backends.simulator.calls import DieCall
from wscc.ir.step import Affine
from wscc.ir.streams.program import Address, ProgramCall, ProgramLoop, ProgramStep


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Dies of one call that exchange messages or share a link, directly or through others, and the links."""

    dies: tuple[int, ...]
    calls: tuple[DieCall, ...]
    links: frozenset[tuple[int, int]]


def groups_of(dies: Iterable[int], joined: UnionFind[object]) -> tuple[tuple[int, ...], ...]:
    """The dies by group, in the order of the first of each."""
    groups: dict[object, list[int]] = {}
    for die in dies:
        groups.setdefault(joined[die], []).append(die)
    return tuple(map(tuple, groups.values()))


def clusters_of(calls: Mapping[int, DieCall]) -> tuple[Cluster, ...]:
    """The clusters of a call by die."""
    joined: UnionFind[object] = UnionFind()
    links = {die: _links(call) for die, call in calls.items()}
    for die, call in calls.items():
        for step in call.steps:
            if step.cargo is not None:
                joined.union(die, step.cargo.to)
        joined.union(die, *links[die])
    return tuple(
        Cluster(dies, tuple(calls[d] for d in dies), frozenset(link for d in dies for link in links[d]))
        for dies in groups_of(calls, joined)
    )


def _links(call: DieCall) -> set[tuple[int, int]]:
    return {
        link for step in call.steps if step.cargo is not None for leg in step.cargo.legs for link in leg.links
    }


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of the step; `places` are those of its arguments if they are the same in every turn."""

    procedure: str
    args: tuple[Address, ...]
    places: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class LoopNode:
    """A loop; `uniform` if every turn of it does the same, `steady` if it meets no other stage either."""

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
    step: ProgramStep, locate: Locate, meets: Callable[[str], bool], counts: Mapping[str, int] | None = None
) -> tuple[Node, ...]:
    """The step of a stage, with what is the same in all turns worked out. `locate` gives the places of arguments at
    given addresses, `meets` whether a procedure has messages between stages."""
    counts = counts or {}
    made: list[Node] = []
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            body = nodes(stmt.body, locate, meets, {**counts, stmt.variable: stmt.count})
            steady = all(_is_steady(n, meets) for n in body)
            uniform = all(n.uniform if isinstance(n, LoopNode) else n.places is not None for n in body)
            made.append(LoopNode(stmt.variable, stmt.count, body, uniform, steady))
        else:
            made.append(_call(stmt, locate, counts))
    return tuple(made)


def _is_steady(node: Node, meets: Callable[[str], bool]) -> bool:
    if isinstance(node, LoopNode):
        return node.steady
    return node.places is not None and not meets(node.procedure)


def _call(call: ProgramCall, locate: Locate, counts: Mapping[str, int]) -> CallNode:
    """All places are the same if they are at the lowest and at the highest addresses: the order of addresses is that
    of the memories."""
    spans = [_span(a, counts) for a in call.args]
    if any(count < 1 for count in counts.values()):
        return CallNode(call.procedure, call.args, None)
    low = locate(call.procedure, [a for a, _ in spans])
    high = locate(call.procedure, [b for _, b in spans])
    return CallNode(call.procedure, call.args, low if low == high else None)


def _span(address: Address, counts: Mapping[str, int]) -> tuple[int, int]:
    """The lowest and the highest that an address can be."""
    low = high = address.base
    for index, stride in address.terms:
        ends = [n * stride for n in _range(index, counts)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _range(index: Affine, counts: Mapping[str, int]) -> tuple[int, int]:
    if index.modulus and index.terms:
        return 0, index.modulus - 1
    ends = [(c * (counts[v] - 1), 0) for v, c in index.terms]
    base = index.at({}) if not index.terms else index.base
    return base + sum(min(e) for e in ends), base + sum(max(e) for e in ends)
