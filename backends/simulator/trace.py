"""A step as a trace for Perfetto or chrome://tracing: a track for each die and each link.

The file is limited to `LIMIT` slices, the earliest ones; `otherData` says where it was cut. Turns of a loop that
repeat earlier ones are one slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wscc.backends.simulator.account import origin
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.compose import Entry, Observer
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.events import Simulation
from wscc.backends.simulator.records import Link
from wscc.files import to_json
from wscc.ir.streams.profile import Origin, Profile

LIMIT: Final = 100_000
DIES, LINKS = 1, 2

# A slice: track (a logical die, or a link), from, until, name.
Slice = tuple[int | Link, int, int, str]


@dataclass
class Trace:
    """Records the calls that a composer simulates; `observer` is its argument of that name."""

    builder: Builder
    profile: Profile
    _called: list[tuple[int, Entry]] = field(default_factory=list)
    _skipped: list[Slice] = field(default_factory=list)
    _slices: dict[int, list[Slice]] = field(default_factory=dict)

    @property
    def observer(self) -> Observer:
        return Observer(lambda entry, begin: self._called.append((begin, entry)), self._skip)

    def _skip(self, dies: Sequence[int], begin: int, end: int, periods: int) -> None:
        name = f"{periods} more of the turns before"
        if end > begin:
            self._skipped += [(die, begin, end, name) for die in dies]

    def text(self, limit: int = LIMIT) -> tuple[str, str]:
        """The JSON of the trace with at most `limit` slices, and a text that says where it was cut (empty: nowhere)."""
        slices, cut = self._limited(limit)
        events = [*self._tracks(), *(self._event(s) for s in slices)]
        head = {"displayTimeUnit": "ns", "otherData": {"cut": cut or "no"}}
        lines = ",\n".join(to_json(e, compact=True) for e in events)
        return f'{to_json(head)[:-1]}, "traceEvents": [\n{lines}\n]}}\n', cut

    def _limited(self, limit: int) -> tuple[list[Slice], str]:
        """The first slices by the time at which their call is entered, whole calls."""
        first_slices = self._skipped[:limit]
        for begin, entry in sorted(self._called, key=lambda c: c[0]):
            slices = self._of(entry)
            if len(first_slices) + len(slices) > limit:
                return first_slices, f"after {begin / SECOND:.6g} s, where {limit:,} slices were reached"
            first_slices += [(track, begin + a, begin + b, name) for track, a, b, name in slices]
        return first_slices, ""

    def _of(self, entry: Entry) -> list[Slice]:
        """The slices of a cluster, counted from the time at which its first die enters."""
        if id(entry) not in self._slices:
            self._slices[id(entry)] = list(self._recorded(entry))
        return self._slices[id(entry)]

    def _recorded(self, entry: Entry) -> Iterator[Slice]:
        procedure, cluster = entry.variant[0], entry.cluster
        kinds = self.profile.channels(procedure)
        run = entry.run.simulation
        here = dict(zip(run.scripts.dies, cluster.dies, strict=True))
        names = {
            die: self.profile.instructions(self.builder.streams.roles[die], self.builder.code(die, procedure))
            for die in cluster.dies
        }
        codes = {die: self.builder.code(die, procedure).body for die in cluster.dies}
        events: list[Slice] = []

        def on_step(die: int, position: int, begin: int, end: int) -> None:
            if end > begin:
                word = "wait " if codes[here[die]][position].opcode == "wait" else ""
                events.append((here[die], begin, end, word + self._name(names[here[die]][position])))

        def on_link(link: Link, channel: int, begin: int, end: int) -> None:
            events.append((cluster.own[link], begin, end, self._name(origin(kinds, channel))))

        Simulation(run.costs, run.stations, run.scripts, run.enter, run.held, on_step, on_link).run()
        for die, begin, end in zip(cluster.dies, entry.state, entry.leave, strict=True):
            if end > begin:
                yield die, begin, end, procedure
        yield from events

    def _name(self, o: Origin) -> str:
        place = f" ({self.profile.file}:{o.line})" if o.line else ""
        return f"{o.kind} {o.op}".strip() + place

    def _tracks(self) -> Iterator[dict[str, Any]]:
        for pid, name in ((DIES, "dies"), (LINKS, "links")):
            yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for die, physical in enumerate(self.builder.streams.dies):
            yield self._thread(DIES, die, self._place(physical))
        for link in sorted({s for _, e in self._called for s, _ in e.links()}):
            yield self._thread(LINKS, self._number(link), " to ".join(map(self._place, link)))

    def _thread(self, pid: int, tid: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}

    def _place(self, physical: int) -> str:
        return str(self.builder.costs.wafer.place(physical))

    def _number(self, link: Link) -> int:
        return link[0] * self.builder.costs.wafer.dies + link[1]

    def _event(self, s: Slice) -> dict[str, Any]:
        """Times in microseconds, as the format wants."""
        track, begin, end, name = s
        pid, tid = (DIES, track) if isinstance(track, int) else (LINKS, self._number(track))
        micro = SECOND // 10**6
        return {
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "ts": begin / micro,
            "dur": (end - begin) / micro,
            "name": name,
        }
