"""Initial weights: each element depends on the seed, the array's name, the layer and its own index alone.

So any part of an array can be computed alone, for any die and layout.
Invariant: `initial_slice(..., slices) == initial(...)[slices]`, bit for bit.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.host.random import key, normals
from wscc.ir.array import Init
from wscc.ir.types import DType

Tensor = NDArray[np.generic]

_BLOCK: Final = 1 << 14  # elements computed at once: the intermediate arrays stay in the cache


def initial(
    name: str, index: tuple[int, ...], shape: tuple[int, ...], init: Init, seed: int, dtype: DType
) -> Tensor:
    """The initial value, of shape `shape`, of element `index` (the layer) of the array `name`."""
    return initial_slice(name, index, shape, init, seed, dtype, tuple(slice(0, n) for n in shape))


def initial_slice(
    name: str,
    index: tuple[int, ...],
    shape: tuple[int, ...],
    init: Init,
    seed: int,
    dtype: DType,
    slices: tuple[slice, ...],
) -> Tensor:
    """The part `slices` of `initial(...)`: one slice without step for each dimension of `shape`."""
    bounds = [s.indices(n) for s, n in zip(slices, shape, strict=True)]
    assert all(step == 1 for _, _, step in bounds)
    local = tuple(max(0, stop - start) for start, stop, _ in bounds)
    if init.kind == "zeros":
        return np.zeros(local, dtype.numpy)
    if init.kind == "ones":
        return np.ones(local, dtype.numpy)
    assert init.kind == "normal", init.kind
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    first = sum(start * stride for (start, _, _), stride in zip(bounds, strides, strict=True))
    out = np.empty(local, dtype.numpy)
    _fill(out, first, strides, key("init", seed, name, index), init.std)
    return out


def _fill(out: Tensor, first: int, strides: list[int], stream: np.uint64, std: float) -> None:
    """Write to `out` the elements whose flat index in the whole array is `first` + sum of position x stride."""
    if out.size <= _BLOCK:
        flat: NDArray[np.uint64] = np.full((), first, np.uint64)
        for n, stride in zip(out.shape, strides, strict=True):
            flat = np.add.outer(flat, np.arange(n, dtype=np.uint64) * np.uint64(stride))
        out[...] = (normals(stream, flat.reshape(-1)) * std).reshape(out.shape)
    elif out[0].size > _BLOCK:
        for i in range(len(out)):
            _fill(out[i], first + i * strides[0], strides[1:], stream, std)
    else:
        rows = _BLOCK // out[0].size
        for i in range(0, len(out), rows):
            _fill(out[i : i + rows], first + i * strides[0], strides, stream, std)
