"""Cuts of a topology, exact by maximum flow: sets of dies with few links in or out."""

from __future__ import annotations

from ortools.graph.python import max_flow

from wscc.machine.topology import Topology


def entry_links(topology: Topology, dies: frozenset[int]) -> int:
    """The number of links into a set of dies from the others."""
    return sum(n not in dies for d in dies for n in topology.neighbours[d])


def least_entered(topology: Topology) -> frozenset[int]:
    """The set S with the largest (dies outside S) / (links into S), of all sets but the whole.

    Dinkelbach's iteration (Management Science 13, 1967): for a ratio p / q reached so far, a minimum cut per die
    finds whether a set with links x p < outside x q exists; each step is exact and strictly better, and few are
    needed.
    """
    best = min((frozenset([d]) for d in topology.live), key=lambda s: (entry_links(topology, s), min(s)))
    is_improved = True
    while is_improved:
        outside, entered = len(topology.live) - len(best), entry_links(topology, best)
        is_improved = False
        for die in topology.live:
            better = _better_set(topology, die, outside, entered)
            if better is not None:
                best, is_improved = better, True
                break
    return best


def _better_set(topology: Topology, die: int, outside: int, entered: int) -> frozenset[int] | None:
    """A set with `die` in it of larger outside / entered, by a minimum of entered x |S| + outside x links; or None."""
    flow = max_flow.SimpleMaxFlow()
    sink = topology.dies
    for a, b in topology.links:
        flow.add_arc_with_capacity(a, b, outside)
    for d in topology.live:
        flow.add_arc_with_capacity(d, sink, entered)
    flow.solve(die, sink)
    side = frozenset(flow.get_source_side_min_cut()) - {sink}
    if len(side) == len(topology.live) or not side:
        return None
    gain = (len(topology.live) - len(side)) * entered - outside * entry_links(topology, side)
    return side if gain > 0 else None


def least_cut(topology: Topology, source: int, target: int) -> int:
    """The number of links of a minimum cut between `source` and `target`."""
    flow = max_flow.SimpleMaxFlow()
    for a, b in topology.links:
        flow.add_arc_with_capacity(a, b, 1)
    flow.solve(source, target)
    return int(flow.optimal_flow())


def unit_flow(topology: Topology, source: int, target: int) -> dict[int, list[int]]:
    """Next dies of each die on a maximum flow from `source` to `target`, unit capacities."""
    flow, successors = max_flow.SimpleMaxFlow(), {d: list[int]() for d in topology.live}
    arcs = [flow.add_arc_with_capacity(a, b, 1) for a, b in topology.links]
    flow.solve(source, target)
    for arc, (a, b) in zip(arcs, topology.links, strict=True):
        if flow.flow(arc):
            successors[a].append(b)
    return successors
