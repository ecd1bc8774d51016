"""The semantics of an op as a pair of functions, forward and derivative, and the element types it is computed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.ir.op import Op
from wscc.ir.types import DType, is_bf16
from wscc.reference.noise import Noise

Array = NDArray[Any]
Forward = Callable[[Op, Sequence[Array]], Sequence[Array]]
# (op, operands, results, gradients of the results) -> gradients of the operands; None where there is none.
Vjp = Callable[[Op, Sequence[Array], Sequence[Array], Sequence[Array]], Sequence[Array | None]]


@dataclass(frozen=True, slots=True)
class Semantics:
    """The value of an op and its vector-Jacobian product.

    Arrays come in f32, f64 or an integer type, never narrower; the caller rounds the results.

    `vjp` is the exact derivative with respect to every float operand but a label count, which is data. The results of
    an op that `selects` are elements of its first operand, which later ops compare with it: no program rounds them, but
    to a narrower type.
    """

    forward: Forward
    vjp: Vjp
    selects: bool = False


@dataclass(frozen=True, slots=True)
class Precision:
    """The element type of every float; `None`: that of the module. With `noise`, a draw of rounding errors.

    Not bf16: a module that computes in bf16 keeps its statistics wider, as only the module can say.
    """

    dtype: DType | None = None
    noise: Noise | None = None

    def __post_init__(self) -> None:
        assert self.dtype in (None, DType.F32, DType.F64), self.dtype

    def of(self, dtype: DType) -> np.dtype[Any]:
        """The type that values of `dtype` are stored in."""
        return (self.dtype or dtype).numpy if dtype.is_float else dtype.numpy

    def exact(self, x: Array, dtype: DType) -> Array:
        """`x`, which is given and not computed, in the type that values of `dtype` are stored in."""
        return np.asarray(x).astype(self.of(dtype), copy=False)

    def store(self, x: Array, dtype: DType) -> Array:
        """`x`, computed, rounded to the type that values of `dtype` are stored in."""
        if self.noise and dtype.is_float:
            x = self.noise.moved(np.asarray(x), self.dtype or dtype)
        return self.exact(x, dtype)


def wide(x: Array) -> Array:
    """`x` in the type that arithmetic is done in: f32 in place of bf16."""
    return x.astype(np.float32) if is_bf16(x.dtype) else x


def no_gradient(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    """The derivative of an op whose result is a constant of the step: no operand has a gradient."""
    return [None] * len(xs)
