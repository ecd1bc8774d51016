"""Moves of copies within a die, so that they take only as long as there is room for them."""

from __future__ import annotations

from dataclasses import replace

from wscc.analysis.memory.local_copies import local_copies
from wscc.ir.module import Procedure


def with_copies_within(procedure: Procedure, lives: dict[str, tuple[int, int]]) -> Procedure:
    """The procedure with the copies into and out of these buffers moved so that each is live from the first to the
    last of two statements: posts and sends go down, at most to the wait that they belong to, and waits go up. No
    message of a die to itself makes another die wait, so that this cannot block."""
    body = procedure.body
    # Before which statement (rank 0) or after which one (rank 2) the moved ones stand.
    place: dict[int, tuple[int, int]] = {}
    for c in local_copies(body):
        m = c.parts
        if c.slot in lives:
            first = lives[c.slot][0]
            begins = (m.post, m.send)
            place |= {part: (first, 0) for part in begins if part < first <= m.received}
        if c.source in lives:
            last = lives[c.source][1]
            if max(m.post, m.send) <= last < m.left:
                place[m.left] = last, 2
    order = sorted(range(len(body)), key=lambda i: (*place.get(i, (i, 1)), i))
    return replace(procedure, body=tuple(body[i] for i in order))
