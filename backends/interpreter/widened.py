"""Checked mode, of casts: a `cast` widens only what the host or an update has written: parameters and data.

A number that goes from f32 to bf16 and back is rounded once more than its type says, though each of the instructions
that narrow and widen it is right by itself. What a program computes in a narrow type it widens only where its graph
does, which few do; where the numbers come from is followed through copies and messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import DieMemory, Place, Template
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.diagnostics import Code, fail
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.types import DType

Marks = NDArray[np.bool_]

_TYPES = {d.numpy: d for d in DType}


class Computed:
    """The marks of one die's arena: an element that an instruction has computed has one at its first byte."""

    def __init__(self, memory: DieMemory) -> None:
        self._memory = memory
        self._marks = np.zeros(memory.arena.size, np.bool_)

    def store(self, address: int, size: int) -> None:
        """Take note of `size` bytes that the host writes."""
        self._marks[address : address + size] = False

    def view(self, p: Place, args: Sequence[int]) -> Marks:
        """The marks of the elements of an operand, in its shape."""
        return np.ndarray(p.sizes, np.bool_, self._marks.data, self._memory.address(p, args), p.strides)

    def followed(self, t: Template, args: tuple[int, ...], inner: Prepared) -> Prepared:
        """The prepared instruction of a call, no message, which raises `CompileError` W504 if it widens what is
        computed."""
        marks, types = [self.view(p, args) for p in t.places], [_TYPES[p.dtype] for p in t.places]
        if t.opcode == "cast" and all(d.is_float for d in types) and types[0].size > types[1].size:
            return _widened, (*marks, *types, inner)
        if t.opcode == "copy" or (t.opcode == "cast" and types[0] is types[1]):
            return _moved, (*marks, inner)
        is_given = t.opcode == "fill" or INSTRUCTIONS[t.opcode].updates
        return _written, (marks[: t.writes], not is_given, inner)


def _written(writes: list[Marks], computed: bool, inner: Prepared) -> None:
    run, args = inner
    run(*args)
    for y in writes:
        y.fill(computed)


def _moved(y: Marks, x: Marks, inner: Prepared) -> None:
    run, args = inner
    run(*args)
    y[...] = x


def _widened(y: Marks, x: Marks, to: DType, from_: DType, inner: Prepared) -> None:
    if x.any():
        raise fail(
            Code.CHECK,
            f"`cast` widens to {to} what is computed in {from_}, and the graph widens only parameters and data:"
            f" numbers in {to} were rounded to {from_}",
        )
    _written([y], True, inner)
