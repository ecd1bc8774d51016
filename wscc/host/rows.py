"""Rows: the one form that all data have in memory, texts and named arrays alike.

A row is one sequence of every input. Of a text, a row begins at every token: `tokens` are a window, `labels` what
follows. Rows that are held out for validation lie at the end, and no row that is trained on shares a label with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from wscc.diagnostics import Code, CompileError, fail
from wscc.host.array_checks import check_arrays
from wscc.host.data_file import ORDER, Arrays, DataFile
from wscc.host.inputs import LABELS, Input
from wscc.host.random import integers, key
from wscc.ir.ops import IGNORED
from wscc.ir.train import Train

Data = DataFile | Arrays | NDArray[Any]  # a file, arrays by name, or tokens [n]
Numbers = NDArray[np.int64]

_LONGER: Final = "give a longer text, or lower `seq`"
_PIECE: Final = 1 << 12  # rows looked at once


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`arrays` have the rows of each input, [rows, positions...]. Rows 0 to `trained` - 1 are trained on, those
    numbered in `held_out` are not. `drawn`: rows overlap, and the seed draws those of a step; else they take turns."""

    arrays: Arrays
    trained: int
    held_out: Numbers
    drawn: bool = False

    def of_step(self, step: int, count: int, seed: int) -> Numbers:
        """The numbers of the `count` rows of a step, from 0: they depend on nothing else."""
        places = np.arange(count, dtype=np.uint64)
        if self.drawn:
            return integers(key("data", seed, step), places, self.trained)
        return (step * count + places.astype(np.int64)) % self.trained

    def take(self, item: Input, numbers: Numbers) -> NDArray[Any]:
        """These rows of an input, [rows, positions...], in its type."""
        rows = self.arrays[item.name][numbers]
        return np.ascontiguousarray(rows, item.dtype.numpy).reshape(len(numbers), *item.shape[1:])


def rows_of(data: Data, inputs: tuple[Input, ...], train: Train, edges: Arrays | None = None) -> Rows:
    """The rows of data, checked against the inputs, with those of `train`'s validation held out. `edges` are those that
    the program was compiled for, which data may have again.
    `CompileError` W503 where anything does not fit."""
    edges = edges or {}
    if train.validation_rows or train.validation_percent or not _is_text(data):
        _require_sequences(inputs, train)
    if isinstance(data, np.ndarray):
        return _of_text(data, inputs, train, "the text", "token")
    if not isinstance(data, DataFile):
        return _of_arrays(_without(edges, data, ""), inputs, train, "")
    if data.has_arrays:
        where = f" of `{data.name}`"
        return _of_arrays(_without(edges, data.arrays(), where), inputs, train, where)
    return _of_text(data.text(), inputs, train, f"`{data.name}`" if data.name else "the text", "byte")


def _is_text(data: Data) -> bool:
    return isinstance(data, np.ndarray) or (isinstance(data, DataFile) and not data.has_arrays)


def _require_sequences(inputs: tuple[Input, ...], train: Train) -> None:
    """Raise W503 for an input that has no element for each sequence of the batch, so that no row can be of it."""
    for item in inputs:
        if item.batch != train.batch:
            raise fail(
                Code.DATA, f"input `{item.name}` is {list(item.shape)}, which is not one row for each sequence",
                help="write `[batch, ...]`: only so can rows of arrays be given, or held out",
            )  # fmt: skip


# ---- named arrays


def _of_arrays(arrays: Arrays, inputs: tuple[Input, ...], train: Train, where: str) -> Rows:
    check_arrays(arrays, inputs, where)
    count = len(arrays[inputs[0].name])
    kept = _held_out(train, count, train.batch, "give more rows")
    rows = Rows(arrays, count - kept, np.arange(count - kept, count))
    if rows.trained < train.batch:
        file = where.removeprefix(" of ") or "the data"
        left = f", of which {kept} are held out," if kept else ""
        raise fail(
            Code.DATA, f"{file} has {count} rows{left} and a step takes {train.batch}",
            help=_more_rows(train, rows.trained, kept),
        )  # fmt: skip
    if LABELS in arrays:
        _refuse_ignored(arrays[LABELS][: rows.trained], "to train on", where)
        _refuse_ignored(arrays[LABELS][rows.trained :], "held out", where)
    return rows


def _more_rows(train: Train, trained: int, kept: int) -> str:
    """What makes up for rows that a step lacks. A smaller batch need not be one that the strategy divides."""
    lacking = train.batch - trained
    # Of rows that are given, a part is held out, too.
    more = "more rows" if train.validation_percent else f"{lacking} row{'s' * (lacking > 1)} more"
    return f"give {more}" + (f", or `validation {kept - lacking} rows`" if kept > lacking else "")


