"""The layouts of a tensor in a program and in a checkpoint, as one declaration for both directions.

    Axes("d c h e", "d (c h e)")        ours [768, 3, 12, 64], theirs [768, 2304]
    Axes("d k g e", "(k g e) d")        ours [64, 2, 2, 16], theirs [64, 64], transposed
    Axes("d k e", "k e d", joined=1)    ours [64, 2, 16]; theirs is a part of [2, rows, 64], its axes to `rows` merged

Invariant: `to_ours(to_theirs(x), x.shape) == x` for every x of the right rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Axes:
    """A pair of layouts. `ours` names each axis of the program's tensor; `theirs` the axes of the checkpoint's, with
    names that share an axis in parentheses. `pad` unused rows come before the first of theirs. `joined`: theirs is one
    of several parts that follow one another along that axis of one tensor, in which the axes up to it are merged."""

    ours: str
    theirs: str
    pad: int = 0
    joined: int | None = None

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.ours.split())

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(g.strip("()").split()) for g in re.findall(r"\([^)]*\)|\w+", self.theirs))

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """The number of our axis for each name in `theirs`."""
        return tuple(self._names.index(name) for group in self._groups for name in group)

    @property
    def rank(self) -> int:
        """The number of axes of our tensor."""
        return len(self._names)

    def their_shape(self, ours: Shape) -> Shape:
        """The shape of their tensor for a tensor of the shape `ours` in the program."""
        size = dict(zip(self._names, ours, strict=True))
        first, *rest = (prod(size[name] for name in group) for group in self._groups)
        return (first + self.pad, *rest)

    def to_ours(self, value: Tensor, shape: Shape) -> Tensor:
        """Our tensor, of shape `shape`; a view of their tensor `value` if possible."""
        split = value[self.pad :].reshape([shape[axis] for axis in self._order])
        return split.transpose(np.argsort(self._order))

    def to_theirs(self, value: Tensor) -> Tensor:
        """Their tensor, contiguous, for our tensor `value`; padding rows are 0."""
        shape = self.their_shape(value.shape)
        merged = value.transpose(self._order).reshape(shape[0] - self.pad, *shape[1:])
        if self.pad:
            merged = np.concatenate([np.zeros((self.pad, *shape[1:]), value.dtype), merged])
        return np.ascontiguousarray(merged)

    def part_of(self, whole: Tensor, shape: Shape, start: int) -> Tensor:
        """Their tensor for ours of the shape `shape`, the part from `start` on of the `joined` axis of `whole`."""
        assert self.joined is not None
        first, rest = self.their_shape(shape)[: self.joined], self.their_shape(shape)[self.joined + 1 :]
        rows = self.their_shape(shape)[self.joined]
        apart = whole.reshape(*first, -1, *rest)
        return apart[(slice(None),) * self.joined + (slice(start, start + rows),)]

    def merged(self, shape: Shape) -> Shape:
        """The shape, as that of the whole of several parts, in the file."""
        assert self.joined is not None
        return (prod(shape[: self.joined + 1]), *shape[self.joined + 1 :])
