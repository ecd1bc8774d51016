"""Mistakes in what a program computes: opcodes, flags, scalars, operands of equal shape."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.fuzz.corrupting import (
    Corrupt,
    body_of,
    change,
    computes,
    in_step,
    places,
    with_attr,
    with_instruction,
    with_operand,
)
from wscc.ir.streams.program import (
    Instruction,
    ProgramCall,
    Streams,
)

ALIKE = (
    ("add", "sub", "mul", "div", "maximum"),
    ("gelu", "gelu_erf", "relu", "copy"),
    ("gelu_bwd", "gelu_erf_bwd", "relu_bwd"),
    ("layernorm", "rmsnorm"),
)


def opcode(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    """One with the same operands and attributes."""
    others = [o for group in ALIKE if x.opcode in group for o in group if o != x.opcode]
    return replace(x, opcode=rng.choice(others)) if others else None


def flag(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    names = [n for n, v in x.attrs if isinstance(v, bool)]
    if not names:
        return None
    name = rng.choice(names)
    return with_attr(x, name, not x.attr(name))


def scalar(rng: Random, streams: Streams, x: Instruction) -> Instruction | None:
    numbers = [(n, v) for n, v in x.attrs if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers:
        return None
    name, value = rng.choice(numbers)
    if isinstance(value, int):
        return with_attr(x, name, max(0, value + rng.choice([-2, -1, 1, 3])))
    return with_attr(x, name, value * rng.choice([0.5, 0.99, 1.001, -1.0, 2.0]) + (value == 0) * 0.25)


def operand(rng: Random, streams: Streams) -> Streams | None:
    """Another of the same procedure, of equal shape and element type."""
    place = rng.choice(places(streams, computes))
    x = body_of(streams, place)[place[2]]
    n = rng.randrange(len(x.writes) + len(x.reads))
    o = (*x.writes, *x.reads)[n]
    every = {p for y in body_of(streams, place) for p in (*y.writes, *y.reads)}
    others = sorted((p for p in every if p != o and (p.shape, p.dtype) == (o.shape, o.dtype)), key=repr)
    return with_instruction(streams, place, with_operand(x, n, rng.choice(others))) if others else None


def argument(rng: Random, streams: Streams) -> Streams | None:
    """Two arguments of a call exchanged."""

    def swapped(call: ProgramCall) -> ProgramCall | None:
        if len(call.args) < 2:
            return None
        a, b = rng.sample(range(len(call.args)), 2)
        args = list(call.args)
        args[a], args[b] = args[b], args[a]
        return replace(call, args=tuple(args))

    return in_step(rng, streams, swapped)


MEANING: dict[str, Corrupt] = {
    "opcode": change(lambda x: any(x.opcode in g for g in ALIKE), opcode),
    "flag": change(lambda x: any(isinstance(v, bool) for _, v in x.attrs), flag),
    "scalar": change(lambda x: computes(x) and bool(x.attrs), scalar),
    "operand of equal shape": operand,
    "argument of a call": argument,
}
