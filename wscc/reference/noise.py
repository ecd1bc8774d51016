"""Draws of rounding errors: what one device may compute in the element types of a module, at random.

A program may round a value where the reference does not, and in another order. How far that takes a result is not to
be seen in one run: its error is one number of a distribution. A run with noise is another draw of it: every value that
is stored is moved by up to one unit roundoff u of its type, x (1 + u xi), xi uniform in [-1, 1] (Parker, Monte Carlo
Arithmetic, 1997), and then rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.ir.module import Module
from wscc.ir.types import DType

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """A source of rounding errors; `parts` is the number of partial sums of a weight's gradient, over all axes."""

    generator: np.random.Generator
    parts: int = 1

    @staticmethod
    def of(module: Module, *seed: int) -> Noise:
        """The noise of a module on its mesh; another draw for each seed."""
        return Noise(np.random.default_rng(seed), 1 + sum(degree for _, degree in module.axes))

    def moved(self, x: Array, dtype: DType) -> Array:
        """`x` moved by a rounding to `dtype`, in f64."""
        return np.asarray(x + x * (dtype.roundoff * self._uniform(x.shape)))

    def summed(self, x: Array, contributions: Array, dtype: DType) -> Array:
        """`x`, a sum of several partial sums that are rounded to `dtype` each, in f64.

        `contributions` is the same sum with a random sign for each addend: its square estimates the sum of their
        squares, and x^2 plus that is what the square of a partial sum is at most, on average.
        """
        squares = np.square(x, dtype=np.float64) + np.square(contributions, dtype=np.float64)
        return np.asarray(x + np.sqrt(self.parts * squares) * (dtype.roundoff * self._uniform(x.shape)))

    def signs(self, shape: tuple[int, ...]) -> Array:
        """An array of +1 and -1 at random."""
        return np.asarray(self.generator.integers(0, 2, shape) * 2 - 1)

    def _uniform(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.generator.uniform(-1.0, 1.0, shape))
