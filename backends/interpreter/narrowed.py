"""Checked mode, of casts: which elements of a die's memory a `cast` has narrowed, so that no other widens them again.

A number that goes from f32 to bf16 and back is rounded once more than its type says, and each of the two instructions
is right by itself. Right programs widen parameters, which an update or the host has written; what a `cast` has
narrowed they widen only where their graph asks for it. The elements are followed through copies and messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import DieMemory, Place, Template
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.diagnostics import Code, fail
from wscc.ir.types import DType

Marks = NDArray[np.bool_]

_TYPES = {d.numpy: d for d in DType}


class Narrowed:
    """The marks of one die's arena: an element that a `cast` has narrowed has one at its first byte."""

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
        """The prepared instruction of a call, no message, which raises `CompileError` W504 if it widens what a `cast`
        has narrowed."""
        marks = [self.view(p, args) for p in t.places]
        if t.opcode not in ("copy", "cast"):
            return _written, (marks[: t.writes], inner)
        (y, x), (to, from_) = marks, [_TYPES[p.dtype] for p in t.places]
        if not (to.is_float and from_.is_float) or to is from_:
            return _moved, (y, x, inner)
        if to.size < from_.size:
            return _narrowed, (y, inner)
        return _widened, (y, x, f"from {from_} to {to}", inner)


def _written(writes: list[Marks], inner: Prepared) -> None:
    run, args = inner
    run(*args)
    for y in writes:
        y.fill(False)


def _moved(y: Marks, x: Marks, inner: Prepared) -> None:
    run, args = inner
    run(*args)
    y[...] = x


def _narrowed(y: Marks, inner: Prepared) -> None:
    run, args = inner
    run(*args)
    y.fill(True)


def _widened(y: Marks, x: Marks, types: str, inner: Prepared) -> None:
    if x.any():
        raise fail(
            Code.CHECK,
            f"`cast` widens {types} what a `cast` has narrowed: numbers are rounded that the graph does not round",
        )
    _written([y], inner)
