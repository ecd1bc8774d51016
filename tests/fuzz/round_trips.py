"""Programs whose numbers go to bf16 and back, by two casts, each of them right by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from wscc.backends.artifact.files import Artifact
from wscc.ir.streams.program import Code, Instruction, Operand
from wscc.ir.types import DType

Written = tuple[str, int]  # a result: the opcode, and its number


def with_round_trip(right: Artifact, of: Written, through: DType = DType.BF16) -> Artifact:
    """The program where each such result in f32 goes through a narrower type, in memory behind the program's own."""
    streams = right.streams
    scratch = -(-streams.arena_bytes // 64) * 64
    most = max(
        (prod(o.shape) for p in streams.programs for c in p.procedures for o in _results(c, of)), default=0
    )
    programs = tuple(
        replace(p, procedures=tuple(_changed(c, of, scratch, through) for c in p.procedures))
        for p in streams.programs
    )
    arena = scratch + -(-most * through.size // 64) * 64
    return replace(right, streams=replace(streams, programs=programs, arena_bytes=arena))


def _results(code: Code, of: Written) -> Iterator[Operand]:
    for x in code.body:
        if x.opcode == of[0] and x.writes[of[1]].dtype is DType.F32:
            yield x.writes[of[1]]


def _changed(code: Code, of: Written, scratch: int, through: DType) -> Code:
    body: list[Instruction] = []
    for x in code.body:
        body.append(x)
        for y in _results(replace(code, body=(x,)), of):
            strides = tuple(prod(y.shape[d + 1 :]) for d in range(len(y.shape)))
            narrow = Operand(-1, scratch, y.shape, strides, through)
            body += [Instruction("cast", (narrow,), (y,)), Instruction("cast", (y,), (narrow,))]
    return replace(code, body=tuple(body))
