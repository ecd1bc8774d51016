"""Lowering of streams: loops of kernels over chunks, with the transfers that bring or take the shards in between.

Operands that move are gathered while earlier chunks are computed, results that move are reduced while later chunks are
computed (TATP, arXiv 2512.14256, sec. 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Final

from wscc.analysis.gather_plan import GatherPlan, Move
from wscc.ir.logical_mesh import mask
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.attention import RowSums, attention_row_sums, with_row_sums
from wscc.passes.lower_collectives.reshards import add_arrived, arriving, gathering
from wscc.passes.lower_collectives.sliced_reshards import SlicedReshard, with_operands, with_results
from wscc.passes.lower_collectives.slices import Slices
from wscc.passes.lower_collectives.stream_instance import Shards, StreamInstance

Event = tuple[str, int]
NO_RESHARDS: Final[Mapping[int, SlicedReshard]] = {}
_OVER: Final = object()


def lower_stream(
    parts: Slices,
    gathers: Mapping[int, SlicedReshard] = NO_RESHARDS,
    scatters: Mapping[int, SlicedReshard] = NO_RESHARDS,
) -> None:
    """Append the kernels and transfers of a stream, slice by slice; with those of reshards of the operands and results
    that move, by number, which each slice does for itself."""
    take_turns(turns(parts, gathers, scatters))


@dataclass(frozen=True, slots=True)
class Turn:
    """The statements of a slice of a stream, in rounds. Those of `before` are appended beside the slices before it;
    the next slice may begin after so many rounds of `body`, beside the others, or with None when it is over."""

    before: Iterator[None]
    body: Iterator[None]
    alone: int | None = None


def turns(
    parts: Slices, gathers: Mapping[int, SlicedReshard], scatters: Mapping[int, SlicedReshard]
) -> Iterator[Turn]:
    """The turns of the slices of a stream, and the one in which sums become results."""
    for part in parts.slices:
        yield _turn(part, gathers, scatters)
    if parts.sums:
        yield Turn(iter(()), _settled(parts))


def _settled(parts: Slices) -> Iterator[None]:
    for result, sums in parts.sums:
        parts.slices[0].build.kernel("cast", [result], [sums])
    yield from ()


def _turn(
    s: StreamInstance, gathers: Mapping[int, SlicedReshard], scatters: Mapping[int, SlicedReshard]
) -> Turn:
    """The turn of a slice. While an operand is used, those of the next slice are gathered; while a message of a result
    is in flight, the next slice computes."""
    # A pass over all keys before another needs them all at hand.
    if s.stream.moving_out or ((sums := _row_sums(s)) and sums.passes):
        part, ending = with_results(s, scatters)
        rounds = len(s.groups.plan.rounds) * (2 if s.stream.moving_in else 1)  # operands are gathered first
        return Turn(iter(()), chain(_reduce_as_it_goes(part), *ending), max(1, -(-rounds // 2)))
    part, coming = with_operands(s, gathers)
    return Turn(chain(*coming), _gather_as_it_goes(part))


def take_turns(turns: Iterable[Turn]) -> None:
    """Append the statements of the turns, which begin in this order."""
    waiting = deque(turns)
    running: list[Iterator[None]] = []
    last, rounds = Turn(iter(()), iter(())), 0
    while waiting or running:
        if waiting and (not running or (last.alone is not None and rounds >= last.alone)):
            last, rounds = waiting.popleft(), 0
            _exhaust(last.before)
            running.append(last.body)
        rounds += 1
        running = [body for body in running if next(body, _OVER) is not _OVER]
        if waiting and running:
            next(waiting[0].before, None)


def _exhaust(rounds: Iterator[None]) -> None:
    for _ in rounds:
        pass


# --------------------------------------------------------------------------------------- operands that move


def _gather_as_it_goes(s: StreamInstance) -> Iterator[None]:
    """Append the rounds that gather operands, and the kernels on the chunks that have arrived: a chunk at a time."""
    s = _with_row_sums(s)
    plan = s.groups.plan
    events, slot_by_shard, slots = _in_order(plan)
    moving = {
        i: s.build.buffer(f"{s.group}.slots{i}", (slots, *s.reads[i].shape), s.reads[i].dtype, slot=True)
        for i in s.stream.moving_in
    }

    def slot_view(i: int, shards: Shards) -> View:
        """The slot in which each die keeps the shard that is its entry of `shards`, of operand i."""
        slot = s.groups.by_position(tuple(slot_by_shard[p].get(j, 0) for p, j in enumerate(shards)))
        one = sliced(moving[i], 0, slot, 1)
        return View(one.buffer, one.offset, one.shape[1:], one.strides[1:], one.dtype)

    for kind, n in events:
        if kind == "round":
            for move in plan.rounds[n]:
                for i in s.stream.moving_in:
                    read = s.reads[i] if n == 0 else slot_view(i, move.shard)
                    s.groups.send(move, read, slot_view(i, arriving(move)[0]), s.group)
            continue
        shards = plan.order[n]
        reads = tuple(
            (v if n == 0 else slot_view(i, shards)) if i in s.stream.moving_in else s.chunk(v, t, shards)
            for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True))
        )
        writes = tuple(s.chunk(v, t, shards) for v, t in zip(s.writes, s.outs(), strict=True))
        accumulate = tuple(
            m or (n > 0 and s.stream.factor not in t) for m, t in zip(s.accumulate, s.outs(), strict=True)
        )
        s.run(shards, reads, writes, accumulate)
        yield


# The slices of a stream gather alike.
@lru_cache(maxsize=64)
def _in_order(plan: GatherPlan) -> tuple[list[Event], list[dict[int, int]], int]:
    """Rounds and uses in program order, the slot of each shard that arrives, by position and shard, and the number of
    slots."""
    events = _events(plan)
    return events, *_allocate_slots(plan, events)


def _events(plan: GatherPlan) -> list[Event]:
    """Rounds and uses in program order: the round after the one that a use needs starts before the use."""
    events: list[Event] = []
    sent = 0
    for t in range(plan.size):
        while sent < min(plan.ready[t] + 1, len(plan.rounds)):
            events.append(("round", sent))
            sent += 1
        events.append(("use", t))
    return events


def _allocate_slots(plan: GatherPlan, events: list[Event]) -> tuple[list[dict[int, int]], int]:
    """The slot of each shard that arrives, by position and shard, and the number of slots.

    This is register allocation by linear scan. A slot is free again once its shard has been used and relayed; arrivals
    of a round never share one with shards that the same round still sends.
    """
    slots = [_first_fit(uses) for uses in _live_ranges(plan, events)]
    return slots, max((n + 1 for s in slots for n in s.values()), default=1)


def _live_ranges(plan: GatherPlan, events: list[Event]) -> list[dict[int, list[int]]]:
    """The times of arrival, relays and use of each shard that arrives, by position and shard."""
    ranges: list[dict[int, list[int]]] = [{} for _ in range(plan.size)]
    for time, (kind, n) in enumerate(events):
        if kind == "use":
            for p, shard in enumerate(plan.order[n]):
                if shard in ranges[p]:
                    ranges[p][shard].append(time)
            continue
        for move in plan.rounds[n]:
            for p, q in enumerate(move.to):
                if q != NOBODY and move.shard[p] in ranges[p]:
                    ranges[p][move.shard[p]].append(time)
            for q, (shard, arrives) in enumerate(zip(*arriving(move), strict=True)):
                if arrives:
                    ranges[q].setdefault(shard, [time])
    return ranges


def _first_fit(uses: dict[int, list[int]]) -> dict[int, int]:
    """The slot of each shard: in order of arrival, the first one that is free by then."""
    busy_until: list[int] = []
    slot_of: dict[int, int] = {}
    for shard, uses_of_shard in sorted(uses.items(), key=lambda kv: (kv[1][0], kv[0])):
        slot = next((i for i, end in enumerate(busy_until) if end < uses_of_shard[0]), len(busy_until))
        if slot == len(busy_until):
            busy_until.append(0)
        busy_until[slot] = max(uses_of_shard)
        slot_of[shard] = slot
    return slot_of


# ---------------------------------------------------------------------------------------- results that move


def _reduce_as_it_goes(s: StreamInstance) -> Iterator[None]:
    """Append a reduction, the reverse of a gather, a round at a time: a die computes and sends its part of the farthest
    shard first, and its own shard last."""
    s, gathered = _with_operands_gathered(s)
    yield from gathered
    s = _with_row_sums(s)
    outs = s.stream.moving_out
    _clear_stationary(s)
    pending: dict[int, list[tuple[Move, View]]] = {j: [] for j in outs}
    for r, forward in enumerate(reversed(s.groups.plan.rounds)):
        moves = [m.backwards() for m in forward]
        parts: dict[Shards, dict[int, View]] = {}
        for move, senders in zip(moves, _senders(forward), strict=True):
            if move.shard not in parts:
                parts[move.shard] = _contribution(s, move, senders, pending, f"{s.group}.acc{r}.{len(parts)}")
        arrived: dict[int, list[tuple[Move, View]]] = {j: [] for j in outs}
        for i, move in enumerate(moves):
            for j in outs:
                source = parts[move.shard][j]
                slot = s.build.buffer(f"{s.group}.in{r}.{i}.{j}", source.shape, source.dtype, slot=True)
                s.groups.send(move, source, slot, s.group)
                arrived[j].append((move, slot))
        pending = arrived
        yield
    own = tuple(range(s.groups.size))
    _contribute(s, own, {j: s.writes[j] for j in outs}, 1)
    for j in outs:
        add_arrived(s.groups, s.writes[j], own, pending[j])


@lru_cache(maxsize=256)
def _senders(forward: tuple[Move, ...]) -> list[list[bool]]:
    """The positions that send what each of the reversed moves does, in that one or another."""
    moves = [m.backwards() for m in forward]
    return [
        [any(m.to[p] != NOBODY for m in moves if m.shard == move.shard) for p in range(len(move.to))]
        for move in moves
    ]


def _with_operands_gathered(s: StreamInstance) -> tuple[StreamInstance, Iterator[None]]:
    """The stream with its moving operands gathered first, and the rounds that gather them.

    Where operands and accumulators both move, the accumulator of the farthest shard starts, which needs the farthest
    operand.
    """
    reads, rounds = list(s.reads), []
    for i in s.stream.moving_in:
        dim = s.ins()[i].index(s.stream.factor)
        shape = list(reads[i].shape)
        shape[dim] *= s.groups.size
        full = s.build.buffer(f"{s.group}.gathered{i}", shape, reads[i].dtype)
        rounds.append(gathering(s.groups, reads[i], full, dim, s.group))
        reads[i] = full
    return replace(s, reads=tuple(reads)), (None for _ in zip_longest(*rounds))


def _row_sums(s: StreamInstance) -> RowSums | None:
    """A gradient of attention whose keys come in chunks, with the sums of its rows."""
    sums = with_row_sums(s.op)
    return sums if sums and s.stream.factor == s.ins()[1][1] else None


def _with_row_sums(s: StreamInstance) -> StreamInstance:
    """The stream with the sums of its rows, of which each chunk of keys, all at hand then, adds its own to those of a
    first pass."""
    ops = _row_sums(s)
    if ops is None:
        return s
    sums = s.build.buffer(ops.first.results[0].name, s.reads[4].shape, s.reads[4].dtype)
    first = replace(s, op=ops.first)
    for n in range(s.groups.size if ops.passes else 1):
        shards = tuple((p + n) % s.groups.size for p in range(s.groups.size))
        reads = tuple(s.chunk(v, t, shards) for v, t in zip(s.reads, s.ins(), strict=True))
        attention_row_sums(first.instance(shards, reads, (sums,), (n > 0,)))
    return replace(s, op=ops.then, reads=(*s.reads, sums))


def _stationary(s: StreamInstance) -> list[int]:
    """Numbers of the results that do not move and lack the factor: every chunk adds to them."""
    return [j for j, t in enumerate(s.outs()) if j not in s.stream.moving_out and s.stream.factor not in t]


def _clear_stationary(s: StreamInstance) -> None:
    for j in _stationary(s):
        if not s.accumulate[j]:
            s.build.kernel("fill", [s.writes[j]], [], {"value": 0.0})


def _contribution(
    s: StreamInstance, move: Move, senders: list[bool], pending: dict[int, list[tuple[Move, View]]], hint: str
) -> dict[int, View]:
    """The parts of a shard that a die sends, by result: its own contribution plus those that have arrived."""
    contributions = {
        j: s.build.buffer(f"{hint}.{j}", s.writes[j].shape, s.writes[j].dtype) for j in s.stream.moving_out
    }
    where = 1 if all(senders) else mask(s.groups.mesh, s.groups.axis, senders)
    _contribute(s, move.shard, contributions, where)
    for j, acc in contributions.items():
        add_arrived(s.groups, acc, move.sent, pending[j])
    return contributions


def _contribute(s: StreamInstance, shards: Shards, into: dict[int, View], where: Ints) -> None:
    """Append the kernels on the chunks numbered `shards`, with the moving results written to `into`."""
    reads = tuple(s.chunk(v, t, shards) for v, t in zip(s.reads, s.ins(), strict=True))
    writes = tuple(
        into[j] if j in into else s.chunk(v, t, shards)
        for j, (v, t) in enumerate(zip(s.writes, s.outs(), strict=True))
    )
    stationary = _stationary(s)
    # Parts to be sent are empty before; the results that they end in may not be.
    accumulate = tuple(
        j in stationary or (s.accumulate[j] and writes[j] == s.writes[j]) for j in range(len(writes))
    )
    s.run(shards, reads, writes, accumulate, where)
