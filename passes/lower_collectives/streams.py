"""A stream as a loop of kernels over chunks, with the transfers that bring the next chunk in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, zip_longest
from typing import Final

from wscc.analysis.gather_plan import GatherPlan, Move
from wscc.ir.logical_mesh import mask
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.reshards import add_arrived, arriving, gathering
from wscc.passes.lower_collectives.slices import slices
from wscc.passes.lower_collectives.stream_site import Shards, StreamSite

Event = tuple[str, int]
_OVER: Final = object()


def lower_stream(s: StreamSite) -> None:
    """Operands that move are received while earlier chunks are worked on; results that move grow on the way."""
    parts = slices(s)
    if not s.stream.moving_out:
        for part in parts:
            _gather_as_it_goes(part)
        return
    # A message of a slice is on its way while another slice is worked on: each starts when the one before is half done.
    rounds = len(s.along.plan.rounds) * (2 if s.stream.moving_in else 1)  # operands are gathered first
    waiting, begun = [_reduce_as_it_goes(part) for part in parts], list[Iterator[None]]()
    for tick in count():
        if waiting and tick % max(1, -(-rounds // 2)) == 0:
            begun.append(waiting.pop(0))
        begun = [part for part in begun if next(part, _OVER) is not _OVER]
        if not waiting and not begun:
            return


# --------------------------------------------------------------------------------------- operands that move


def _gather_as_it_goes(s: StreamSite) -> None:
    plan = s.along.plan
    events = _events(plan)
    slot_of, slots = _colour(plan, events)
    moving = {
        i: s.build.buffer(f"{s.group}.slots{i}", (slots, *s.reads[i].shape), s.reads[i].dtype, slot=True)
        for i in s.stream.moving_in
    }

    def held(i: int, shards: Shards) -> View:
        """Where each die keeps the shard that is its entry of `shards`."""
        at = s.along.by_position(tuple(slot_of[p].get(j, 0) for p, j in enumerate(shards)))
        one = sliced(moving[i], 0, at, 1)
        return View(one.buffer, one.offset, one.shape[1:], one.strides[1:], one.dtype)

    for kind, n in events:
        if kind == "round":
            for move in plan.rounds[n]:
                for i in s.stream.moving_in:
                    read = s.reads[i] if n == 0 else held(i, move.shard)
                    s.along.send(move, read, held(i, arriving(move)[0]), s.group)
            continue
        shards = plan.order[n]
        reads = tuple(
            (v if n == 0 else held(i, shards)) if i in s.stream.moving_in else s.chunk(v, t, shards)
            for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True))
        )
        writes = tuple(s.chunk(v, t, shards) for v, t in zip(s.writes, s.outs(), strict=True))
        more = tuple(m or (n > 0 and s.stream.factor not in t) for m, t in zip(s.more, s.outs(), strict=True))
        s.run(shards, reads, writes, more)


def _events(plan: GatherPlan) -> list[Event]:
    """Rounds and uses in program order: the round after the one that a use needs is under way before it."""
    events: list[Event] = []
    sent = 0
    for t in range(plan.size):
        while sent < min(plan.ready[t] + 1, len(plan.rounds)):
            events.append(("round", sent))
            sent += 1
        events.append(("use", t))
    return events


def _colour(plan: GatherPlan, events: list[Event]) -> tuple[list[dict[int, int]], int]:
    """By position, the slot of each shard that arrives; and how many slots that takes.

    A slot is free again once its shard has been used and relayed; arrivals of a round never share one with
    what the same round still sends.
    """
    slot_of = [_first_free(life) for life in _lives(plan, events)]
    return slot_of, max((max(c.values(), default=-1) + 1 for c in slot_of), default=1)


def _lives(plan: GatherPlan, events: list[Event]) -> list[dict[int, list[int]]]:
    """By position and shard that arrives there: the moments at which it arrives, is relayed and is used."""
    lives: list[dict[int, list[int]]] = [{} for _ in range(plan.size)]
    for when, (kind, n) in enumerate(events):
        if kind == "use":
            for p, shard in enumerate(plan.order[n]):
                if shard in lives[p]:
                    lives[p][shard].append(when)
            continue
        for move in plan.rounds[n]:
            for p, q in enumerate(move.to):
                if q != NOBODY and move.shard[p] in lives[p]:
                    lives[p][move.shard[p]].append(when)
            for q, (shard, lands) in enumerate(zip(*arriving(move), strict=True)):
                if lands:
                    lives[q].setdefault(shard, [when])
    return lives


def _first_free(life: dict[int, list[int]]) -> dict[int, int]:
    """The slot of each shard, taken in order of arrival, the first that is free by then."""
    busy_until: list[int] = []
    chosen: dict[int, int] = {}
    for shard, times in sorted(life.items(), key=lambda kv: (kv[1][0], kv[0])):
        slot = next((i for i, end in enumerate(busy_until) if end < times[0]), len(busy_until))
        if slot == len(busy_until):
            busy_until.append(0)
        busy_until[slot] = max(times)
        chosen[shard] = slot
    return chosen


# ---------------------------------------------------------------------------------------- results that move


def _reduce_as_it_goes(s: StreamSite) -> Iterator[None]:
    """The time reversal: the farthest shard's part is computed and sent first, one's own last. A round at a time."""
    s, gathered = _with_operands_gathered(s)
    yield from gathered
    outs = s.stream.moving_out
    _clear_kept_results(s)
    pending: dict[int, list[tuple[Move, View]]] = {j: [] for j in outs}
    for r, moves in enumerate(reversed(s.along.plan.rounds)):
        back = [m.backwards() for m in moves]
        parts: dict[Shards, dict[int, View]] = {}
        for move in back:
            if move.shard not in parts:
                parts[move.shard] = _part(s, move, pending, f"{s.group}.acc{r}.{len(parts)}")
        arrived: dict[int, list[tuple[Move, View]]] = {j: [] for j in outs}
        for i, move in enumerate(back):
            for j in outs:
                source = parts[move.shard][j]
                slot = s.build.buffer(f"{s.group}.in{r}.{i}.{j}", source.shape, source.dtype, slot=True)
                s.along.send(move, source, slot, s.group)
                arrived[j].append((move, slot))
        pending = arrived
        yield
    own = tuple(range(s.along.size))
    _contribute(s, own, {j: s.writes[j] for j in outs}, 1)
    for j in outs:
        add_arrived(s.along, s.writes[j], own, pending[j])


def _with_operands_gathered(s: StreamSite) -> tuple[StreamSite, Iterator[None]]:
    """Operands that move together with accumulators are gathered first: the accumulator of the farthest
    shard starts, which needs the farthest operand. Also the rounds that gather them."""
    reads, rounds = list(s.reads), []
    for i in s.stream.moving_in:
        dim = s.ins()[i].index(s.stream.factor)
        shape = list(reads[i].shape)
        shape[dim] *= s.along.size
        full = s.build.buffer(f"{s.group}.gathered{i}", shape, reads[i].dtype)
        rounds.append(gathering(s.along, reads[i], full, dim, s.group))
        reads[i] = full
    return replace(s, reads=tuple(reads)), (None for _ in zip_longest(*rounds))


def _kept(s: StreamSite) -> list[int]:
    """Results that stay and lack the factor: every chunk adds to them."""
    return [j for j, t in enumerate(s.outs()) if j not in s.stream.moving_out and s.stream.factor not in t]


def _clear_kept_results(s: StreamSite) -> None:
    for j in _kept(s):
        if not s.more[j]:
            s.build.kernel("fill", [s.writes[j]], [], {"value": 0.0})


def _part(
    s: StreamSite, move: Move, pending: dict[int, list[tuple[Move, View]]], hint: str
) -> dict[int, View]:
    """What this die sends of a shard: its own contribution and what has arrived for it."""
    senders = [q >= 0 for q in move.to]
    made = {
        j: s.build.buffer(f"{hint}.{j}", s.writes[j].shape, s.writes[j].dtype) for j in s.stream.moving_out
    }
    where = 1 if all(senders) else mask(s.along.mesh, s.along.axis, senders)
    _contribute(s, move.shard, made, where)
    for j, acc in made.items():
        add_arrived(s.along, acc, move.sent, pending[j])
    return made


def _contribute(s: StreamSite, shards: Shards, into: dict[int, View], where: Ints) -> None:
    reads = tuple(s.chunk(v, t, shards) for v, t in zip(s.reads, s.ins(), strict=True))
    writes = tuple(
        into[j] if j in into else s.chunk(v, t, shards)
        for j, (v, t) in enumerate(zip(s.writes, s.outs(), strict=True))
    )
    kept = _kept(s)
    # Parts that are sent hold nothing yet; what they end in may.
    more = tuple(j in kept or (s.more[j] and writes[j] == s.writes[j]) for j in range(len(writes)))
    s.run(shards, reads, writes, more, where)
