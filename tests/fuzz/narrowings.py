"""All ways in which a program takes what it computes through bf16, though every instruction is right by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.fuzz.narrow_buffers import with_narrow_buffers
from tests.fuzz.round_trips import WAYS, Written, with_round_trip
from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter.binding import MESSAGES
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Instruction, Operand
from wscc.ir.types import DType

Narrowing = tuple[str, Callable[[Artifact], Artifact]]  # its name, and the narrower program


def narrowings(made: Artifact) -> list[Narrowing]:
    """Of each result of each opcode; not of constants and of what is bf16, of which there is nothing to round."""
    found: list[Narrowing] = []
    for place in written(
        made, lambda x, o: x.opcode != "fill" and (x.opcode != "cast" or x.reads[0].dtype is not DType.BF16)
    ):
        found += [(f"{named(place)} {n}", partial(with_round_trip, of=place, way=w)) for n, w in WAYS.items()]
        found.append((f"{named(place)} lies in bf16", partial(with_narrow_buffers, of=place)))
    return found


def written(made: Artifact, counts: Callable[[Instruction, Operand], bool]) -> list[Written]:
    """Results by opcode and number, but for those of updates, that count and are floats wider than bf16."""
    return sorted({
        (x.opcode, i)
        for p in made.streams.programs
        for code in p.procedures
        for x in code.body
        for i, o in enumerate(x.writes)
        if o.dtype.is_float and o.dtype is not DType.BF16 and counts(x, o)
        if x.opcode not in MESSAGES and not INSTRUCTIONS[x.opcode].updates
    })  # fmt: skip


def named(place: Written) -> str:
    """A result in words."""
    return f"`{INSTRUCTIONS[place[0]].names[place[1]]}` of {place[0]}"
