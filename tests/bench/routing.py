"""How near the router comes to the bound, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.traffic import MB, damaged, fsdp_and_tatp, gather, mesh, permutation, tatp_and_dp
from wscc.machine.topology import Topology
from wscc.routing.bound import lower_bound
from wscc.routing.flows import Flow
from wscc.routing.router import route


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic by seed; the table shows the worst gap and the median time of the seeds."""

    mesh: str
    traffic: str
    make: Callable[[int], tuple[Topology, list[Flow]]]


@dataclass(frozen=True, slots=True)
class Row:
    """One case and seed, loads in bytes over the most loaded link."""

    mesh: str
    traffic: str
    flows: int
    xy: int
    tcme: int
    bound: int
    seconds: float
    bound_seconds: float

    @property
    def gap(self) -> float:
        """Per cent above the bound."""
        return 100 * (self.tcme / self.bound - 1)


def cases() -> Iterator[Case]:
    """Whole and damaged wafers, single destinations and the same bytes for many."""
    for rows, cols in ((4, 8), (8, 8), (12, 12)):
        name, whole = f"{rows}x{cols}", mesh(rows, cols)
        yield Case(name, "permutation", lambda s, t=whole: (t, permutation(t, s)))  # type: ignore[misc]
        yield Case(name, "TATP + DP", lambda s, t=whole: (t, tatp_and_dp(t, s)))  # type: ignore[misc]
    for rows, cols in ((8, 8), (12, 12)):
        yield Case(f"{rows}x{cols}", "permutation, 10 % dead", lambda s, r=rows, c=cols: _hurt(r, c, s))  # type: ignore[misc]
    yield Case("4x4", "FSDP gather + TATP", lambda _: (mesh(4, 4), fsdp_and_tatp(3 * MB // 2, 4 * MB)))
    yield Case("8x8", "gathers of 8", lambda s: (mesh(8, 8), gather(_groups(64, 8, s), MB)))
    yield Case("16x16", "768 flows", lambda s: (mesh(16, 16), permutation(mesh(16, 16), s, times=3)))


def _hurt(rows: int, cols: int, seed: int) -> tuple[Topology, list[Flow]]:
    topology = damaged(rows, cols, rows * cols // 10, rows * cols // 10, seed)
    return topology, permutation(topology, seed)


def _groups(dies: int, size: int, seed: int) -> list[list[int]]:
    order = [f.destination for f in permutation(mesh(1, dies), seed)]
    return [order[i : i + size] for i in range(0, len(order) - size + 1, size)]


def measure(case: Case, seed: int) -> Row:
    """Route the traffic of one seed and bound it."""
    topology, flows = case.make(seed)
    begun = time.perf_counter()
    routing = route(topology, flows)
    routed = time.perf_counter()
    certificate = lower_bound(routing)
    assert certificate is not None
    times = (routed - begun, time.perf_counter() - routed)
    loads = (routing.initial_max_link_bytes, routing.max_link_bytes, certificate.bytes)
    return Row(case.mesh, case.traffic, len(flows), *loads, *times)
