"""Semantics of the activations: elementwise functions and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import Final

import numpy as np

from wscc.reference.semantics import Array, Semantics

_CUBIC: Final = 0.044715
_elementwise_erf = np.frompyfunc(erf, 1, 1)


def _pointwise(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Semantics:
    return Semantics(lambda op, xs: [function(xs[0])], lambda op, xs, ys, dys: [dys[0] * slope(xs[0])])


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), by tanh, which never overflows."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def _gelu_gate(x: Array) -> Array:
    """The tanh approximation of the normal distribution function, as sigmoid(2u) = (1 + tanh u) / 2."""
    return _sigmoid(sqrt(8 / pi) * (x + _CUBIC * x * x * x))


def _gelu_slope(x: Array) -> Array:
    gate = _gelu_gate(x)
    return np.asarray(gate + x * gate * (1 - gate) * (sqrt(8 / pi) * (1 + 3 * _CUBIC * x * x)))


def _normal_cdf(x: Array) -> Array:
    return np.asarray(0.5 + 0.5 * _elementwise_erf(x / sqrt(2))).astype(x.dtype)


def _gelu_erf_slope(x: Array) -> Array:
    density = np.exp(-0.5 * x * x) / sqrt(2 * pi)
    return np.asarray(_normal_cdf(x) + x * density)


def _silu_slope(x: Array) -> Array:
    s = _sigmoid(x)
    return np.asarray(s + x * s * (1 - s))


SEMANTICS: Final[dict[str, Semantics]] = {
    "gelu": _pointwise(lambda x: x * _gelu_gate(x), _gelu_slope),
    "gelu_erf": _pointwise(lambda x: x * _normal_cdf(x), _gelu_erf_slope),
    "relu": _pointwise(lambda x: np.where(x > 0, x, 0), lambda x: (x > 0).astype(x.dtype)),
    "sigmoid": _pointwise(_sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x)),
    "rsqrt": Semantics(
        lambda op, xs: [(xs[0] + float(op.attr("eps"))) ** -0.5],
        lambda op, xs, ys, dys: [-0.5 * dys[0] * (xs[0] + float(op.attr("eps"))) ** -1.5],
    ),
    "soft_cap": Semantics(
        lambda op, xs: [float(op.attr("cap")) * np.tanh(xs[0] / float(op.attr("cap")))],
        lambda op, xs, ys, dys: [dys[0] / np.cosh(xs[0] / float(op.attr("cap"))) ** 2],
    ),
    "swiglu": Semantics(
        lambda op, xs: [xs[0] * _sigmoid(xs[0]) * xs[1]],
        lambda op, xs, ys, dys: [dys[0] * xs[1] * _silu_slope(xs[0]), dys[0] * xs[0] * _sigmoid(xs[0])],
    ),
}
