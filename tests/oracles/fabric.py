"""Execution of a fabric module statement by statement on all dies in turn: the semantics of its sequential order.

Memory is one array per (die, array) and per (die, call, buffer): no addresses, no messages, no engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.semantics import apply
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, PerDie, at
from wscc.ir.step import Call, walk
from wscc.ir.types import DType
from wscc.ir.views import View

Tensors = dict[str, np.ndarray]


class FabricMachine:
    """All dies of a fabric module. Fresh locals are NaN, so that a read of unwritten memory shows."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.sizes = module.sizes
        self.dies = module.dies_used
        self.coords = [
            dict(zip(self.sizes, np.unravel_index(i, list(self.sizes.values())), strict=True))
            if self.sizes
            else {}
            for i in range(self.dies)
        ]
        self.memory: list[dict[str, np.ndarray]] = [{} for _ in range(self.dies)]
        for array in module.arrays:
            if not array.storage:
                local = array.type.local_shape(self.sizes)
                for die in self.memory:
                    die[array.name] = np.full(
                        (*array.extents, *local), poison(array.type.dtype), array.type.dtype.numpy
                    )
        self.home = {a.name: a.storage or a.name for a in module.arrays}

    # -- the host's side --------------------------------------------------------------------------------

    def slices(self, array: Array, die: int) -> tuple[slice, ...]:
        out = []
        assert array.type.layout is not None
        for n, axes in zip(array.type.shape, array.type.layout.dims, strict=True):
            index, parts = 0, 1
            for a in axes:
                index, parts = index * self.sizes[a] + int(self.coords[die][a]), parts * self.sizes[a]
            out.append(slice(index * n // parts, (index + 1) * n // parts))
        return (*(slice(None) for _ in array.extents), *out)

    def write(self, name: str, whole: np.ndarray) -> None:
        array = self.module.array(name)
        for i, die in enumerate(self.memory):
            die[name][...] = whole[self.slices(array, i)]

    def read(self, name: str) -> np.ndarray:
        """The whole array; replicas must agree bit for bit."""
        array = self.module.array(name)
        whole = np.zeros((*array.extents, *array.type.shape), array.type.dtype.numpy)
        contents: dict[Any, bytes] = {}
        for i, die in enumerate(self.memory):
            block = self.slices(array, i)
            key = str(block)
            assert contents.setdefault(key, die[name].tobytes()) == die[name].tobytes(), (
                f"replicas of {name} differ"
            )
            whole[block] = die[name]
        return whole

    def load(self, tensors: Tensors) -> None:
        for name, whole in tensors.items():
            self.write(name, whole)
        for array in self.module.arrays:
            if array.kind is Kind.STATE or array.name == "t":
                for die in self.memory:
                    die[array.name][...] = 0

    # -- running ----------------------------------------------------------------------------------------

    def step(self) -> None:
        for call, variables in walk(self.module.step):
            self.call(call, variables)

    def call(self, call: Call, variables: dict[str, int]) -> None:
        procedure = self.module.procedure(call.procedure)
        frames: list[Tensors] = []
        for die in self.memory:
            frame: Tensors = {}
            for value, ref in zip(procedure.arguments, call.args, strict=True):
                index = tuple(a.at(variables) for a in ref.index)
                frame[value.name] = die[self.home[ref.array]][(*index, ...)].reshape(-1)
            for b in procedure.buffers:
                frame[b.name] = np.full(b.elements, poison(b.dtype), b.dtype.numpy)
            frames.append(frame)
        with np.errstate(all="ignore"):
            for stmt in procedure.body:
                if isinstance(stmt, Kernel):
                    self.kernel(stmt, frames)
                elif isinstance(stmt, Transfer):
                    self.transfer(stmt, frames)

    def kernel(self, k: Kernel, frames: list[Tensors]) -> None:
        for i, frame in enumerate(frames):
            if at(k.where, i) == 0:
                continue
            attrs = {n: v[i] if isinstance(v, PerDie) else v for n, v in k.attrs}
            writes = [window(frame, v, i) for v in k.writes]
            results = apply(k.opcode, [window(frame, v, i).copy() for v in k.reads], writes, attrs)
            for target, value in zip(writes, results, strict=True):
                target[...] = value

    def transfer(self, t: Transfer, frames: list[Tensors]) -> None:
        sent = {j: window(frames[i], t.read, i).copy() for i, j in t.pairs(self.dies) if j != NOBODY}
        for j, data in sent.items():
            target = window(frames[j], t.write, j)
            target[...] = data.reshape(target.shape)


def poison(dtype: DType) -> float:
    return np.nan if dtype.is_float else -(10**6)


def window(frame: Tensors, view: View, die: int) -> np.ndarray:
    """The elements of a view in a die's buffer; an error (of numpy) if one is outside."""
    base, offset = frame[view.buffer], at(view.offset, die)
    size = base.itemsize
    # As `as_strided` in a fifth of the time, and refused outside of the buffer.
    return np.ndarray(view.shape, base.dtype, base, offset * size, [s * size for s in view.strides])  # type: ignore[call-overload]
