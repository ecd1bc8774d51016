"""Where something may go wrong in a compiled program, and the program with another thing there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from wscc.ir.streams.program import (
    Instruction,
    Operand,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    Streams,
)

Corrupt = Callable[[Random, Streams], Streams | None]
Body = tuple[Instruction, ...]
MESSAGES = ("post", "send", "wait")


def places(streams: Streams, fits: Callable[[Instruction], bool]) -> list[tuple[int, int, int]]:
    return [
        (r, p, i)
        for r, program in enumerate(streams.programs)
        for p, code in enumerate(program.procedures)
        for i, x in enumerate(code.body)
        if fits(x)
    ]


def body_of(streams: Streams, place: tuple[int, int, int]) -> Body:
    return streams.programs[place[0]].procedures[place[1]].body


def with_body(streams: Streams, place: tuple[int, int, int], body: Body) -> Streams:
    r, p, _ = place
    program = streams.programs[r]
    procedures = list(program.procedures)
    procedures[p] = replace(procedures[p], body=body)
    programs = list(streams.programs)
    programs[r] = replace(program, procedures=tuple(procedures))
    return replace(streams, programs=tuple(programs))


def with_instruction(streams: Streams, place: tuple[int, int, int], x: Instruction) -> Streams:
    body = body_of(streams, place)
    return with_body(streams, place, (*body[: place[2]], x, *body[place[2] + 1 :]))


def change(
    fits: Callable[[Instruction], bool], new: Callable[[Random, Streams, Instruction], Instruction | None]
) -> Corrupt:
    """Another instruction in place of one that fits."""

    def corrupt(rng: Random, streams: Streams) -> Streams | None:
        found = places(streams, fits)
        if not found:
            return None
        place = rng.choice(found)
        old = body_of(streams, place)[place[2]]
        x = new(rng, streams, old)
        return None if x is None or x == old else with_instruction(streams, place, x)

    return corrupt


def is_a(*opcodes: str) -> Callable[[Instruction], bool]:
    return lambda x: x.opcode in opcodes


def computes(x: Instruction) -> bool:
    return x.opcode not in MESSAGES


def with_attr(x: Instruction, name: str, value: Any) -> Instruction:
    return replace(x, attrs=tuple((n, value if n == name else v) for n, v in x.attrs))


def with_operand(x: Instruction, n: int, o: Operand) -> Instruction:
    """Operands counted with the written ones first."""
    both = [*x.writes, *x.reads]
    both[n] = o
    return replace(x, writes=tuple(both[: len(x.writes)]), reads=tuple(both[len(x.writes) :]))


def in_step(
    rng: Random, streams: Streams, new: Callable[[ProgramCall], ProgramCall | None]
) -> Streams | None:
    """Another call in place of one."""
    stage = rng.randrange(len(streams.steps))
    calls = list(calls_of(streams.steps[stage]))
    old = rng.choice(calls)
    call = new(old)
    if call is None or call == old:
        return None

    def swap(step: ProgramStep) -> ProgramStep:
        return tuple(
            replace(s, body=swap(s.body)) if isinstance(s, ProgramLoop) else call if s is old else s
            for s in step
        )

    steps = (*streams.steps[:stage], swap(streams.steps[stage]), *streams.steps[stage + 1 :])
    return replace(streams, steps=steps)


def calls_of(step: ProgramStep) -> Iterator[ProgramCall]:
    for s in step:
        if isinstance(s, ProgramLoop):
            yield from calls_of(s.body)
        else:
            yield s
