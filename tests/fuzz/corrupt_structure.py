"""Mistakes in how a program hangs together: peers, addresses, shapes, order, routes, calls."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.corrupting import (
    MESSAGES,
    Corrupt,
    body_of,
    change,
    computes,
    in_step,
    is_a,
    places,
    with_attr,
    with_body,
    with_instruction,
    with_operand,
)
from wscc.ir.streams.program import (
    Address,
    Column,
    Instruction,
    Operand,
    ProgramCall,
    ProgramLoop,
    Streams,
)


def in_table(rng: Random, streams: Streams, field: Any, values: range) -> Streams | None:
    """Another integer for one die, where a field is a column of the binding table."""
    assert isinstance(field, Column)
    table = streams.bindings.copy()
    die = rng.randrange(len(table))
    table[die, field.index] = rng.choice(values)
    return None if np.array_equal(table, streams.bindings) else replace(streams, bindings=table)


def peer(rng: Random, streams: Streams) -> Streams | None:
    place = rng.choice(places(streams, is_a("post", "send")))
    x = body_of(streams, place)[place[2]]
    field, dies = x.attr("peer"), range(len(streams.dies))
    if isinstance(field, Column):
        return in_table(rng, streams, field, dies)
    other = rng.choice(dies)
    return None if other == field else with_instruction(streams, place, with_attr(x, "peer", other))


def channel(rng: Random, streams: Streams, x: Instruction) -> Instruction:
    return with_attr(x, "channel", max(0, int(str(x.attr("channel"))) + rng.choice([-2, -1, 1, 2, 40])))


def address(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    """By some elements, some lines of memory, or some of its rows."""
    n = rng.randrange(len(x.writes) + len(x.reads))
    o = (*x.writes, *x.reads)[n]
    if isinstance(o.offset, Column):
        return None
    by = rng.choice([-1, 1]) * rng.choice([o.dtype.size, 64, 128, 1024, o.dtype.size * max((*o.strides, 1))])
    return with_operand(x, n, replace(o, offset=o.offset + by))


def table_address(rng: Random, streams: Streams) -> Streams | None:
    """An offset of one die."""
    columns = [
        o.offset
        for p in streams.programs
        for c in p.procedures
        for x in c.body
        for o in (*x.writes, *x.reads)
    ]
    found = [c for c in columns if isinstance(c, Column)]
    if not found:
        return None
    at = rng.choice(found).index
    return in_table(rng, streams, Column(at), range(0, int(streams.bindings[:, at].max()) + 128, 64))


def call_address(rng: Random, streams: Streams) -> Streams | None:
    def moved(call: ProgramCall) -> ProgramCall | None:
        if not call.args:
            return None
        n = rng.randrange(len(call.args))
        a = call.args[n]
        by = rng.choice([-1, 1]) * rng.choice([8, 64, 128, 4096])
        new = Address(a.base + by, a.terms)
        if a.terms and rng.random() < 0.5:
            new = Address(a.base, ((a.terms[0][0], a.terms[0][1] + by), *a.terms[1:]))
        return replace(call, args=(*call.args[:n], new, *call.args[n + 1 :]))

    return in_step(rng, streams, moved)


def shape(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    n = rng.randrange(len(x.writes) + len(x.reads))
    o = (*x.writes, *x.reads)[n]
    if not o.shape:
        return None
    d = rng.randrange(len(o.shape))
    if rng.random() < 0.3:
        strides = list(o.strides)
        strides[d] += rng.choice([-1, 1, strides[d] or 2])
        return with_operand(x, n, replace(o, strides=tuple(strides)))
    sizes = list(o.shape)
    if len(sizes) > 1 and rng.random() < 0.3:
        rng.shuffle(sizes)
    else:
        sizes[d] = max(1, rng.choice([sizes[d] - 1, sizes[d] + 1, sizes[d] * 2, sizes[d] // 2]))
    return with_operand(x, n, replace(o, shape=tuple(sizes)))


def all_shapes(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    """The same dimension of every operand: what remains fits the declaration."""
    size = rng.choice([n for o in (*x.writes, *x.reads) for n in o.shape] or [1])
    if size < 2:
        return None

    def less(o: Operand) -> Operand:
        return replace(o, shape=tuple(n - 1 if n == size else n for n in o.shape))

    return replace(x, writes=tuple(map(less, x.writes)), reads=tuple(map(less, x.reads)))


def order(rng: Random, streams: Streams) -> Streams | None:
    """One instruction somewhere else in its procedure."""
    place = rng.choice(places(streams, lambda x: True))
    return moved_to(streams, place, place[2] + rng.choice([-4, -2, -1, 1, 2, 4]))


def moved_to(streams: Streams, place: tuple[int, int, int], at: int) -> Streams | None:
    body = list(body_of(streams, place))
    x = body.pop(place[2])
    at = min(max(at, 0), len(body))
    body.insert(at, x)
    return None if at == place[2] else with_body(streams, place, tuple(body))


def wait(rng: Random, streams: Streams) -> Streams | None:
    """Gone, of the other side, or elsewhere."""
    found = places(streams, is_a("wait"))
    if not found:
        return None
    place = rng.choice(found)
    body = body_of(streams, place)
    x = body[place[2]]
    match rng.randrange(3):
        case 0:
            return with_body(streams, place, (*body[: place[2]], *body[place[2] + 1 :]))
        case 1:
            return with_instruction(
                streams, place, with_attr(x, "side", "sent" if x.attr("side") == "received" else "received")
            )
    return moved_to(streams, place, rng.randrange(len(body)))


def depth(rng: Random, streams: Streams) -> Streams | None:
    """A slot that is granted earlier or later."""
    found = places(streams, is_a("post"))
    if not found:
        return None
    place = rng.choice(found)
    return moved_to(streams, place, rng.randrange(len(body_of(streams, place))))


def route(rng: Random, streams: Streams) -> Streams | None:
    """Another route for one die, or something wrong with a route."""
    if rng.random() < 0.5:
        found = places(streams, is_a("send"))
        if not found:
            return None
        place = rng.choice(found)
        x = body_of(streams, place)[place[2]]
        field, every = x.attr("route"), range(len(streams.routes))
        if isinstance(field, Column):
            return in_table(rng, streams, field, every)
        other = rng.choice(every)
        return None if other == field else with_instruction(streams, place, with_attr(x, "route", other))
    if not streams.routes:
        return None
    at = rng.randrange(len(streams.routes))
    old = streams.routes[at]
    leg = old.legs[0]
    new = rng.choice(
        [
            replace(leg, path=leg.path[:-1]),
            replace(leg, path=leg.path[::-1]),
            replace(leg, path=(leg.path[0], *leg.path)),
            replace(leg, path=(leg.path[0], rng.choice(streams.dies), *leg.path[1:])),
            replace(leg, channel=leg.channel + 2),
            replace(leg, share=leg.share - 1),
        ]
    )
    routes = (*streams.routes[:at], replace(old, legs=(new, *old.legs[1:])), *streams.routes[at + 1 :])
    return replace(streams, routes=routes)


def deleted(rng: Random, streams: Streams) -> Streams:
    place = rng.choice(places(streams, lambda x: True))
    body = body_of(streams, place)
    return with_body(streams, place, (*body[: place[2]], *body[place[2] + 1 :]))


def repeated(rng: Random, streams: Streams) -> Streams:
    place = rng.choice(places(streams, lambda x: True))
    body = body_of(streams, place)
    return with_body(streams, place, (*body[: place[2]], body[place[2]], *body[place[2] :]))


def call_gone(rng: Random, streams: Streams) -> Streams | None:
    """A statement of a step left out, made twice, or before the one in front of it."""
    stage = rng.randrange(len(streams.steps))
    step = list(streams.steps[stage])
    i = rng.randrange(len(step))
    match rng.randrange(4):
        case 0:
            del step[i]
        case 1:
            step.insert(i, step[i])
        case 2:
            step[i - 1], step[i] = step[i], step[i - 1]
        case _:
            s = step[i]
            if not isinstance(s, ProgramLoop):
                return None
            step[i] = replace(s, count=max(1, s.count + rng.choice([-1, 1])))
    new = tuple(step)
    if new == streams.steps[stage]:
        return None
    return replace(streams, steps=(*streams.steps[:stage], new, *streams.steps[stage + 1 :]))


STRUCTURE: dict[str, Corrupt] = {
    "peer": peer,
    "channel": change(is_a(*MESSAGES), channel),
    "address": change(lambda x: bool(x.writes or x.reads), address),
    "address of one die": table_address,
    "address of a call": call_address,
    "shape": change(lambda x: bool(x.writes or x.reads), shape),
    "shape of all operands": change(computes, all_shapes),
    "order": order,
    "wait": wait,
    "route": route,
    "depth": depth,
    "deleted instruction": deleted,
    "repeated instruction": repeated,
    "calls of a step": call_gone,
}
