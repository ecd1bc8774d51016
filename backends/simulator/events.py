"""The event loop: dies run their steps in order, messages go from link to link, and queue for links and memories.

A message starts when its slot is granted and its send was issued. It reads its source and fills its slot at the
pace of the HBM where they lie there; each HBM serves one after the other, instructions and messages, as they
come. Links serve first come, first served. `wait sent` ends when the last byte has left the die, `wait received`
when it has arrived. Routers buffer whole messages, so that a branch of a multicast tree waits for nobody, and a
link carries the bytes of a tree once. Equal times are served in a fixed order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from wscc.backends.simulator.calls import COMPUTE, DELAY, WAIT, Step
from wscc.backends.simulator.costs import Costs, Leg
from wscc.backends.simulator.records import DieUse, Hold, Link, LinkUse, Message
from wscc.diagnostics import Code, fail

# The calls of a die: (number, steps), where messages of different calls are distinguished by the number.
Script = Sequence[tuple[int, Sequence[Step]]]
# (die, call number, step, start, end): for traces.
OnStep = Callable[[int, int, Step, int, int], None]
# (link, message, start, end): for traces.
OnLink = Callable[[Link, Message, int, int], None]


@dataclass(slots=True, eq=False)
class _Flight:
    """A message on leg `number`: `hop` is the next hop that it takes, `tail` the time at which its last byte gets
    there."""

    message: Message
    leg: Leg
    number: int
    tail: int
    hop: int = 0


@dataclass(slots=True, eq=False)
class Simulation:
    """One run of some dies from their times of entry; `leave` are the times at which they end, all in ticks. `held` are
    the links of earlier messages, which queue with those of this run; `holds` are those of this run, with the sender.

    `CompileError` W502 if dies wait for one another.
    """

    costs: Costs
    stations: Mapping[int, int]  # the physical die of each logical one
    scripts: Mapping[int, Script]
    enter: Mapping[int, int]
    held: Sequence[Hold] = ()
    on_step: OnStep | None = None
    on_link: OnLink | None = None
    leave: dict[int, int] = field(default_factory=dict)
    dies: dict[int, DieUse] = field(default_factory=dict)
    links: dict[Link, LinkUse] = field(default_factory=lambda: defaultdict(LinkUse))
    holds: list[tuple[Hold, int]] = field(default_factory=list)
    _free: dict[Link, int] = field(default_factory=lambda: defaultdict(int))
    _queue: list[tuple[int, int, int | _Flight | Hold]] = field(default_factory=list)
    _events: int = 0
    _pc: dict[int, tuple[int, int]] = field(default_factory=dict)
    _blocked: dict[int, tuple[int, Step]] = field(default_factory=dict)
    _messages: dict[tuple[int, int, int], Message] = field(default_factory=dict)
    _ports: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _trees: dict[tuple[int, int, int, int], dict[object, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def run(self) -> Simulation:
        """Run all scripts to their ends."""
        for hold in self.held:
            self._push(max(0, hold.asked), hold)
        for die, time in self.enter.items():
            self.dies[die] = DieUse()
            self._pc[die] = 0, 0
            self._push(time, die)
        queue = self._queue
        while queue:
            time, _, event = heappop(queue)
            if isinstance(event, int):
                self._advance(event, time)
            elif isinstance(event, _Flight):
                self._hop(event, time)
            else:
                free = self._free[event.link]
                self._free[event.link] = max(
                    free, event.end if event.asked <= 0 else max(free, time) + event.ticks
                )
        if self._blocked:
            raise fail(Code.DEADLOCK, self._stuck())
        for cache in (self._messages, self._trees, self._free, self._ports, self._pc):
            cache.clear()  # runs are kept by the hundred
        return self

    def _push(self, time: int, event: int | _Flight | Hold) -> None:
        """Queue an event: a die that goes on, a message at its next hop, or a hold of an earlier message."""
        self._events += 1
        heappush(self._queue, (time, self._events, event))

    # -- dies ---------------------------------------------------------------------------------------------

    def _advance(self, die: int, time: int) -> None:
        """Run a die until it waits, or until others may come before it at its HBM."""
        if die in self._blocked:
            time = self._resume(die, time)
        script = self.scripts[die]
        call, pc = self._pc[die]
        while call < len(script):
            number, steps = script[call]
            while pc < len(steps):
                after = self._do(die, number, steps[pc], time)
                if after < 0:
                    self._pc[die] = call, pc
                    return
                time, pc = after, pc + 1
            call, pc = call + 1, 0
        self.leave[die] = time

    def _do(self, die: int, number: int, step: Step, time: int) -> int:
        """The time at which a step that starts at `time` is over, or -1 if it has to wait."""
        if step.kind == COMPUTE:
            return self._compute(die, number, step, time)
        if step.kind == DELAY:
            return self._delay(die, number, step, time)
        if step.kind != WAIT:
            self._begin(number, step, time)
            return time
        message = self._messages[number, step.sender, step.channel]
        done = message.left if step.sent else message.arrived
        if done >= 0:
            return self._waited(die, number, step, message, time, done)
        if step.sent:
            message.sender_waits = die
        else:
            message.receiver_waits = die
        self._blocked[die] = time, step
        return -1

    def _compute(self, die: int, number: int, step: Step, time: int) -> int:
        end = time + step.ticks
        if step.hbm:
            if self._queue and self._queue[0][0] < time:
                self._push(time, die)
                return -1
            end = max(end, self._port(die, time, step.hbm))
        self.dies[die].busy += end - time
        if self.on_step:
            self.on_step(die, number, step, time, end)
        return end

    def _delay(self, die: int, number: int, step: Step, time: int) -> int:
        end = time + step.ticks
        self.dies[die].delayed += step.ticks
        if self.on_step:
            self.on_step(die, number, step, time, end)
        return end

    def _resume(self, die: int, time: int) -> int:
        since, step = self._blocked.pop(die)
        call, pc = self._pc[die]
        number = self.scripts[die][call][0]
        message = self._messages[number, step.sender, step.channel]
        self._pc[die] = call, pc + 1
        return self._waited(die, number, step, message, since, time)

    def _waited(self, die: int, number: int, step: Step, message: Message, since: int, until: int) -> int:
        """Account for the wait from `since` until a message has left or arrived; returns when the die goes on."""
        if until <= since:
            return since
        use, start = self.dies[die], min(max(since, message.start), until)
        if step.across:
            use.bubble += start - since
        else:
            use.idle += start - since
        use.exposed[step.channel] += until - start
        if self.on_step:
            self.on_step(die, number, step, since, until)
        return until

    def _port(self, die: int, time: int, ticks: int) -> int:
        """The time at which a die's HBM has served `ticks` more, from `time` on or when it is free."""
        end = max(time, self._ports[die]) + ticks
        self._ports[die] = end
        return end

    # -- messages -----------------------------------------------------------------------------------------

    def _begin(self, number: int, step: Step, time: int) -> None:
        key = number, step.sender, step.channel
        message = self._messages.get(key)
        if message is None:
            message = self._messages[key] = Message(step.channel)
        if step.cargo is None:
            message.posted, message.write = time, step.hbm
        else:
            message.issued, message.cargo, message.read = time, step.cargo, step.hbm
        cargo = message.cargo
        if message.posted < 0 or cargo is None:
            return
        message.legs_inside = message.legs_on_way = len(cargo.legs)
        for k, leg in enumerate(cargo.legs):
            self._push(message.start, _Flight(message, leg, k, message.start))

    def _hop(self, flight: _Flight, time: int) -> None:
        """Move a message whose first byte is at the next link of its leg, at the slot's memory, or about to be read."""
        message, leg = flight.message, flight.leg
        cargo = message.cargo
        assert cargo is not None
        shared = self._trees[cargo.source, *cargo.tree, flight.number] if cargo.tree[0] >= 0 else None
        if flight.hop == 0 and message.read:
            time = self._read(flight, time, shared)
        if flight.hop == len(leg.links):
            self._fill(flight, time)
            return
        link = leg.links[flight.hop]
        latency = self.costs.latency
        if shared is not None and link in shared:
            start, tail = shared[link]
            start, tail = max(start, time), max(tail, time + latency)
        else:
            start = max(time, self._free[link])
            tail = max(start + leg.span, flight.tail + latency)
            self._carry(link, flight, time, start)
            if shared is not None:
                shared[link] = start, tail
        if flight.hop == 0:
            self._leave(message, tail - latency)
        flight.tail, flight.hop = tail, flight.hop + 1
        head = tail if self.costs.links.store_and_forward else start + latency
        if flight.hop == len(leg.links) and not message.write:
            self._fill(flight, head)
        else:
            self._push(head, flight)

    def _read(self, flight: _Flight, time: int, shared: dict[object, tuple[int, int]] | None) -> int:
        """The time at which the first byte of the leg has been read from HBM; a tree reads its bytes once."""
        message, leg = flight.message, flight.leg
        assert message.cargo is not None
        if shared is None or "read" not in shared:
            ticks = _share(message.read, leg.part, message.cargo.bytes)
            end = self._port(message.cargo.source, time, ticks)
            begin = end - ticks
            if shared is not None:
                shared["read"] = begin, end
        else:
            begin, end = shared["read"]
        flight.tail = max(flight.tail, end)
        return max(time, begin)

    def _carry(self, link: Link, flight: _Flight, time: int, start: int) -> None:
        hold, use = flight.leg.hold, self.links[link]
        self._free[link] = start + hold
        assert flight.message.cargo is not None
        self.holds.append((Hold(link, time, start + hold, hold), flight.message.cargo.source))
        use.bytes += flight.leg.part
        use.channels[flight.message.channel] += flight.leg.part
        use.messages += 1
        use.busy += hold
        if start > time:
            use.queueing += start - time
            use.conflicts += 1
        if self.on_link:
            self.on_link(link, flight.message, start, start + hold)

    def _fill(self, flight: _Flight, time: int) -> None:
        """Write the bytes of a leg that has come to its end to their part of the slot."""
        message, end = flight.message, flight.tail
        assert message.cargo is not None
        if message.write:
            ticks = _share(message.write, flight.leg.part, message.cargo.bytes)
            end = max(end, self._port(message.cargo.to, time, ticks))
        if not flight.leg.links:  # from a die to itself
            self._leave(message, end)
        message.legs_on_way -= 1
        message.arriving = max(message.arriving, end)
        if not message.legs_on_way:
            message.arrived = message.arriving
            if message.receiver_waits >= 0:
                self._push(message.arrived, message.receiver_waits)

    def _leave(self, message: Message, time: int) -> None:
        message.legs_inside -= 1
        message.leaving = max(message.leaving, time)
        if not message.legs_inside:
            message.left = message.leaving
            if message.sender_waits >= 0:
                self._push(message.left, message.sender_waits)

    def _stuck(self) -> str:
        place = self.costs.wafer.coordinate
        words = [
            f"die {place(self.stations[die])} in instruction {step.position} waits on channel {step.channel}"
            for die, (_, step) in sorted(self._blocked.items())[:4]
        ]
        return "dies wait for one another: " + "; ".join(words)


def _share(ticks: int, part: int, whole: int) -> int:
    return -(-ticks * part // whole) if whole else 0
