"""The batches of a run: of rows of data, or of tokens from the seed.

Sequence i of the batch of a step depends on the seed, the step and i alone: neither on the strategy nor on
how the batch is cut into micro-batches (micro-batch j gets sequences j b to (j + 1) b).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.host.inputs import LABELS, Input
from wscc.host.random import integers, key, normals
from wscc.host.rows import Rows
from wscc.ir.ops import IGNORED

Batch = dict[str, NDArray[Any]]


def counted(batch: Mapping[str, NDArray[Any]]) -> int:
    """The number of labels of a batch that its loss is the mean over."""
    return int(np.count_nonzero(batch[LABELS] != IGNORED))


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of all steps: `batch(step)`, from 0. Without `rows`, tokens are drawn from the seed.

    A batch has every input by name, of shape [micro-batches, *shape] and the input's type; keys of random draws, of
    shape [micro-batches, layers, *shape], no two of which are the same in 2^31.
    """

    inputs: tuple[Input, ...]
    seed: int
    rows: Rows | None = None

    def batch(self, step: int) -> Batch:
        """The batch of a step. `CompileError` W503 if there are no rows, and no input is used as a token."""
        keys = {i.name: _keys(i, self.seed, step) for i in self.inputs if i.is_key}
        if self.rows is None:
            return self._random(step) | keys
        rows, seed = self.rows, self.seed
        return {i.name: _cut(i, rows.take(i, rows.of_step(step, i.batch, seed))) for i in self.data} | keys

    @property
    def data(self) -> tuple[Input, ...]:
        """The inputs that data are bound to."""
        return tuple(i for i in self.inputs if not i.is_key)

    def validation(self) -> Iterator[Batch]:
        """The rows that are held out, each once; where they end within a batch, all labels of its rest are ignored."""
        if self.rows is None:
            return
        held_out, count = self.rows.held_out, self.inputs[0].batch
        nothing_drops = {i.name: np.full_like(_keys(i, 0, 0), -1) for i in self.inputs if i.is_key}
        for first in range(0, len(held_out), count):
            numbers = held_out[first : first + count]
            rest = count - len(numbers)
            taken = {i.name: _cut(i, _padded(i, self.rows.take(i, numbers), rest)) for i in self.data}
            yield taken | nothing_drops

    def _random(self, step: int) -> Batch:
        """Windows of `positions` tokens, each with the token after its last; floats are standard normal."""
        window = max((i.positions for i in self.data if not i.dtype.is_float), default=0) + 1
        return {i.name: _cut(i, self._random_rows(i, step, window)) for i in self.data}

    def _random_rows(self, item: Input, step: int, window: int) -> NDArray[Any]:
        if item.dtype.is_float:
            places = np.arange(item.batch * item.positions, dtype=np.uint64)
            return normals(key("data", self.seed, step, item.name), places).astype(item.dtype.numpy)
        places = np.arange(item.batch * window, dtype=np.uint64)
        below = item.below or self._vocabulary
        tokens = integers(key("data", self.seed, step), places, below).reshape(-1, window)
        shift = int(item.name == LABELS)
        return np.ascontiguousarray(tokens[:, shift : shift + item.positions], np.int32)

    @property
    def _vocabulary(self) -> int:
        """Integers from the seed that number nothing are below this: the smallest table of tokens, or columns of
        logits."""
        sizes = [i.below for i in self.inputs if i.below]
        if not sizes:
            raise fail(
                Code.DATA,
                "no input is used as a token",
                help="give `embedding` or `cross_entropy` an input",
            )
        return min(sizes)


def _keys(item: Input, seed: int, step: int) -> NDArray[Any]:
    """A key for each sequence of a step and each layer, from 0 to 2^31 - 1, that no strategy and no cut in
    micro-batches changes: their number in the run, which the seed permutes."""
    shape = (*item.layers, item.microbatches, *item.shape)
    count = int(np.prod(shape))
    numbers = np.arange(step * count, (step + 1) * count, dtype=np.uint64) ^ key("dropout", seed, item.name)
    keys = (numbers & np.uint64(2**31 - 1)).astype(np.int32).reshape(shape)
    return np.ascontiguousarray(np.moveaxis(keys, len(item.layers), 0))


def _cut(item: Input, rows: NDArray[Any]) -> NDArray[Any]:
    return rows.reshape(item.microbatches, *item.shape)


def _padded(item: Input, rows: NDArray[Any], more: int) -> NDArray[Any]:
    """The rows and `more` copies of the first, whose labels are ignored."""
    copies = np.repeat(rows[:1], more, axis=0)
    return np.concatenate([rows, np.full_like(copies, IGNORED) if item.ignores else copies])
