"""Batches of tokens and labels, from the bytes of a text or from the seed.

Sequence i of the batch of a step depends on the seed, the step and i alone: neither on the strategy nor on
how the batch is cut into micro-batches (micro-batch j gets sequences j b to (j + 1) b).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.files import read_bytes
from wscc.files.kinds import DATA
from wscc.host.random import integers, key
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.streams.artifact import HostTensor

Tokens = NDArray[np.int32]
LABELS = "labels"  # the input of this name gets the tokens that follow


@dataclass(frozen=True, slots=True)
class Input:
    """An input array: `shape` is (sequences of one micro-batch, positions...)."""

    name: str
    microbatches: int
    shape: tuple[int, ...]

    @property
    def positions(self) -> int:
        return prod(self.shape[1:])


def inputs_of(arrays: Iterable[Array | HostTensor]) -> tuple[Input, ...]:
    """The inputs among the arrays of a module or the tensors of a manifest."""
    return tuple(Input(a.name, prod(a.extents), a.type.shape) for a in arrays if a.kind is Kind.INPUT)


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of all steps: `batch(step)`, from 0. `text` are token numbers [n]; `None`: tokens are random."""

    inputs: tuple[Input, ...]
    vocabulary: int
    seed: int
    text: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        """`CompileError` W503 where the text is too short for one sequence or goes beyond the vocabulary."""
        if self.text is None:
            return
        if self.text.size < self._window:
            raise fail(
                Code.DATA,
                f"the text has {self.text.size} bytes, and one sequence takes {self._window}",
                help="give a longer text, or lower `seq`",
            )
        largest = int(self.text.max())
        if largest >= self.vocabulary:
            index = int(np.argmax(self.text >= self.vocabulary))
            raise fail(
                Code.DATA,
                f"byte {index} of the text is {self.text[index]}, and the vocabulary has {self.vocabulary} tokens",
                help=f"make the vocabulary at least {largest + 1} (256 takes any text), or change the text",
            )

    @property
    def _window(self) -> int:
        """The number of tokens of one sequence, plus the one after its last."""
        return max(i.positions for i in self.inputs) + 1

    def batch(self, step: int) -> dict[str, Tokens]:
        """Every input of a step by name, i32 of shape [micro-batches, *shape]."""
        out: dict[str, Tokens] = {}
        for item in self.inputs:
            rows = self._rows(step, item.microbatches * item.shape[0])
            shift = int(item.name == LABELS)
            part = rows[:, shift : shift + item.positions]
            out[item.name] = np.ascontiguousarray(part, np.int32).reshape(item.microbatches, *item.shape)
        return out

    def _rows(self, step: int, count: int) -> NDArray[np.int64]:
        """The tokens [count, window] of `count` sequences, each with the token after its last."""
        stream = key("data", self.seed, step)
        if self.text is None:
            flat = integers(stream, np.arange(count * self._window, dtype=np.uint64), self.vocabulary)
            return np.reshape(flat, (count, self._window))
        starts = integers(stream, np.arange(count, dtype=np.uint64), self.text.size - self._window + 1)
        return np.asarray(self.text[starts[:, None] + np.arange(self._window)], np.int64)


def read_text(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file as tokens; `CompileError` W002 if it cannot be read, W003 if it is too large."""
    return np.frombuffer(read_bytes(path, DATA), np.uint8)


def vocabulary(module: Module) -> int:
    """The size of the vocabulary of a graph-level module: the rows of its smallest embedding, or the columns of its
    logits (pads apart) if they are fewer. `CompileError` W503 if it has neither."""
    sizes = [n for procedure in module.procedures for n in _vocabulary_sizes(procedure.ops)]
    if not sizes:
        raise fail(
            Code.DATA, "no input is used as a token", help="give `embedding` or `cross_entropy` an input"
        )
    return min(sizes)


def _vocabulary_sizes(ops: Iterable[Op]) -> Iterator[int]:
    """The size of every dimension that integers index, pads apart."""
    for op in ops:
        if not op.definition.positional:
            limit = int(op.attr("limit")) if "limit" in op.definition.attrs else 0
            yield from (limit or op.sizes[f] for f in op.rule.indexed)
