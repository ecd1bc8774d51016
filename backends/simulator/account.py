"""The account of a composed step: the time of dies and links by cause, and lower bounds of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from wscc.backends.simulator.clusters import Cluster
from wscc.backends.simulator.compose import Composer, Run, Wait
from wscc.backends.simulator.costs import SECOND, Costs
from wscc.backends.simulator.records import DieUse, Link, LinkUse
from wscc.backends.simulator.scripts import Scripts
from wscc.ir.streams.profile import UNKNOWN, Origin, Profile

K = TypeVar("K", bound=Hashable)
# By link: what it carries, and its bytes by (procedure, origin).
Carried = dict[Link, tuple[LinkUse, dict[tuple[str, Origin], int]]]


@dataclass(slots=True)
class DieTotal:
    """Ticks of a die: `ideal` at the highest peak of the dies, `slow` because its own is lower, `tiling` because tiles
    are not full, `hbm` because its memory is slower; waiting as in `DieUse`, `exposed` by kind of message. `flops` and
    `hbm_bytes` are the work that takes them, `of_class` is the class of the die."""

    of_class: int = 0
    flops: int = 0
    hbm_bytes: int = 0
    ideal: int = 0
    slow: int = 0
    tiling: int = 0
    hbm: int = 0
    delayed: int = 0
    bubble: int = 0
    idle: int = 0
    exposed: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def busy(self) -> int:
        return self.ideal + self.slow + self.tiling + self.hbm


@dataclass(slots=True)
class LinkTotal:
    """Totals of a directed link of physical dies, times in ticks; `traffic` is bytes by (procedure, origin). `peak` is
    the largest share of a call in which it is busy, `peak_call` the procedure."""

    bytes: int = 0
    messages: int = 0
    busy: int = 0
    queueing: int = 0
    conflicts: int = 0
    peak: float = 0.0
    peak_call: str = ""
    traffic: dict[tuple[str, Origin], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class Account:
    """The totals of one step. `dies` are by logical die; `links` are those that carried a message; `end` in ticks."""

    costs: Costs
    end: int
    dies: tuple[DieTotal, ...]
    links: dict[Link, LinkTotal]

    @property
    def seconds(self) -> float:
        return float(Fraction(self.end, SECOND))

    def bounds(self) -> dict[str, int]:
        """Lower bounds of the step in ticks, for any order of these instructions and messages: by the die with most
        compute, the one with most bytes in HBM, the most loaded link."""
        return {
            "compute": max(d.ideal + d.slow + d.tiling for d in self.dies),
            "hbm": max(self.costs.hbm(d.hbm_bytes, d.of_class) for d in self.dies),
            "links": max((self._link_bound(k, u) for k, u in self.links.items()), default=0),
        }

    def energy(self) -> dict[str, float]:
        """Joules of contractions and of links; a machine has no figure for its memories."""
        wafer = self.costs.wafer
        flops = sum(d.flops for d in self.dies)
        carried = [0] * len(wafer.links)
        for link, use in self.links.items():
            carried[wafer.link_class(*link)] += use.bytes
        links = sum(8 * n * link.energy for n, link in zip(carried, wafer.links, strict=True))
        return {"compute": flops / wafer.die.efficiency, "links": links}

    def _link_bound(self, link: Link, use: LinkTotal) -> int:
        """Ticks that a link needs for its bytes alone."""
        return int(self.costs.rates.between(*link).busy(use.bytes) * SECOND)


def account(composer: Composer, profile: Profile) -> Account:
    """The account of the step that a composer has composed."""
    builder = composer.builder
    end = max(composer.now)
    dies = tuple(
        DieTotal(of_class, idle=end - now)
        for now, of_class in zip(composer.now, builder.classes, strict=True)
    )
    links: dict[Link, LinkTotal] = defaultdict(LinkTotal)
    kinds = _Kinds(profile)
    times_of: Counter[tuple[Cluster, str]] = Counter()
    for entry, times in composer.tally.items():
        if isinstance(entry, Wait):
            dies[entry.die].idle += times
            continue
        procedure = entry.variant[0]
        for (die, call, use), exposed in zip(entry.dies(), kinds.exposed(procedure, entry.run), strict=True):
            total, draft = dies[die], call.draft
            total.flops += times * draft.flops
            total.hbm_bytes += times * call.hbm_bytes
            total.ideal += times * draft.ideal_ticks
            total.tiling += times * draft.tile_ticks
            total.hbm += times * (use.busy - draft.ideal_ticks - draft.tile_ticks)
            _wait(total, use, exposed, times)
        times_of[entry.cluster, procedure] += times
        for link, link_use in entry.links():
            links[link].queueing += times * link_use.queueing
            links[link].conflicts += times * link_use.conflicts
            share = link_use.busy / max(1, max(entry.leave))
            if share > links[link].peak:
                links[link].peak, links[link].peak_call = share, procedure
    for (cluster, procedure), times in times_of.items():
        for link, (carried, traffic) in kinds.carried(procedure, cluster.scripts).items():
            _carry(links[cluster.own[link]], carried, traffic, times)
    _slow_down(dies, builder.costs)
    return Account(builder.costs, end, dies, dict(sorted(links.items())))


@dataclass
class _Kinds:
    """What runs and scripts count by channel, by what the messages are for: once for all clusters that are alike."""

    profile: Profile
    _origins: dict[str, tuple[Origin, ...]] = field(default_factory=dict)
    _exposed: dict[Run, list[dict[str, int]]] = field(default_factory=dict)
    _carried: dict[Scripts, Carried] = field(default_factory=dict)

    def origins(self, procedure: str) -> tuple[Origin, ...]:
        if procedure not in self._origins:
            self._origins[procedure] = self.profile.channels(procedure)
        return self._origins[procedure]

    def exposed(self, procedure: str, run: Run) -> list[dict[str, int]]:
        """Ticks by the kind of message, for each die."""
        if run not in self._exposed:
            origins = self.origins(procedure)
            self._exposed[run] = [
                _sums((origin(origins, channel).kind, ticks) for channel, ticks in use.exposed.items())
                for use in run.simulation.dies.values()
            ]
        return self._exposed[run]

    def carried(self, procedure: str, scripts: Scripts) -> Carried:
        """What each link carries, and its bytes by (procedure, origin)."""
        if scripts not in self._carried:
            origins = self.origins(procedure)
            self._carried[scripts] = {
                link: (use, _sums(((procedure, origin(origins, c)), n) for c, n in use.channels.items()))
                for link, use in scripts.traffic.items()
            }
        return self._carried[scripts]


def _sums(pairs: Iterable[tuple[K, int]]) -> dict[K, int]:
    sums: dict[K, int] = {}
    for key, count in pairs:
        sums[key] = sums.get(key, 0) + count
    return sums


def _wait(total: DieTotal, use: DieUse, exposed: dict[str, int], times: int) -> None:
    total.delayed += times * use.delayed
    total.bubble += times * use.bubble
    total.idle += times * use.idle
    for kind, ticks in exposed.items():
        total.exposed[kind] += times * ticks


def _slow_down(dies: tuple[DieTotal, ...], costs: Costs) -> None:
    """Tell apart what dies would take at the highest peak."""
    peak = max(costs.dies[d.of_class].peak for d in dies)
    for d in dies:
        at_peak = int(d.ideal * costs.dies[d.of_class].peak / peak)
        d.ideal, d.slow = at_peak, d.ideal - at_peak


def _carry(total: LinkTotal, use: LinkUse, traffic: dict[tuple[str, Origin], int], times: int) -> None:
    total.bytes += times * use.bytes
    total.messages += times * use.messages
    total.busy += times * use.busy
    for cause, amount in traffic.items():
        total.traffic[cause] += times * amount


def origin(kinds: tuple[Origin, ...], channel: int) -> Origin:
    """The origin of a channel of a procedure."""
    return kinds[channel] if channel < len(kinds) else UNKNOWN
