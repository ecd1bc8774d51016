"""An independent check of a timed plan: the collective's result on every die, and no more than links can carry.

It replays starts and ends, and shares nothing with the planners but the link model.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Final

from wscc.collectives.plan import COPY, REDUCE, Chunk, Link, Message, Op, Request
from wscc.collectives.timing import LinkModel, Timed

# Relative slack for times that were added up in another order.
_SLACK: Final = 1e-9

# The dies whose contributions a die holds, as bits, by (die, chunk).
_State = dict[tuple[int, int], int]


def violations(request: Request, timed: Timed) -> list[str]:
    """The faults of a timed plan, in words; empty if it has none.

    Checked: the chunks are those of the collective; every message crosses a live link, lasts as long as the
    link model says and shares its link with no other; nobody sends what it does not hold; `reduce` adds every
    contribution exactly once; every die ends with all that it was promised.
    """
    return [
        *_chunk_faults(request, timed.plan.chunks),
        *_link_faults(request, timed),
        *_data_faults(timed),
    ]


def _chunk_faults(request: Request, chunks: tuple[Chunk, ...]) -> list[str]:
    """Compare the bytes by (holders, receivers) with the definition of the collective."""
    planned: Counter[tuple[frozenset[int], frozenset[int]]] = Counter()
    for c in chunks:
        planned[c.sources, c.targets] += c.bytes
    promised = {key: n for key, n in _promised(request).items() if n and len(key[0] | key[1]) > 1}
    planned = Counter({key: n for key, n in planned.items() if n and len(key[0] | key[1]) > 1})
    return [] if planned == promised else ["the chunks are not those of the collective"]


def _promised(request: Request) -> dict[tuple[frozenset[int], frozenset[int]], int]:
    dies, everyone = request.dies, frozenset(request.dies)
    one = {d: frozenset([d]) for d in dies}
    shards = list(zip(dies, request.shards, strict=True))
    match request.op:
        case Op.ALL_GATHER:
            return {(one[d], everyone): n for d, n in shards}
        case Op.REDUCE_SCATTER:
            return {(everyone, one[d]): n for d, n in shards}
        case Op.ALL_REDUCE:
            return {(everyone, everyone): request.bytes}
        case Op.BROADCAST:
            return {(one[request.root], everyone): request.bytes}
        case Op.P2P:
            return {(one[request.root], one[request.target]): request.bytes}
        case Op.ALL_TO_ALL:
            return {(one[a], one[b]): n for a in dies for b, n in shards if a != b}


def _link_faults(request: Request, timed: Timed) -> list[str]:
    faults, model, sizes = [], timed.model, timed.plan.sizes
    by_link: dict[Link, list[tuple[float, float]]] = {}
    for i, m in enumerate(timed.plan.messages):
        start, end, size = timed.starts[i], timed.ends[i], sum(sizes[c] for c in m.chunks)
        if not request.topology.are_adjacent(m.src, m.dst):
            faults.append(f"message {i} crosses no live link: {m.src} to {m.dst}")
        on = model.on((m.src, m.dst))
        if start < 0 or abs(end - start - on.span(size)) > _SLACK * max(end, 1.0):
            faults.append(f"message {i} takes {end - start} byte times for {size} bytes")
        by_link.setdefault((m.src, m.dst), []).append((start, start + on.hold(size)))
    for link, times in by_link.items():
        times.sort()
        for (_, free), (start, _) in itertools.pairwise(times):
            if start < free - _SLACK * free:
                faults.append(f"link {link} carries two messages at {start}")
    return faults


def _data_faults(timed: Timed) -> list[str]:
    """Replay sends and arrivals in order of time; at the same moment (a link may take none) in that of the plan."""
    plan, faults = timed.plan, []
    held: _State = {(d, c): 1 << d for c, chunk in enumerate(plan.chunks) for d in chunk.sources}
    flying: dict[tuple[int, int], int] = {}
    for _, i, has_arrived, position in _events(timed):
        m, c = plan.messages[i], plan.messages[i].chunks[position]
        if not has_arrived:
            flying[i, position] = held.get((m.src, c), 0)
            if not flying[i, position]:
                faults.append(f"message {i}: die {m.src} does not hold chunk {c}")
        else:
            faults += _arrive(held, m, c, flying.get((i, position), 0), i)
    for c, chunk in enumerate(plan.chunks):
        whole = sum(1 << d for d in chunk.sources)
        faults += [
            f"die {d} ends without chunk {c}" for d in sorted(chunk.targets) if held.get((d, c), 0) != whole
        ]
    return faults


def _arrive(held: _State, m: Message, c: int, value: int, i: int) -> list[str]:
    before = held.get((m.dst, c), 0)
    if m.op == COPY:
        held[m.dst, c] = value
        return []
    held[m.dst, c] = before | value
    return [f"message {i} adds to chunk {c} at die {m.dst} twice"] if before & value else []


def _events(timed: Timed) -> list[tuple[float, int, int, int]]:
    """(time, message, 0 sent or 1 arrived, position of the chunk in it), by time."""
    events, model = [], timed.model
    for i, m in enumerate(timed.plan.messages):
        offset = 0
        for position, c in enumerate(m.chunks):
            send, arrival = _times(model, m, timed.starts[i], timed.ends[i], offset)
            events += [(send, i, 0, position), (arrival, i, 1, position)]
            offset += timed.plan.chunks[c].bytes
    return sorted(events)


def _times(model: LinkModel, m: Message, start: float, end: float, offset: int) -> tuple[float, float]:
    """Times at which a chunk `offset` bytes into a message is read at its sender and may leave its receiver."""
    if model.store_and_forward:
        return start, end
    is_whole = m.op == REDUCE or not model.early_relays
    return start + offset, end if is_whole else start + model.latency + offset
