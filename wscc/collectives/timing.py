"""The link model and the simulator of plans, which gives the start and end of each message.

Times are in *byte times*, what one byte takes on a link, so that whole latencies give exact results. The link belongs
to no wafer, so its rates come with the call; on a system those of the links between wafers come too. Formulas are those
of `LinkTimes`, as the simulator's. Left out are the memories at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from wscc.collectives.plan import COPY, Link, Plan
from wscc.machine.links import CUT_THROUGH, STORE_AND_FORWARD, LinkTimes, exact, joint_times
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer


@dataclass(frozen=True)
class LinkModel(LinkTimes[float]):
    """The times of a link in doubles. A copy is passed on as `LinkTimes` says (without `early_relays`: after its last
    byte); a sum is in memory first, so it is passed on after its last byte.

    `across` has the models of links that are not as the others, where `byte` is what a byte takes in byte times of
    those."""

    early_relays: bool = True
    byte: float = 1.0
    across: Mapping[Link, LinkModel] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(bandwidth: int, latency: Fraction | float, flit: int, kind: str = CUT_THROUGH) -> LinkModel:
        """The model of a link given in B/s, seconds and bytes; a float latency is the decimal number that it prints."""
        return LinkModel(bandwidth, float(exact(latency) * bandwidth), flit, kind == STORE_AND_FORWARD)

    def with_system(self, wafer: Wafer) -> LinkModel:
        """The model of a system whose wafers have these links: a die passes on what it has whole."""
        if wafer.joint is None:
            return self
        models = [
            replace(self, byte=byte, latency=latency, flit=flit, early_relays=False)
            for byte, latency, flit in joint_times(wafer)
        ]
        links = mesh_topology(wafer).links
        across = {k: models[c - 1] for k in links if (c := wafer.link_class(*k))}
        return replace(self, across=across, early_relays=False)

    def on(self, link: Link) -> LinkModel:
        """The model of a link."""
        return self.across.get(link, self)

    def hold(self, size: int) -> float:
        """Byte times that a message keeps its link from the next."""
        return self.byte * self.on_link(size) + self.latency * self.store_and_forward

    def span(self, size: int) -> float:
        """Byte times from the start of a message to the arrival of its last byte."""
        return self.byte * self.on_link(size) + self.latency

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
        on = model.on(link)
        end = start + on.span(size)
        free[link] = start + on.hold(size)
        arrival = start + on.latency
        for c in chunks:
            available = arrival if early else end
            if available > ready.get((dst, c), 0.0):
                ready[dst, c] = available
            arrival += sizes[c]
        starts.append(start)
        ends.append(end)
    return Timed(plan, model, tuple(starts), tuple(ends))
