"""Why a schedule takes longer than its bound: what its busiest link does all the time."""

from __future__ import annotations

from typing import Final

from wscc.collectives.plan import Link
from wscc.collectives.timing import Timed

# Time over the bound from which there is something to say.
_WORTH: Final = 1.01


def shortfall(timed: Timed, bound: float, kind: str) -> str | None:
    """In words, where the time beyond the bound goes; None within 1 % of it.

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
    """By link, how long it is held."""
    sizes, held = timed.plan.sizes, dict[Link, float]()
    for m in timed.plan.messages:
        hold = timed.model.hold(sum(sizes[c] for c in m.chunks))
        held[m.src, m.dst] = held.get((m.src, m.dst), 0.0) + hold
    return held


def _part(time: float, timed: Timed) -> str:
    return f"{100 * time / timed.end:.1f} %"
