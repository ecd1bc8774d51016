"""The link model and the simulator of plans, which gives the start and end of each message.

Times are in *byte times*, what one byte takes on a link, so that whole latencies give exact results. The link belongs
to no wafer, so its rates come with the call; formulas are those of `LinkTimes`, as the simulator's. Left out are the
memories at both ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from wscc.collectives.plan import COPY, Link, Plan
from wscc.machine.links import CUT_THROUGH, STORE_AND_FORWARD, LinkTimes, exact


@dataclass(frozen=True)
class LinkModel(LinkTimes[float]):
    """The times of a link in doubles. A copy is passed on as `LinkTimes` says (without `early_relays`: after its last
    byte); a sum is in memory first, so it is passed on after its last byte."""

    early_relays: bool = True

    @staticmethod
    def of(bandwidth: int, latency: Fraction | float, flit: int, kind: str = CUT_THROUGH) -> LinkModel:
        """The model of a link given in B/s, seconds and bytes; a float latency is the decimal number that it prints."""
        return LinkModel(bandwidth, float(exact(latency) * bandwidth), flit, kind == STORE_AND_FORWARD)

    def without_early_relays(self) -> LinkModel:
        """The model in which copies are passed on as sums are."""
        return replace(self, early_relays=False)

    def passes_early(self, op: str) -> bool:
        """Whether the chunks of a message may be passed on before its last byte is there."""
        return op == COPY and self.early_relays and not self.store_and_forward

    def seconds(self, time: float) -> float:
        return time / self.bandwidth


@dataclass(frozen=True)
class Timed:
    """A plan with the start of each message and the arrival of its last byte, in byte times."""

    plan: Plan
    model: LinkModel
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def end(self) -> float:
        return max(self.ends, default=0.0)

    @property
    def seconds(self) -> float:
        return self.model.seconds(self.end)

    def link_bytes(self) -> dict[Link, int]:
        """Payload bytes over each directed link that is used."""
        sizes, load = self.plan.sizes, dict[Link, int]()
        for m in self.plan.messages:
            load[m.src, m.dst] = load.get((m.src, m.dst), 0) + sum(sizes[c] for c in m.chunks)
        return load


def simulate(plan: Plan, model: LinkModel) -> Timed:
    """The plan with every message as early as its link and its data allow, in the plan's order."""
    sizes = plan.sizes
    free: dict[Link, float] = {}
    ready: dict[tuple[int, int], float] = {}  # (die, chunk): from when on the die may pass it on
    starts, ends = [], []
    for src, dst, op, chunks in plan.messages:
        link, early = (src, dst), model.passes_early(op)
        start, size = free.get(link, 0.0), 0
        for c in chunks:
            # Cut-through: a relay need not wait for what comes later in its message than it begins.
            has = ready.get((src, c), 0.0) - (0 if model.store_and_forward else size)
            if has > start:
                start = has
            size += sizes[c]
        end = start + model.span(size)
        free[link] = start + model.hold(size)
        arrival = start + model.latency
        for c in chunks:
            available = arrival if early else end
            if available > ready.get((dst, c), 0.0):
                ready[dst, c] = available
            arrival += sizes[c]
        starts.append(start)
        ends.append(end)
    return Timed(plan, model, tuple(starts), tuple(ends))
