"""The event loop: dies run their steps in order, messages go from link to link, and queue for links and memories.

A message starts when its slot is granted and its send was issued. It reads its source and fills its slot at the
pace of the HBM where they lie there; each HBM serves one after the other, instructions and messages, as they
come. Links serve first come, first served. `wait sent` ends when the last byte has left the die, `wait received`
when it has arrived. Routers buffer whole messages, so that a branch of a multicast tree waits for nobody, and a
link carries the bytes of a tree once. Equal times are served in a fixed order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from wscc.backends.simulator.calls import Cargo
from wscc.backends.simulator.costs import Costs, Leg
from wscc.backends.simulator.drafts import END, PORT, POST, SEND, WAIT
from wscc.backends.simulator.records import DieUse, Hold, Link, LinkUse
from wscc.backends.simulator.scripts import Scripts
from wscc.diagnostics import Code, fail

_BEGINS: Final = (SEND, POST)

# (die, instruction, start, end): for traces.
OnStep = Callable[[int, int, int, int], None]
# (link, channel, start, end): for traces.
OnLink = Callable[[Link, int, int, int], None]
# A message on a leg: [message, leg, number of the leg, next hop that it takes, time at which its last byte gets there].
# A list, since most events are flights.
_Flight = list[Any]
# The use of a link by a message: (link, time at which it asked, start, how long it keeps it, message).
_Use = tuple[Link, int, int, int, int]


@dataclass(slots=True, eq=False)
class Simulation:
    """One run of some dies from their times of entry; `leave` are the times at which they end, all in ticks. `held` are
    the links of earlier messages, which queue with those of this run.

    Dies are numbered as in `scripts`, messages too; a time of -1 is still to come. `CompileError` W502 if dies wait for
    one another.
    """

    costs: Costs
    stations: Mapping[int, int]  # the physical die of each logical one
    scripts: Scripts
    enter: Mapping[int, int]
    held: Sequence[Hold] = ()
    on_step: OnStep | None = None
    on_link: OnLink | None = None
    leave: dict[int, int] = field(default_factory=dict)
    dies: dict[int, DieUse] = field(default_factory=dict)
    links: dict[Link, LinkUse] = field(default_factory=lambda: defaultdict(LinkUse))
    uses: list[_Use] = field(default_factory=list)
    _queue: list[tuple[int, int, Any]] = field(default_factory=list)
    _events: int = 0
    _free: dict[Link, int] = field(default_factory=lambda: defaultdict(int))
    _ports: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _trees: dict[tuple[int, ...], dict[object, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # By die: the next operation, the time since when it waits.
    _pc: list[int] = field(default_factory=list)
    _since: list[int] = field(default_factory=list)
    # By message: the time at which its slot was granted or it was sent; once it has both, the later one.
    _begun: list[int] = field(default_factory=list)
    # By end of a message (twice its number, one more for its sender's end), as it is waited for: legs that are not yet
    # through, the last time of those that are, the time when all are, the die that waits for it.
    _legs: list[int] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)
    _done: list[int] = field(default_factory=list)
    _waits: list[int] = field(default_factory=list)

    def run(self) -> Simulation:
        """Run all scripts to their ends."""
        self._begin()
        queue, advance, hop, cross = self._queue, self._advance, self._hop, self._cross
        while queue:
            time, _, event = heappop(queue)
            if type(event) is list:
                hop(event, time)
            elif type(event) is not int:
                self._held_on(event, time)
            elif event < 0:
                cross(~event, time)
            else:
                advance(event, time if self._since[event] < 0 else self._resumed(event, time))
        if max(self._since, default=-1) >= 0:
            raise fail(Code.DEADLOCK, self._stuck())
        self._count()
        self._forget()
        return self

    def _begin(self) -> None:
        dies, messages = len(self.scripts.dies), len(self.scripts.plain)
        self._pc, self._since = [0] * dies, [-1] * dies
        self._begun = [-1] * messages
        self._legs, self._last = [0] * (2 * messages), [0] * (2 * messages)
        self._done, self._waits = [-1] * (2 * messages), [-1] * (2 * messages)
        for hold in self.held:
            self._push(max(0, hold.asked), hold)
        for number, (die, lines) in enumerate(zip(self.scripts.dies, self.scripts.lines, strict=True)):
            self.dies[die] = DieUse(lines.busy, lines.delayed)
            self._push(self.enter[die], number)

    def _forget(self) -> None:
        """Drop what only the loop needs: runs are kept by the hundred."""
        for cache in (self._free, self._trees, self._ports):
            cache.clear()
        for table in (self._pc, self._since, self._begun, self._legs, self._last, self._done, self._waits):
            table.clear()

    def _push(self, time: int, event: int | _Flight | Hold) -> None:
        """Queue an event: a die that goes on, a message at its next hop, or a hold of an earlier message. A number
        below zero is the complement of a message at its only link."""
        self._events += 1
        heappush(self._queue, (time, self._events, event))

    # -- dies ---------------------------------------------------------------------------------------------

    def _advance(self, die: int, time: int) -> None:
        """Run a die until it waits, or until others may come before it at its HBM."""
        ops, pc, done_at, begun = self.scripts.lines[die].ops, self._pc[die], self._done, self._begun
        queue, start = self._queue, self._start
        while True:
            lead, kind, message, _, _ = ops[pc]
            if lead:
                if self.on_step:
                    self._show_lead(die, pc, time)
                time += lead
            if kind == WAIT:
                done = done_at[message]
                if done > time:
                    time = self._waited(die, pc, time, done)
                elif done < 0:
                    self._waits[message] = die
                    self._since[die], self._pc[die] = time, pc
                    return
            elif kind in _BEGINS:
                first = begun[message]
                begun[message] = time if time > first else first
                if first >= 0:
                    start(message, begun[message])
            elif kind == PORT:
                if queue and queue[0][0] < time:
                    self._pc[die] = pc
                    self._push(time, die)
                    return
                time = self._work(die, pc, time)
            elif kind == END:  # a lead is nothing more
                self.leave[self.scripts.dies[die]] = time
                return
            pc += 1

    def _resumed(self, die: int, time: int) -> int:
        """End the wait of a die; returns when it goes on."""
        since, pc = self._since[die], self._pc[die]
        self._since[die], self._pc[die] = -1, pc + 1
        return self._waited(die, pc, since, time)

    def _work(self, die: int, pc: int, time: int) -> int:
        """The time at which work with the HBM that starts at `time` is over."""
        _, _, _, ticks, hbm = self.scripts.lines[die].ops[pc]
        name = self.scripts.dies[die]
        end = max(time + ticks, self._port(name, time, hbm))
        self.dies[name].busy += end - time
        if self.on_step:
            self.on_step(name, self.scripts.lines[die].places[pc], time, end)
        return end

    def _waited(self, die: int, pc: int, since: int, until: int) -> int:
        """Account for the wait from `since` until a message has left or arrived; returns when the die goes on."""
        if until <= since:
            return since
        end = self.scripts.lines[die].ops[pc][2]
        message = end >> 1
        start = min(max(since, self._begun[message]), until)
        use = self.dies[self.scripts.dies[die]]
        if self.scripts.messages.across[message]:
            use.bubble += start - since
        else:
            use.idle += start - since
        use.exposed[self.scripts.messages.channels[message]] += until - start
        if self.on_step:
            self.on_step(self.scripts.dies[die], self.scripts.lines[die].places[pc], since, until)
        return until

    def _port(self, die: int, time: int, ticks: int) -> int:
        """The time at which a die's HBM has served `ticks` more, from `time` on or when it is free."""
        end = max(time, self._ports[die]) + ticks
        self._ports[die] = end
        return end

    def _show_lead(self, die: int, pc: int, time: int) -> None:
        """Show the instructions that are the lead of an operation, which begins at `time`."""
        assert self.on_step
        lines = self.scripts.lines[die]
        for place in range(lines.places[pc - 1] + 1 if pc else 0, lines.places[pc]):
            self.on_step(self.scripts.dies[die], place, time, time + lines.leads[place])
            time += lines.leads[place]

    # -- messages -----------------------------------------------------------------------------------------

    def _start(self, message: int, time: int) -> None:
        """Start a message whose slot is granted and that is sent."""
        if self.scripts.plain[message]:
            self._events += 1
            heappush(self._queue, (time, self._events, ~message))
        elif cargo := self.scripts.messages.cargos[message]:
            legs = cargo.legs
            self._legs[2 * message] = self._legs[2 * message + 1] = len(legs)
            for number, leg in enumerate(legs):
                self._push(time, [message, leg, number, 0, time])

    def _cross(self, message: int, time: int) -> None:
        """Move a message over its only link, as `_hop` does."""
        link, hold, span, latency = self.scripts.plain[message]  # type: ignore[misc]
        tail = self._grant(link, hold, message, time) + span
        if tail < time + latency:
            tail = time + latency
        end, done, waits = 2 * message, self._done, self._waits
        done[end + 1], done[end] = tail - latency, tail
        if waits[end + 1] >= 0:
            self._push(tail - latency, waits[end + 1])
        if waits[end] >= 0:
            self._push(tail, waits[end])

    def _grant(self, link: Link, hold: int, message: int, time: int) -> int:
        """The time at which a link serves a message that asks for it, and keeps it for `hold`."""
        free = self._free
        start = free[link]
        if start > time:
            use = self.links[link]
            use.queueing += start - time
            use.conflicts += 1
        else:
            start = time
        free[link] = start + hold
        self.uses.append((link, time, start, hold, message))
        if self.on_link:
            self.on_link(link, self.scripts.messages.channels[message], start, start + hold)
        return start

    def _held_on(self, hold: Hold, time: int) -> None:
        """Let a link serve an earlier message."""
        free = self._free[hold.link]
        self._free[hold.link] = max(free, hold.end if hold.asked <= 0 else max(free, time) + hold.ticks)

    def _hop(self, flight: _Flight, time: int) -> None:
        """Move a message whose first byte is at the next link of its leg, at the slot's memory, or about to be read."""
        message, leg, number, hop, tail = flight
        m = self.scripts.messages
        cargo = m.cargos[message]
        assert cargo is not None
        shared = None
        if cargo.tree[0] >= 0:
            shared = self._trees[m.calls[message], cargo.source, *cargo.tree, number]
        if not hop and m.reads[message]:
            time, tail = self._read(m.reads[message], cargo, leg, time, tail, shared)
        links = leg.links
        if hop == len(links):
            self._fill(message, m.writes[message], cargo, leg, time, tail)
            return
        link, ticks = links[hop], leg.ticks[hop]
        latency = ticks.latency
        if shared is not None and link in shared:
            start, tail = shared[link]
            start, tail = max(start, time), max(tail, time + latency)
        else:
            start = self._grant(link, ticks.hold, message, time)
            tail = max(start + ticks.span, tail + latency)
            if shared is not None:
                shared[link] = start, tail
        if not hop:
            self._through(2 * message + 1, tail - latency)
        hop += 1
        head = tail if self.costs.store_and_forward else start + latency
        if hop == len(links) and not m.writes[message]:
            self._fill(message, 0, cargo, leg, head, tail)
        else:
            flight[3], flight[4] = hop, tail
            self._push(head, flight)

    def _read(
        self, whole: int, cargo: Cargo, leg: Leg, time: int, tail: int,
        shared: dict[object, tuple[int, int]] | None,
    ) -> tuple[int, int]:  # fmt: skip
        """The times at which the first byte of the leg and the last have been read from HBM, whose port the message
        takes for `whole` ticks; a tree reads its bytes once."""
        if shared is None or "read" not in shared:
            ticks = _share(whole, leg.part, cargo.bytes)
            end = self._port(cargo.source, time, ticks)
            begin = end - ticks
            if shared is not None:
                shared["read"] = begin, end
        else:
            begin, end = shared["read"]
        return max(time, begin), max(tail, end)

    def _fill(self, message: int, whole: int, cargo: Cargo, leg: Leg, time: int, end: int) -> None:
        """Write the bytes of a leg that has come to its end to their part of the slot; if it is in HBM, the message
        takes the port for `whole` ticks."""
        if whole:
            port = self._port(cargo.to, time, _share(whole, leg.part, cargo.bytes))
            end = max(end, port)
        if not leg.links:  # from a die to itself
            self._through(2 * message + 1, end)
        self._through(2 * message, end)

    def _through(self, end: int, time: int) -> None:
        """Note the time at which the last byte of a leg is through an end of its message; wake who waits for all."""
        if time < self._last[end]:
            time = self._last[end]
        else:
            self._last[end] = time
        self._legs[end] -= 1
        if not self._legs[end]:
            self._done[end] = time
            if self._waits[end] >= 0:
                self._push(time, self._waits[end])

    # -- accounts -----------------------------------------------------------------------------------------

    def holds(self, after: int = -1) -> Iterator[tuple[Hold, int]]:
        """The links that messages of this run held beyond a time, each with the sender."""
        for link, asked, start, hold, message in self.uses:
            if start + hold > after:
                yield Hold(link, asked, start + hold, hold), self.scripts.messages.senders[message]

    def _count(self) -> None:
        """Complete the uses of links by what they carry at any time."""
        for link, carried in self.scripts.traffic.items():
            use = self.links[link]
            use.bytes, use.messages, use.busy = carried.bytes, carried.messages, carried.busy
            use.channels = carried.channels

    def _stuck(self) -> str:
        place = self.costs.wafer.place
        waiting = sorted((die, n) for n, die in enumerate(self.scripts.dies) if self._since[n] >= 0)
        words = []
        for die, n in waiting[:4]:
            lines, pc = self.scripts.lines[n], self._pc[n]
            channel = self.scripts.messages.channels[lines.ops[pc][2] >> 1]
            words.append(
                f"die {place(self.stations[die])} in instruction {lines.places[pc]} waits on channel {channel}"
            )
        return "dies wait for one another: " + "; ".join(words)


def _share(ticks: int, part: int, whole: int) -> int:
    return -(-ticks * part // whole) if whole else 0
