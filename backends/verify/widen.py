"""Translation of a program to f64: every float operand and host array becomes f64, and all addresses are multiplied
by one factor.

Nothing else changes, so that the program's semantics can be separated from the rounding of its element types. An
element of `size` bytes gets `factor * size` bytes, of which the f64 takes the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.machine import Machine
from wscc.ir.streams.artifact import HostTensor, Manifest
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import (
    Address,
    Code,
    Column,
    Field,
    Instruction,
    Operand,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    Streams,
)
from wscc.ir.types import DType


def factor_of(streams: Streams) -> int:
    """The factor of the addresses: 8 bytes divided by the size of the smallest float of the program."""
    instructions = {id(x): x for p in streams.programs for c in p.procedures for x in c.body}
    floats = {o.dtype.size for x in instructions.values() for o in (*x.writes, *x.reads) if o.dtype.is_float}
    return DType.F64.size // min(floats, default=DType.F64.size)


def widened(streams: Streams, factor: int) -> Streams:
    """The program with floats as f64. The binding table gets a second half, which is the first times `factor`."""
    wide = _Widener(factor, streams.bindings.shape[1])
    programs = tuple(replace(p, procedures=tuple(map(wide.code, p.procedures))) for p in streams.programs)
    return replace(
        streams,
        programs=programs,
        steps=tuple(map(wide.step, streams.steps)),
        bindings=np.concatenate([streams.bindings, streams.bindings * factor], axis=1),
        arena_bytes=streams.arena_bytes * factor,
    )


def with_optimizer(streams: Streams, numbers: Callable[[Instruction], Mapping[str, float]]) -> Streams:
    """The program with the scalars `numbers(x)` in each instruction x that updates weights."""

    def with_numbers(x: Instruction) -> Instruction:
        if not INSTRUCTIONS[x.opcode].updates:
            return x
        scalars = numbers(x)
        return replace(x, attrs=tuple((name, scalars[name]) for name, _ in x.attrs))

    programs = tuple(
        replace(p, procedures=tuple(replace(c, body=tuple(map(with_numbers, c.body))) for c in p.procedures))
        for p in streams.programs
    )
    return replace(streams, programs=programs)


def widened_manifest(manifest: Manifest, factor: int) -> Manifest:
    """The manifest of the widened program."""

    def wide(t: HostTensor) -> HostTensor:
        parts = tuple(replace(p, address=p.address * factor, stride=p.stride * factor) for p in t.parts)
        return replace(t, type=replace(t.type, dtype=_wide(t.type.dtype)), parts=parts)

    return replace(manifest, tensors=tuple(map(wide, manifest.tensors)))


def _wide(dtype: DType) -> DType:
    return DType.F64 if dtype.is_float else dtype


@dataclass(slots=True)
class _Widener:
    """Translates instructions and steps; `columns` is the number of columns of the binding table before."""

    factor: int
    columns: int
    cache: dict[Instruction, Instruction] = field(default_factory=dict)

    def code(self, code: Code) -> Code:
        return replace(code, body=tuple(map(self._instruction, code.body)))

    def _instruction(self, x: Instruction) -> Instruction:
        if x not in self.cache:
            writes, reads = (tuple(map(self._operand, side)) for side in (x.writes, x.reads))
            self.cache[x] = replace(x, writes=writes, reads=reads)
        return self.cache[x]

    def _operand(self, o: Operand) -> Operand:
        dtype = _wide(o.dtype)
        spacing = self.factor * o.dtype.size // dtype.size
        return Operand(o.arg, self._field(o.offset), o.shape, tuple(s * spacing for s in o.strides), dtype)

    def _field(self, offset: Field) -> Field:
        return Column(offset.index + self.columns) if isinstance(offset, Column) else offset * self.factor

    def step(self, step: ProgramStep) -> ProgramStep:
        return tuple(
            ProgramLoop(s.variable, s.count, self.step(s.body))
            if isinstance(s, ProgramLoop)
            else ProgramCall(s.procedure, tuple(map(self._address, s.args)))
            for s in step
        )

    def _address(self, a: Address) -> Address:
        terms = tuple((index, stride * self.factor) for index, stride in a.terms)
        return Address(a.base * self.factor, terms)


@dataclass(slots=True)
class WideMachine(Machine):
    """A machine for a widened program; the numbers of the host's arrays are spread over the widened elements.

    `spacing` is the distance between the numbers of an array element, by its stage and address.
    """

    spacing: dict[tuple[int, int], int] = field(default_factory=dict)

    def _stage(self, die: int) -> int:
        return die * self.manifest.stages // len(self.streams.dies)

    def store(self, die: int, address: int, value: NDArray[np.generic], *, data: bool = False) -> None:
        n = self.spacing[self._stage(die), address]
        wide = np.zeros(value.size * n, value.dtype)
        wide[::n] = np.ascontiguousarray(value).reshape(-1)
        Machine.store(self, die, address, wide, data=data)

    def load(
        self, die: int, address: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> NDArray[np.generic]:
        n = self.spacing[self._stage(die), address]
        return Machine.load(self, die, address, (prod(shape) * n,), dtype)[::n].reshape(shape).copy()


def wide_machine(streams: Streams, manifest: Manifest, threads: int = 1) -> WideMachine:
    """A machine loaded with the program in f64; its `manifest` is the widened one."""
    factor = factor_of(streams)
    spacing = {
        (stage, (part.address + i * part.stride) * factor): factor
        * t.type.dtype.size
        // _wide(t.type.dtype).size
        for t in manifest.tensors
        for part in t.parts
        for i in range(part.count)
        for stage in (range(manifest.stages) if part.stage < 0 else [part.stage])
    }
    return WideMachine(widened(streams, factor), widened_manifest(manifest, factor), threads, spacing=spacing)
