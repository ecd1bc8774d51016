"""Checked mode, of where numbers come from: their type changes only as the graph of the program says.

A number that goes from f32 to bf16 and back is rounded once more than its type says, though each of the instructions
that narrow and widen it is right by itself. So a `cast`, or a sum, gets another type than it reads only where an op of
the graph does so with what is computed; parameters and data may be converted. What an update adds to a gradient, a
product of activations and gradients or a sum of gradients, is never narrower than in the graph. What numbers are made
of is followed through copies and messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import DieMemory, Place, Template
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.diagnostics import Code, fail
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.types import DType

Marks = NDArray[np.uint8]

# What an element is: the result of an instruction, but for updates; what depends on data; on a derivative; and the sum
# of products of narrower numbers, not yet rounded to their type.
RESULT: Final = 1
DATA: Final = 2
GRADIENT: Final = 4
UNROUNDED: Final = 8

# Instructions that add up gradients, with the first result that is a sum.
SUMS: Final[Mapping[str, int]] = {"gemm": 0, "sum": 0, "scatter_add": 0, "layernorm_bwd": 1, "rmsnorm_bwd": 1}

# Instructions that hand on the numbers that they read.
LINEAR: Final = frozenset({"cast", "add", "sub", "mul", "div", "scale", "sum", "maximum"})


@dataclass(frozen=True, slots=True)
class GraphTypes:
    """What a graph and its derivative do with the types of what they compute: `changes` (opcode, from, to) of linear
    ops, and the narrowest type of a sum over positions of gradients, by its opcode: of a `gemm`, products of an
    activation and a gradient, none of them a wider score. `rounded`: the types to which products of numbers of that
    type are rounded when they are added up."""

    changes: frozenset[tuple[str, DType, DType]] = frozenset()
    rounded: frozenset[DType] = frozenset()
    sums: Mapping[str, DType] = field(default_factory=dict)


NO_CHANGES: Final = GraphTypes()


class Origins:
    """The marks of one die's arena: those of an element are at its first byte."""

    def __init__(self, memory: DieMemory, types: GraphTypes) -> None:
        self._memory = memory
        self._types = types
        self._marks = np.zeros(memory.arena.size, np.uint8)

    def store(self, address: int, size: int, *, data: bool) -> None:
        """Take note of `size` bytes that the host writes, of `data` or of anything else."""
        self._marks[address : address + size] = DATA if data else 0

    def view(self, p: Place, args: Sequence[int]) -> Marks:
        """The marks of the elements of an operand, in its shape."""
        return np.ndarray(p.sizes, np.uint8, self._marks.data, self._memory.address(p, args), p.strides)

    def followed(self, t: Template, args: tuple[int, ...], inner: Prepared) -> Prepared:
        """The prepared instruction of a call, no message, which raises `CompileError` W504 if it changes a type as the
        graph does not."""
        marks, types = [self.view(p, args) for p in t.places], [DType.of(p.dtype) for p in t.places]
        if t.opcode == "copy" or (t.opcode == "cast" and types[0] is types[1]):
            return _moved, (*marks, inner)
        if t.opcode == "fill" or INSTRUCTIONS[t.opcode].updates:
            return _given, (marks[: t.writes], inner)
        reads = [_distinct(m, p) for m, p in zip(marks[t.writes :], t.places[t.writes :], strict=True)]
        return self._computed, (t.opcode, marks[: t.writes], reads, types, inner)

    def _computed(
        self, opcode: str, writes: list[Marks], reads: list[Marks], types: list[DType], inner: Prepared
    ) -> None:
        run, args = inner
        made_of = [int(np.bitwise_or.reduce(x, axis=None, initial=0)) for x in reads]
        if types[0].is_float:
            if not self._rounds_sums(opcode, reads, types):
                _check_changes(self._types, opcode, made_of, types)
            _check_sums(self._types, opcode, made_of, types)
        run(*args)
        result = RESULT | (DATA | GRADIENT if opcode.endswith("_bwd") else 0)
        for bits in made_of:
            result |= bits & ~UNROUNDED
        if opcode == "gemm" and _is_unrounded(self._types, made_of, types):
            result |= UNROUNDED
        for y in writes:
            y.fill(result)

    def _rounds_sums(self, opcode: str, reads: list[Marks], types: list[DType]) -> bool:
        """Whether an instruction rounds sums of products to the type of their factors, as their graph does."""
        if opcode != "cast" or types[0] not in self._types.rounded:
            return False
        return types[1] is types[0].accumulator and bool((reads[0] & UNROUNDED).all())


def _is_unrounded(graph: GraphTypes, made_of: list[int], types: list[DType]) -> bool:
    """Whether the sums of a product are wider than its factors, but not because a gradient is."""
    result, *factors = types
    is_wide = all(t is not result and t.accumulator is result for t in factors)
    return is_wide and not _multiplies_positions(made_of, factors, graph.sums.get("gemm", factors[0]))


def _check_changes(graph: GraphTypes, opcode: str, made_of: list[int], types: list[DType]) -> None:
    """Check that a linear instruction reads computed numbers in the type of its result, or as an op of the graph."""
    if opcode not in LINEAR:
        return
    to = types[0]
    for bits, from_ in zip(made_of, types[-len(made_of) :], strict=True):
        if bits & RESULT and from_ is not to and (opcode, from_, to) not in graph.changes:
            does = "widens" if from_.size < to.size else "narrows"
            raise fail(
                Code.CHECK,
                f"`{opcode}` {does} to {to} what is computed in {from_}, which no op of the graph does: numbers in"
                f" {max(from_, to, key=lambda d: d.size)} are rounded to {min(from_, to, key=lambda d: d.size)}",
            )


def _check_sums(graph: GraphTypes, opcode: str, made_of: list[int], types: list[DType]) -> None:
    """Check that what may be added to the gradient of a parameter is not narrower than in the graph."""
    if opcode not in graph.sums or not any(bits & GRADIENT for bits in made_of):
        return
    least, writes = graph.sums[opcode], len(types) - len(made_of)
    if opcode == "gemm" and not _multiplies_positions(made_of, types[1:], least):
        return
    for to in types[SUMS[opcode] : writes]:
        if to.size < least.size:
            raise fail(
                Code.CHECK,
                f"`{opcode}` adds up gradients in {to}, and the graph in {least}: numbers in {least} are rounded to"
                f" {to}",
            )


def _multiplies_positions(made_of: list[int], types: list[DType], least: DType) -> bool:
    """Whether a product is of an activation and a gradient, both of them narrower than such products are."""
    is_of_both = sorted(bits & (DATA | GRADIENT) for bits in made_of) == [DATA, DATA | GRADIENT]
    return is_of_both and all(t.size < least.size for t in types)


def _distinct(marks: Marks, p: Place) -> Marks:
    """A view of each element once."""
    return marks[tuple(slice(None) if s else slice(1) for s in p.strides)]


def _given(writes: list[Marks], inner: Prepared) -> None:
    run, args = inner
    run(*args)
    for y in writes:
        y.fill(0)


def _moved(y: Marks, x: Marks, inner: Prepared) -> None:
    run, args = inner
    run(*args)
    y[...] = x
