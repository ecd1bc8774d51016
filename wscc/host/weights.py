"""Weights of a program from arrays in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array


class GivenWeights:
    """Arrays by the name of the parameter, of shape (*extents, *shape): layers are stacked in front."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], parameters: Iterable[Array]) -> None:
        """Raises `CompileError` W505 unless the arrays are those of these parameters, each finite and of its shape."""
        shapes = {a.name: (*a.extents, *a.type.shape) for a in parameters}
        self.arrays = {name: np.asarray(x) for name, x in arrays.items()}
        if misfits := [*_misfits(self.arrays, shapes)]:
            raise fail(
                Code.WEIGHTS, f"the weights do not fit the model: {'; '.join(misfits)}",
                help="give an array for each parameter, as `run().weights` has them",
            )  # fmt: skip

    def read(self, name: str, index: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Element `index` of a parameter, `[*shape]` in that type."""
        return np.asarray(self.arrays[name][index]).astype(dtype, copy=False)


def _misfits(arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> Iterable[str]:
    for name, shape in shapes.items():
        if name not in arrays:
            yield f"`{name}` is missing"
        elif arrays[name].shape != shape:
            yield f"`{name}` is {list(arrays[name].shape)}, not {list(shape)}"
        elif not _is_finite(arrays[name]):
            yield f"`{name}` holds what is no finite number"
    yield from (f"the model has no `{name}`" for name in arrays if name not in shapes)


def _is_finite(x: NDArray[Any]) -> bool:
    try:
        return bool(np.isfinite(x.astype(np.float64)).all())
    except (TypeError, ValueError):
        return False
