"""Named arrays against the inputs of a model: every mistake is named, with the first element that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, CompileError, fail
from wscc.files.archives import shown
from wscc.host.data_file import Arrays
from wscc.host.inputs import LABELS, Input
from wscc.ir.ops import IGNORED
from wscc.ir.types import DType, is_bf16

_PIECE: Final = 1 << 20  # elements looked at once
_SHOWN: Final = 6  # names listed


def check_arrays(arrays: Arrays, inputs: tuple[Input, ...], where: str) -> None:
    """Raise `CompileError` W503 unless there is one array for each input, [rows, *positions], all with as many rows, of
    its type and with values that the model can do with. `where` is ` of FILE`, or nothing."""
    _check_names(arrays, inputs, where)
    for item in inputs:
        _check_shape(arrays[item.name], item, where)
    _check_rows(arrays, inputs, where)
    for item in inputs:
        check = _check_floats if item.dtype.is_float else _check_integers
        check(arrays[item.name], item, where)


def _check_names(arrays: Arrays, inputs: tuple[Input, ...], where: str) -> None:
    wanted = [i.name for i in inputs]
    file = where.removeprefix(" of ") or "the data"
    for name in wanted:
        if name not in arrays:
            near = get_close_matches(name, arrays, 1)
            raise _misfit(
                f"{file} has no array `{name}`; it has {_listed(arrays)}",
                f"rename {shown(near[0])}" if near else _all_inputs(inputs),
            )
    for name in arrays:
        if name not in wanted:
            raise _misfit(
                f"the model has no input {shown(name)}, which is an array{where}",
                f"leave it out: the model takes {_listed(wanted)}",
            )


def _listed(names: Iterable[str]) -> str:
    listed = [shown(n) for n in names]
    rest = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return (", ".join(listed[:_SHOWN]) or "none") + rest


def _all_inputs(inputs: tuple[Input, ...]) -> str:
    """What would work; labels of a text are the tokens that follow."""
    words = f"give an array for each input: {', '.join(f'`{i.name}` {_wanted(i)}' for i in inputs)}"
    return words + f"; `{LABELS}[r, p]` is what follows position p of row r" * (len(inputs) == 2)


def _wanted(item: Input) -> str:
    return f"[{', '.join(['rows', *map(str, item.shape[1:])])}]"


def _check_shape(array: NDArray[Any], item: Input, where: str) -> None:
    if array.shape[1:] == item.shape[1:] and array.ndim:
        return
    raise _misfit(
        f"array `{item.name}`{where} is {list(array.shape)}, and the model takes {_wanted(item)}",
        "change the array, or the sizes of the model",
    )


def _check_rows(arrays: Arrays, inputs: tuple[Input, ...], where: str) -> None:
    first = inputs[0]
    for item in inputs:
        rows, others = len(arrays[item.name]), len(arrays[first.name])
        if rows != others:
            raise _misfit(
                f"array `{item.name}`{where} has {rows} rows, and `{first.name}` has {others}",
                "row r of every array belongs to the same sequence",
            )


def _check_integers(array: NDArray[Any], item: Input, where: str) -> None:
    if array.dtype.kind not in "iu":
        raise _wrong_type(array, item, where, f"integers of any width, as `.astype(np.{item.dtype.numpy})`")
    low, high = (0, item.below) if item.below else _range(item.dtype)
    allowed = f"integers from {low} to {high - 1}" + f", or {IGNORED} where none counts" * item.ignores

    def is_wrong(x: NDArray[Any]) -> NDArray[Any]:
        outside = (x < low) | (x >= high)
        return outside & (x != IGNORED) if item.ignores else outside

    if (index := _first(array, is_wrong)) is not None:
        reason = f"the vocabulary has {item.below} tokens" if item.below else f"the input is {item.dtype}"
        raise _misfit(f"`{item.name}{index}`{where} is {_at(array, index)}, and {reason}", allowed)


def _range(dtype: DType) -> tuple[int, int]:
    bits = 8 * dtype.size
    return -(1 << bits - 1), 1 << bits - 1


def _check_floats(array: NDArray[Any], item: Input, where: str) -> None:
    if array.dtype.kind != "f" and not is_bf16(array.dtype):
        raise _wrong_type(array, item, where, f"floats, as `.astype(np.{item.dtype.numpy})`")

    def is_wrong(x: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return ~np.isfinite(x.astype(item.dtype.numpy))

    if (index := _first(array, is_wrong)) is not None:
        raise _misfit(
            f"`{item.name}{index}`{where} is {_at(array, index)}, which is no finite {item.dtype}",
            "replace what is missing, or leave its row out",
        )


def _wrong_type(array: NDArray[Any], item: Input, where: str, wanted: str) -> CompileError:
    return _misfit(f"array `{item.name}`{where} holds {array.dtype}, and the input is {item.dtype}", wanted)


def _first(array: NDArray[Any], is_wrong: Callable[[NDArray[Any]], NDArray[Any]]) -> list[int] | None:
    """The index of the first wrong element, if there is one; the array is looked at in pieces."""
    step = max(1, _PIECE // max(1, array[:1].size))
    for row in range(0, len(array), step):
        wrong = is_wrong(array[row : row + step])
        if wrong.any():
            index = np.unravel_index(int(wrong.argmax()), wrong.shape)
            return [row + int(index[0]), *map(int, index[1:])]
    return None


def _at(array: NDArray[Any], index: list[int]) -> str:
    return str(array[tuple(index)])


def _misfit(message: str, help: str) -> CompileError:
    return fail(Code.DATA, message, help=help)
