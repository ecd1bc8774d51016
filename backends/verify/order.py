"""A check that all dies get through a procedure: no cycle of dies that wait for one another.

Sends and posts never block, so the progress of a die does not depend on the order in which dies run: one order of the
events shows the outcome of every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wscc.backends.verify.findings import Finding
from wscc.backends.verify.messages import POST, SEND, WAIT_SENT, Event, Matched, Part


@dataclass(slots=True)
class _Runner:
    """A die at event `position` of its part; `numbers` are those of its messages, by ordinal."""

    die: int
    part: Part
    numbers: list[int]
    position: int = 0

    @property
    def event(self) -> Event:
        return self.part.events[self.position]


def stuck(matched: Matched, name: Callable[[int], str]) -> Finding | None:
    """The finding of a cycle of dies that wait for one another; None if there is none."""
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
        while runner.position < len(events):
            event = events[runner.position]
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
            runner.position += 1
    return _cycle({r.die: r for r in waiting.values()}, matched, name) if waiting else None


def _cycle(waiting: dict[int, _Runner], matched: Matched, name: Callable[[int], str]) -> Finding:
    def peer(r: _Runner) -> int:
        message = r.numbers[r.event.ordinal]
        return int(matched.peers[1 if r.event.kind == WAIT_SENT else 0][message])

    chain: list[int] = []
    die = min(waiting)
    while die not in chain:
        chain.append(die)
        die = peer(waiting[die])
    cycle = chain[chain.index(die) :]
    words = [
        f"die {name(d)} at instruction {r.event.at} waits for die {name(peer(r))} "
        f"to {'grant a slot' if r.event.kind == WAIT_SENT else 'send'}"
        for d, r in ((d, waiting[d]) for d in cycle)
    ]
    first = waiting[cycle[0]]
    return Finding(
        "waits",
        "dies wait in a circle: " + "; ".join(words),
        name(cycle[0]),
        first.part.code.name,
        first.event.at,
    )
