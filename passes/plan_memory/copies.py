"""Moves of the copies within a die to fit given live ranges."""

from __future__ import annotations

from dataclasses import replace

from wscc.analysis.memory.local_copies import local_copies
from wscc.ir.module import Procedure


def with_copies_within(procedure: Procedure, ranges: dict[str, tuple[int, int]]) -> Procedure:
    """The procedure with the copies into and out of buffers moved so that each buffer is live in its range only.

    `ranges`: the first and the last statement of the live range of buffers. Posts and sends move down, at most to their
    wait, and waits move up. A message of a die to itself makes no other die wait, so the moves cannot deadlock.
    """
    body = procedure.body
    # New positions of moved statements: before (rank 0) or after (rank 2) a statement.
    place: dict[int, tuple[int, int]] = {}
    for c in local_copies(body):
        m = c.message
        if c.slot in ranges:
            first = ranges[c.slot][0]
            place |= {start: (first, 0) for start in (m.post, m.send) if start < first <= m.received}
        if c.source in ranges:
            last = ranges[c.source][1]
            if max(m.post, m.send) <= last < m.sent:
                place[m.sent] = last, 2
    order = sorted(range(len(body)), key=lambda i: (*place.get(i, (i, 1)), i))
    return replace(procedure, body=tuple(body[i] for i in order))
