"""Whether all dies get through a procedure: waits follow what they wait for, in no circle.

Sends and posts never block, so that what a die has done does not depend on when others ran: one order of the events
shows what every order does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wscc.backends.verify.findings import Finding
from wscc.backends.verify.messages import POST, SEND, WAIT_SENT, Event, Matched, Part


@dataclass(slots=True)
class _Runner:
    """A die at event `at` of its part."""

    die: int
    part: Part
    numbers: list[int]
    at: int = 0

    @property
    def event(self) -> Event:
        return self.part.events[self.at]


def stuck(matched: Matched, name: Callable[[int], str]) -> Finding | None:
    """The circle of dies that wait for one another, if there is one."""
    runners: dict[int, _Runner] = {}
    for part, number in zip(matched.parts, matched.number, strict=True):
        for place, die in enumerate(part.dies.tolist()):
            if part.events:
                runners[die] = _Runner(die, part, number[:, place].tolist())
    done = [[False] * matched.count for _ in range(2)]
    waiting: dict[tuple[int, int], _Runner] = {}
    ready = list(runners.values())
    while ready:
        runner = ready.pop()
        events, numbers = runner.part.events, runner.numbers
        while runner.at < len(events):
            event = events[runner.at]
            message = numbers[event.ordinal]
            if event.kind <= POST:
                done[event.kind][message] = True
                if (event.kind, message) in waiting:
                    ready.append(waiting.pop((event.kind, message)))
            else:
                other = POST if event.kind == WAIT_SENT else SEND
                if not done[other][message]:
                    waiting[other, message] = runner
                    break
            runner.at += 1
    return _circle({r.die: r for r in waiting.values()}, matched, name) if waiting else None


def _circle(waiting: dict[int, _Runner], matched: Matched, name: Callable[[int], str]) -> Finding:
    def peer(r: _Runner) -> int:
        message = r.numbers[r.event.ordinal]
        return int(matched.peers[1 if r.event.kind == WAIT_SENT else 0][message])

    chain: list[int] = []
    die = min(waiting)
    while die not in chain:
        chain.append(die)
        die = peer(waiting[die])
    circle = chain[chain.index(die) :]
    words = [
        f"die {name(d)} at instruction {r.event.at} waits for die {name(peer(r))} "
        f"to {'grant a slot' if r.event.kind == WAIT_SENT else 'send'}"
        for d, r in ((d, waiting[d]) for d in circle)
    ]
    first = waiting[circle[0]]
    return Finding(
        "waits",
        "dies wait in a circle: " + "; ".join(words),
        name(circle[0]),
        first.part.code.name,
        first.event.at,
    )
