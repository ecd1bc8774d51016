"""A timed plan as JSON lines that others can replay."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.collectives.plan import Request
from wscc.collectives.timing import Timed
from wscc.files import to_json


def plan_lines(request: Request, timed: Timed) -> Iterator[str]:
    """One line for each chunk of each message, in the order of starts.

    `start` and `end` in seconds, the end being the arrival of the last byte; dies as [row, column]; chunks
    that cross a link together share `message`, `start` and `end`. Chunks are numbered from 0: by owner
    (row by row) and then by offset in gathers and scatters, by offset otherwise; in all_to_all by sender, then
    receiver, then offset.
    """
    order = sorted(range(len(timed.starts)), key=lambda i: (timed.starts[i], i))
    coordinate = request.topology.place
    for number, i in enumerate(order):
        m = timed.plan.messages[i]
        for c in m.chunks:
            line = {
                "message": number, "start": timed.model.seconds(timed.starts[i]),
                "end": timed.model.seconds(timed.ends[i]), "src": list(coordinate(m.src)),
                "dst": list(coordinate(m.dst)),
                "bytes": timed.plan.chunks[c].bytes, "chunk": c, "op": m.op,
            }  # fmt: skip
            yield to_json(line)
