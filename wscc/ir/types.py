"""Element types, layouts (the sharding of tensors) and tensor types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import prod

import numpy as np


class DType(StrEnum):
    """An element type; the spelling is the IR's."""

    F64 = "f64"
    F32 = "f32"
    BF16 = "bf16"
    I32 = "i32"

    # The hash of a member in C: the one of `Enum` is a call, and types are hashed with every view.
    __hash__ = str.__hash__

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of the same name."""
        return bf16() if self is DType.BF16 else _NUMPY[self]

    @classmethod
    @cache
    def of(cls, dtype: np.dtype[np.generic]) -> DType:
        """The element type of a NumPy type, which is one of the four; `ml_dtypes` is not imported for the answer."""
        return DType.BF16 if is_bf16(dtype) else next(d for d, own in _NUMPY.items() if own == dtype)

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return _SIZE[self]

    @property
    def precision(self) -> int:
        """Bits of the significand of a float, the first one included."""
        return _PRECISION[self]

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding to this float type."""
        return float(2.0**-self.precision)

    @property
    def accumulator(self) -> DType:
        """The type in which sums of many such elements are kept."""
        return DType.F32 if self is DType.BF16 else self

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self is not DType.I32


@cache
def bf16() -> np.dtype[np.generic]:
    """The type bf16, which NumPy knows by name from the first call on."""
    # Imported here, since it takes longer to import than all else, and only what holds numbers in bf16 asks for it.
    import ml_dtypes

    dtype: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
    return dtype


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.I32: np.dtype(np.int32),
}
_SIZE: dict[DType, int] = {DType.F64: 8, DType.F32: 4, DType.BF16: 2, DType.I32: 4}
_PRECISION: dict[DType, int] = {DType.F64: 53, DType.F32: 24, DType.BF16: 8}


def is_bf16(dtype: np.dtype[np.generic]) -> bool:
    """Whether a NumPy type is bf16, without asking for it."""
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


class Reduction(StrEnum):
    """The operation that makes the whole of the parts of a partial value."""

    SUM = "sum"
    MAX = "max"

    __hash__ = str.__hash__  # in C, as that of `DType`


@dataclass(frozen=True, slots=True)
class Layout:
    """The sharding of a tensor over the logical mesh.

    `dims` has the axes that split each dimension, major first; along an axis in none of them, dies hold replicas.
    `partial` lists the axes over which each die holds only a part of a sum or maximum, sorted by axis.
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[tuple[str, Reduction], ...] = ()

    @classmethod
    def whole(cls, rank: int) -> Layout:
        """The layout of a tensor of which every die holds all."""
        return cls(((),) * rank)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split a dimension."""
        return tuple(a for dim in self.dims for a in dim)

    def dim_of(self, axis: str) -> int | None:
        """The dimension that `axis` splits; None if it splits none."""
        return next((d for d, axes in enumerate(self.dims) if axis in axes), None)

    def reduction_of(self, axis: str) -> Reduction | None:
        """The reduction that is pending over `axis`; None if the tensor is complete over it."""
        return next((kind for a, kind in self.partial if a == axis), None)

    def completed(self) -> Layout:
        """The same split without partial axes."""
        return Layout(self.dims)

    def closed(self, dim: int, axis: str) -> Layout:
        """The same with dimension `dim` split further by `axis`, as its minor axis."""
        dims = tuple((*axes, axis) if d == dim else axes for d, axes in enumerate(self.dims))
        return Layout(dims, self.partial)

    def with_partial(self, partial: dict[str, Reduction]) -> Layout:
        """The same split, with these reductions pending."""
        return Layout(self.dims, tuple(sorted(partial.items())) if partial else ())


@dataclass(frozen=True, slots=True)
class TensorType:
    """The logical (whole) shape, the element type and, from the sharded level on, the layout."""

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout | None = None

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.elements * self.dtype.size

    def with_layout(self, layout: Layout | None) -> TensorType:
        """The same shape and element type in another layout."""
        return TensorType(self.shape, self.dtype, layout)

    def local_shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape of the shard of each die; `sizes` are the degrees of axes. Every split is even: partition refuses
        others."""
        if self.layout is None:
            return self.shape
        return tuple(
            [
                n // prod([sizes[a] for a in axes]) if axes else n
                for n, axes in zip(self.shape, self.layout.dims, strict=True)
            ]
        )

    def __str__(self) -> str:
        layout = self.layout or Layout.whole(len(self.shape))
        dims = ",".join("/".join((str(n), *axes)) for n, axes in zip(self.shape, layout.dims, strict=True))
        partial = "".join(f" {kind}({axis})" for axis, kind in layout.partial)
        return f"{self.dtype}[{dims}]{partial}"
