"""Programs whose numbers go to bf16 and back, through memory behind the program's own; each instruction is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Final

from wscc.backends.artifact.files import Artifact
from wscc.ir.streams.program import Code, Instruction, Operand
from wscc.ir.types import DType

Written = tuple[str, int]  # a result: the opcode, and its number
# What is there instead of an instruction whose result of a number, an operand, is `narrow` for a while.
Way = Callable[[Instruction, int, Operand], list[Instruction]]


def _cast_twice(x: Instruction, i: int, narrow: Operand) -> list[Instruction]:
    y = x.writes[i]
    return [x, Instruction("cast", (narrow,), (y,)), Instruction("cast", (y,), (narrow,))]


def _stored(x: Instruction, i: int, narrow: Operand) -> Instruction:
    """The instruction with its result there, to which it adds nothing."""
    attrs = tuple((name, False if name == "accumulate" else value) for name, value in x.attrs)
    return replace(x, writes=(*x.writes[:i], narrow, *x.writes[i + 1 :]), attrs=attrs)


def _stored_and_cast(x: Instruction, i: int, narrow: Operand) -> list[Instruction]:
    return [_stored(x, i, narrow), Instruction("cast", (x.writes[i],), (narrow,))]


def _stored_and_added(x: Instruction, i: int, narrow: Operand) -> list[Instruction]:
    y = x.writes[i]
    zero = [] if dict(x.attrs).get("accumulate") else [Instruction("fill", (y,), (), (("value", 0.0),))]
    return [_stored(x, i, narrow), *zero, Instruction("add", (y,), (y, narrow))]


def _stored_and_summed(x: Instruction, i: int, narrow: Operand) -> list[Instruction]:
    one = replace(narrow, shape=(1, *narrow.shape), strides=(0, *narrow.strides))
    attrs = (("axes", "0"), ("accumulate", bool(dict(x.attrs).get("accumulate"))))
    return [_stored(x, i, narrow), Instruction("sum", (x.writes[i],), (one,), attrs)]


WAYS: Final[dict[str, Way]] = {
    "is cast to bf16 and back": _cast_twice,
    "is stored in bf16 and cast": _stored_and_cast,
    "is stored in bf16 and added": _stored_and_added,
    "is stored in bf16 and summed": _stored_and_summed,
}


def with_round_trip(
    right: Artifact, of: Written, way: Way = _cast_twice, through: DType = DType.BF16
) -> Artifact:
    """The program where each such result in a wider type goes through a narrower one."""
    streams = right.streams
    scratch = -(-streams.arena_bytes // 64) * 64
    most = max(
        (prod(o.shape) for p in streams.programs for c in p.procedures for o in _results(c, of, through)),
        default=0,
    )
    programs = tuple(
        replace(p, procedures=tuple(_changed(c, of, way, scratch, through) for c in p.procedures))
        for p in streams.programs
    )
    arena = scratch + -(-most * through.size // 64) * 64
    return replace(right, streams=replace(streams, programs=programs, arena_bytes=arena))


def _results(code: Code, of: Written, through: DType) -> Iterator[Operand]:
    for x in code.body:
        if x.opcode == of[0] and x.writes[of[1]].dtype.size > through.size:
            yield x.writes[of[1]]


def _changed(code: Code, of: Written, way: Way, scratch: int, through: DType) -> Code:
    body: list[Instruction] = []
    for x in code.body:
        found = [*_results(replace(code, body=(x,)), of, through)]
        for y in found:
            strides = tuple(prod(y.shape[d + 1 :]) for d in range(len(y.shape)))
            body += way(x, of[1], Operand(-1, scratch, y.shape, strides, through))
        body += [] if found else [x]
    return replace(code, body=tuple(body))
