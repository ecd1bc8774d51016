"""Programs with memory in a narrower type than the compiler gave it: all that touches it reads and writes bf16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tests.fuzz.round_trips import Written
from wscc.backends.artifact.files import Artifact
from wscc.ir.streams.program import Code, Column, Instruction, Operand, Streams, dynamic_calls
from wscc.ir.types import DType

Bytes = NDArray[np.bool_]


def with_narrow_buffers(right: Artifact, of: Written, through: DType = DType.BF16) -> Artifact:
    """The program where what holds such results, and whatever lies in the same bytes, is bf16, in the first bytes of
    each element."""
    narrow = _reached(right.streams, of)
    codes: dict[int, Code] = {}

    def changed(x: Instruction, code: Code) -> Instruction:
        writes, reads = (
            tuple(_narrowed(o, through) if (id(code), o) in narrow else o for o in side)
            for side in (x.writes, x.reads)
        )
        return replace(x, writes=writes, reads=reads)

    for p in right.streams.programs:
        for c in p.procedures:
            codes.setdefault(id(c), replace(c, body=tuple(changed(x, c) for x in c.body)))
    programs = tuple(
        replace(p, procedures=tuple(codes[id(c)] for c in p.procedures)) for p in right.streams.programs
    )
    return replace(right, streams=replace(right.streams, programs=programs))


def _narrowed(o: Operand, through: DType) -> Operand:
    return replace(o, dtype=through, strides=tuple(s * (o.dtype.size // through.size) for s in o.strides))


def _reached(streams: Streams, of: Written) -> set[tuple[int, Operand]]:
    """Wide operands of each procedure that share bytes with such results, or with operands that do, and so on."""
    spans = [*_spans(streams)]
    held: Bytes = np.zeros(streams.arena_bytes, np.bool_)
    found = {key for key, low, high, is_result in spans if is_result == of}
    size = -1
    while len(found) > size:
        size = len(found)
        for key, low, high, _ in spans:
            if key in found:
                held[low:high] = True
        found |= {key for key, low, high, _ in spans if held[low:high].any()}
    return found


def _spans(streams: Streams) -> Iterator[tuple[tuple[int, Operand], int, int, Written]]:
    """(procedure and operand, first byte, one past the last, which result) of each operand in f32 or f64."""
    for program in streams.programs:
        row = streams.bindings[streams.roles.index(program.role)]
        codes = {c.name: c for c in program.procedures}
        for name, args in set(dynamic_calls(streams.steps[program.stage])):
            for x in codes[name].body:
                for n, o in enumerate((*x.writes, *x.reads)):
                    if not o.dtype.is_float or o.dtype is DType.BF16 or 0 in o.shape:
                        continue
                    offset = int(row[o.offset.index]) if isinstance(o.offset, Column) else o.offset
                    low = offset + (args[o.arg] if o.arg >= 0 else 0)
                    ends = [(k - 1) * s * o.dtype.size for k, s in zip(o.shape, o.strides, strict=True)]
                    first, last = low + sum(e for e in ends if e < 0), low + sum(e for e in ends if e > 0)
                    result = (x.opcode, n) if n < len(x.writes) else ("", 0)
                    yield (id(codes[name]), o), first, last + o.dtype.size, result
