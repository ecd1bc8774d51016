"""The fastest plan of a collective, found by simulating candidates, beside a lower bound of its time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from wscc.collectives.algorithms import ALGORITHMS, HIERARCHICAL, families
from wscc.collectives.bounds import Bound, bound
from wscc.collectives.plan import Link, Op, Request
from wscc.collectives.search import HillClimb
from wscc.collectives.timing import LinkModel, Timed
from wscc.diagnostics import Code, fail
from wscc.machine.topology import Topology

AUTO: Final = "auto"
# Near enough to the bound to stop looking; the order in which `auto` looks.
_ENOUGH: Final = 1.001
_ORDER: Final = ("packing", "tree", "direct", "ring", "chain")
# Hops of chunks in all plans that are tried: seconds.
_WORK: Final = 250_000
_MOST_HOPS: Final = 3_000_000
_NAMED: Final = 4


@dataclass(frozen=True)
class Outcome:
    """The fastest plan found for a request, timed in byte times, and a lower bound of the time of any plan."""

    request: Request
    timed: Timed
    bound: Bound

    @property
    def algorithm(self) -> str:
        return self.timed.plan.algorithm

    @cached_property
    def ratio(self) -> float:
        """Time over bound; 1 where nothing moves."""
        return self.timed.end / self.bound.time if self.bound.time else 1.0

    @property
    def shortfall(self) -> str | None:
        """The reason, in words, why the bound is not reached; None where it is."""
        return shortfall(self.timed, self.bound.time, self.bound.kind)

    @cached_property
    def max_link_bytes(self) -> int:
        return max(self.timed.link_bytes().values(), default=0)


def make_request(
    op: Op, topology: Topology, size: int, root: int | None = None, target: int | None = None
) -> Request:
    """A request over all live dies; `root` is the first of them and `target` the last unless given.

    Raises `CompileError`: W302 where the live dies are not connected, W303 where `root` or `target` is dead.
    """
    if not topology.live:
        raise fail(Code.DISCONNECTED, "no die of the mesh is alive", help="give fewer `--dead`")
    if len(topology.islands) > 1:
        raise fail(
            Code.DISCONNECTED,
            f"a collective needs dies that can all reach each other; the live ones form {_islands(topology)}",
            help="give up the smaller islands with `--dead die:R,C`, or revive a link between them",
        )
    root = topology.live[0] if root is None else root
    target = topology.live[-1] if target is None else target
    for die in (root, target):
        if not topology.is_live(die):
            raise fail(Code.NO_PATH, f"die {topology.name_of(die)} is dead", help="name a live die")
    return Request(op, topology, size, root, target)


def _islands(topology: Topology) -> str:
    parts = [f"{len(p)} dies from {topology.name_of(p[0])}" for p in topology.islands]
    more = ", ..." if len(parts) > _NAMED else ""
    return f"{len(parts)} islands: {', '.join(parts[:_NAMED])}{more}"


def _check_hops(request: Request) -> None:
    """Refuse plans of too many hops, which would take many minutes and gigabytes: each is a message of its own."""
    dies, topology = len(request.dies), request.topology
    if request.op in (Op.BROADCAST, Op.P2P):
        return
    hops = dies * dies
    if request.op is Op.ALL_TO_ALL and dies > 1:
        distance = topology.distances(request.dies[0])
        hops *= sum(distance[d] for d in request.dies) // (2 * dies) + 1
    if hops > _MOST_HOPS:
        raise fail(
            Code.LIMIT,
            f"a plan of {request.op} over {dies:,} dies has about {hops:,} messages: the limit is {_MOST_HOPS:,}",
            help="take a smaller mesh, or one collective for each block of it",
        )


def collective(request: Request, model: LinkModel, algorithm: str = AUTO) -> Outcome:
    """The fastest plan of `algorithm` (of all, with `auto`); the first among equals.

    Raises `CompileError`: W303 where the algorithm does not exist on this mesh, W003 where the dies are too many
    for plans of single messages.
    """
    _check_hops(request)
    least = bound(request, model)
    enough = _ENOUGH * least.time
    best: Timed | None = None
    work = 0
    order = (HIERARCHICAL,) if model.across and request.op is Op.ALL_REDUCE else _ORDER
    for name in order if algorithm == AUTO else (algorithm,):
        for family in families(request, model, name):
            if best is None or (family.floor < best.end and work < _WORK):
                climb = HillClimb(family, model, enough, _WORK - work)
                timed = climb.run()
                work += climb.work
                best = timed if best is None or timed.end < best.end else best
            if best.end <= enough:
                return Outcome(request, best, least)
    if best is None:
        others = ", ".join(a for a in (*ALGORITHMS, AUTO) if a not in (algorithm, "ring", "chain"))
        raise fail(
            Code.NO_PATH,
            f"no {algorithm} through all {len(request.dies)} live dies is known on this mesh",
            help=f"use one that every connected mesh has: {others}",
        )
    return Outcome(request, best, least)


# Time over the bound from which there is something to say.
_WORTH: Final = 1.01


def shortfall(timed: Timed, bound: float, kind: str) -> str | None:
    """The use of the time beyond the bound, in words; None within 1 % of it.

    Nothing is faster than its busiest link, so the time is: bytes on that link, what every message adds to them
    (padding to flits and, in store-and-forward, the latency), and waiting for what has to arrive first.
    """
    if not bound or timed.end <= _WORTH * bound:
        return None
    busy, link = max((time, link) for link, time in _holds(timed).items())
    carried = timed.link_bytes()[link]
    messages = sum((m.src, m.dst) == link for m in timed.plan.messages)
    return (
        f"the {kind} bound is {_part(bound, timed)} of the time; the busiest link moves bytes for "
        f"{_part(carried, timed)} of it, pads and starts {messages:,} messages for "
        f"{_part(busy - carried, timed)}, and waits {_part(timed.end - busy, timed)} for what arrives over "
        f"other links"
    )


def _holds(timed: Timed) -> dict[Link, float]:
    """Byte times for which messages hold each link."""
    sizes, held = timed.plan.sizes, dict[Link, float]()
    for m in timed.plan.messages:
        hold = timed.model.on((m.src, m.dst)).hold(sum(sizes[c] for c in m.chunks))
        held[m.src, m.dst] = held.get((m.src, m.dst), 0.0) + hold
    return held


def _part(time: float, timed: Timed) -> str:
    return f"{100 * time / timed.end:.1f} %"