def _refuse_ignored(labels: NDArray[Any], which: str, where: str) -> None:
    """Raise W503 for rows of which no label counts: their loss would be 0 whatever the model says."""
    pieces = (labels[i : i + _PIECE] for i in range(0, len(labels), _PIECE))
    if labels.size and not any((piece != IGNORED).any() for piece in pieces):
        raise fail(
            Code.DATA, f"every label{where} of the rows {which} is {IGNORED}, so that none counts",
            help=f"give labels from 0 on; {IGNORED} is for positions that are not to be learned",
        )  # fmt: skip


def _without(edges: Arrays, arrays: Arrays, where: str) -> Arrays:
    """The arrays but edges; W503 where these are others than `edges`."""
    for name, compiled in edges.items():
        if name in arrays and not np.array_equal(arrays[name], compiled):
            raise fail(
                Code.DATA, f"the edges `{name}`{where} are not those that the program was compiled for",
                help="compile it with this file as its `data`",
            )  # fmt: skip
    return {name: a for name, a in arrays.items() if name not in edges and not (edges and name == ORDER)}


def _held_out(train: Train, count: int, least: int, more: str) -> int:
    """How many of `count` rows are held out, where `least` are wanted to train on and `more` says what makes rows."""
    share = Fraction(repr(train.validation_percent)) / 100
    kept = train.validation_rows or int(count * share)
    most = count - least
    if share and not kept:
        raise fail(
            Code.DATA, f"`validation {train.validation_percent:g} %` of {count} rows is less than one row",
            help="hold out a number of rows: `validation 1 rows`" if most > 0 else more,
        )  # fmt: skip
    if not 0 <= kept < max(count, 1):
        raise fail(
            Code.DATA, f"`validation {kept} rows` leaves none of the {count} rows of the data to train on",
            help=f"hold out fewer: `validation {most} rows`" if most > 0 else more,
        )  # fmt: skip
    return kept


# ---- texts


def _of_text(tokens: NDArray[Any], inputs: tuple[Input, ...], train: Train, what: str, unit: str) -> Rows:
    """Rows that begin at each token; those that are held out follow one another at the end, and do not overlap."""
    _refuse_floats(inputs, what)
    positions = max(i.positions for i in inputs)
    window = positions + 1  # a label is the token that follows
    if tokens.size < window:
        raise _too_short(what, f"has {tokens.size} {unit}s", window)
    _check_tokens(tokens, inputs, what, unit)
    # Two: where the text is a multiple of a row, the one that is left has no label behind it.
    kept = _held_out(train, (tokens.size - 1) // positions, 2, _LONGER)
    cut = tokens.size - (kept * positions + 1 if kept else 0)
    if cut < window:
        raise _too_short(what, f"has {cut} {unit}s that are not held out", window)
    arrays = {i.name: _windows(tokens, i, tokens.size - positions) for i in inputs}
    return Rows(arrays, cut - positions, cut + positions * np.arange(kept), drawn=True)


def _windows(tokens: NDArray[Any], item: Input, count: int) -> NDArray[Any]:
    """`count` rows [count, positions] of an input, each a token further; they share the memory of the text."""
    shift = int(item.name == LABELS)
    return sliding_window_view(tokens[shift:], item.positions)[:count]


def _too_short(what: str, has: str, window: int) -> CompileError:
    return fail(Code.DATA, f"{what} {has}, and one sequence takes {window}", help=_LONGER)


def _refuse_floats(inputs: tuple[Input, ...], what: str) -> None:
    for item in inputs:
        if item.dtype.is_float:
            raise fail(
                Code.DATA, f"input `{item.name}` is {item.dtype}, and {what} has tokens alone",
                help="give arrays by name, in a `.npz` or `.safetensors` file",
            )  # fmt: skip


def _check_tokens(tokens: NDArray[Any], inputs: tuple[Input, ...], what: str, unit: str) -> None:
    largest, below = int(tokens.max()), min((i.below for i in inputs if i.below), default=0)
    if below and largest >= below:
        index = int(np.argmax(tokens >= below))
        raise fail(
            Code.DATA,
            f"{unit} {index} of {what} is {tokens[index]}, and the vocabulary has {below} tokens",
            help=_other_vocabulary(largest, unit) + "change the text",
        )


def _other_vocabulary(largest: int, unit: str) -> str:
    """What is said of one that has the token, if there can be one."""
    if largest > np.iinfo(np.int32).max:
        return ""
    bytes_ = " (256 takes any text)" if unit == "byte" else ""
    return f"make the vocabulary at least {largest + 1}{bytes_}, or "
