"""Numbers that are not finite in the arrays that lie in the memory of the dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.host_io import dies_of
from wscc.backends.interpreter.machine import Machine
from wscc.ir.array import Kind
from wscc.ir.streams.artifact import HostPart, HostTensor


@dataclass(frozen=True, slots=True)
class NotFinite:
    """The first number that is not finite in element `index` of an array on a die, which is named by its place."""

    tensor: HostTensor
    index: tuple[int, ...]
    die: str
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class _Shards:
    """A view of one part of an array: `numbers[i, j]` is its element `part.first + j` on the die `dies[i]`."""

    tensor: HostTensor
    part: HostPart
    dies: range
    numbers: NDArray[Any]


class Lookout:
    """Looks at all arrays of some kinds, on all dies at once: on each they lie at the same addresses."""

    def __init__(self, machine: Machine, kinds: Sequence[Kind]) -> None:
        self._machine = machine
        self._shards = [
            _shards(machine, t, part)
            for t in machine.manifest.tensors
            if t.kind in kinds and t.type.dtype.is_float
            for part in t.parts
        ]

    def is_clear(self) -> bool:
        """True if every number is finite."""
        return all(np.isfinite(s.numbers).all() for s in self._shards)

    def found(self) -> Iterator[NotFinite]:
        """For each element and die that holds one, the first number that is not finite."""
        for s in self._shards:
            for i, j in np.ndindex(*s.numbers.shape[:2]):
                value = s.numbers[i, j]
                wrong = value[~np.isfinite(value)]
                if wrong.size and self._is_written(s, s.dies[i], j):
                    index = np.unravel_index(s.part.first + j, s.tensor.extents) if s.tensor.extents else ()
                    name = self._machine.die_name(s.dies[i])
                    yield NotFinite(s.tensor, tuple(map(int, index)), name, float(wrong[0]))

    def _is_written(self, s: _Shards, die: int, element: int) -> bool:
        """False for what nothing has written in checked mode: it is poison, and no number."""
        address = s.part.address + element * s.part.stride
        return self._machine.is_written(die, address, s.numbers[0, 0].nbytes)


def _shards(machine: Machine, t: HostTensor, part: HostPart) -> _Shards:
    dies = dies_of(machine.manifest, part.stage)
    local = t.type.local_shape(dict(machine.manifest.axes))
    numbers = machine.view(dies, part, local, t.type.dtype.numpy)
    return _Shards(t, part, dies, numbers)
