"""Weights of a program from arrays in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array
from wscc.ir.types import DType


class GivenWeights:
    """Arrays by the name of the parameter, of shape (*extents, *shape): layers are stacked in front."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], parameters: Iterable[Array]) -> None:
        """Raises `CompileError` W505 unless the arrays are those of these parameters, each of its shape and finite in
        its type."""
        params = tuple(parameters)
        self.arrays = {name: np.asarray(x) for name, x in arrays.items()}
        if misfits := [*_misfits(self.arrays, params)]:
            raise fail(
                Code.WEIGHTS, f"the weights do not fit the model: {'; '.join(misfits)}",
                help="give an array for each parameter, as `run().weights` has them",
            )  # fmt: skip

    def read(self, name: str, index: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Element `index` of a parameter, `[*shape]` in that type."""
        return np.asarray(self.arrays[name][index]).astype(dtype, copy=False)


def _misfits(arrays: Mapping[str, NDArray[Any]], parameters: Iterable[Array]) -> Iterable[str]:
    names = set()
    for a in parameters:
        name, shape = a.name, (*a.extents, *a.type.shape)
        names.add(name)
        if name not in arrays:
            yield f"`{name}` is missing"
        elif arrays[name].shape != shape:
            yield f"`{name}` is {list(arrays[name].shape)}, not {list(shape)}"
        elif not _is_finite(arrays[name], a.type.dtype):
            yield f"`{name}` holds what is no finite number in {a.type.dtype}"
    yield from (f"the model has no `{name}`" for name in arrays if name not in names)


def _is_finite(x: NDArray[Any], dtype: DType) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(x.astype(dtype.numpy)).all())
    except (TypeError, ValueError):
        return False
