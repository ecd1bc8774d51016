"""Arithmetic and activations: chains of in-place passes over blocks that stay in cache."""

from __future__ import annotations

from functools import cache
from math import erfc, exp, pi, sqrt
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, like, scratch

_GELU = sqrt(2 / pi)
_CUBIC = 0.044715


def add(z: Array, x: Array, y: Array) -> None:
    np.add(x, y, out=z)


def sub(z: Array, x: Array, y: Array) -> None:
    np.subtract(x, y, out=z)


def mul(z: Array, x: Array, y: Array) -> None:
    np.multiply(x, y, out=z)


def div(z: Array, x: Array, y: Array) -> None:
    np.divide(x, y, out=z)


def maximum(z: Array, x: Array, y: Array) -> None:
    np.maximum(x, y, out=z)


def scale(y: Array, x: Array, factor: float) -> None:
    np.multiply(x, factor, out=y)


def relu(y: Array, x: Array) -> None:
    np.maximum(x, 0, out=y)


def relu_bwd(dx: Array, x: Array, dy: Array) -> None:
    np.multiply(dy, x > 0, out=dx)


def gelu(y: Array, x: Array) -> None:
    for some_y, some_x in blocks(0, y, x):
        t = _gelu_argument(some_x)
        np.tanh(t, out=t)
        t += 1
        t *= some_x
        np.multiply(t, 0.5, out=some_y)


def gelu_bwd(dx: Array, x: Array, dy: Array) -> None:
    """With u the argument of tanh, t = tanh u and h = (1 + t) / 2: the slope is h (1 + 2 x u' (1 - h)), and
    x u' = 3 u - 2 sqrt(2/pi) x."""
    for some_dx, some_x, some_dy in blocks(0, dx, x, dy):
        u, h, a = _gelu_argument(some_x), like("gelu.h", some_x), like("gelu.a", some_x)
        np.tanh(u, out=h)
        h += 1
        h *= 0.5
        u *= 6
        np.multiply(some_x, 4 * _GELU, out=a)
        u -= a
        np.subtract(1, h, out=a)
        u *= a
        u += 1
        u *= h
        np.multiply(u, some_dy, out=some_dx)


def _gelu_argument(x: Array) -> Array:
    """sqrt(2/pi) (x + 0.044715 x^3), in scratch."""
    u = np.multiply(x, x, out=like("gelu.u", x))
    u *= _CUBIC * _GELU
    u += _GELU
    u *= x
    return u


def gelu_erf(y: Array, x: Array) -> None:
    for some_y, some_x in blocks(0, y, x):
        np.multiply(_normal_cdf(some_x)[0], some_x, out=some_y)


def gelu_erf_bwd(dx: Array, x: Array, dy: Array) -> None:
    """dy (Phi(x) + x phi(x)), the normal distribution and its density."""
    for some_dx, some_x, some_dy in blocks(0, dx, x, dy):
        cdf, density = _normal_cdf(some_x)
        density *= some_x
        density += cdf
        np.multiply(density, some_dy, out=some_dx)


def swiglu(y: Array, a: Array, b: Array) -> None:
    for some_y, some_a, some_b in blocks(0, y, a, b):
        s = _sigmoid(some_a)
        s *= some_a
        np.multiply(s, some_b, out=some_y)


def swiglu_bwd(da: Array, db: Array, a: Array, b: Array, dy: Array) -> None:
    """With s = sigmoid(a): db = dy a s; da = dy b s (1 + a (1 - s))."""
    for some_da, some_db, some_a, some_b, some_dy in blocks(0, da, db, a, b, dy):
        s = _sigmoid(some_a)
        g = like("swiglu.g", s)
        np.multiply(some_dy, s, out=g)  # dy s
        np.subtract(1, s, out=s)
        s *= some_a
        s += 1
        s *= g
        s *= some_b
        np.multiply(g, some_a, out=some_db)
        np.copyto(some_da, s)


def _sigmoid(x: Array) -> Array:
    s = like("sigmoid", x)
    np.negative(x, out=s)
    np.exp(s, out=s)
    s += 1
    return np.reciprocal(s, out=s)


def _normal_cdf(x: Array) -> tuple[Array, Array]:
    """Phi(x) and the density phi(x).

    erfc(z) = exp(-z^2) f(t) for z >= 0, t = 2 / (2 + z), where f is a Chebyshev series: accurate relative to
    the result even far out in the tail, where 1 + erf would cancel.
    """
    z = like("erf.z", x)
    np.abs(x, out=z)
    z *= sqrt(0.5)
    gauss = like("erf.gauss", x)
    np.multiply(z, z, out=gauss)
    np.negative(gauss, out=gauss)
    np.exp(gauss, out=gauss)
    z += 2
    np.divide(4, z, out=z)
    z -= 1  # 2 t - 1, in [-1, 1]
    cdf = _chebyshev(z, _erfcx_series())
    cdf *= gauss
    cdf *= 0.5  # of -|x|
    np.subtract(1, cdf, out=cdf, where=x > 0)
    gauss *= 1 / sqrt(2 * pi)
    return cdf, gauss


def _chebyshev(u: Array, coefficients: tuple[float, ...]) -> Array:
    """Clenshaw's recurrence b_k = c_k + 2 u b_(k+1) - b_(k+2)."""
    b1, b2, u2 = like("erf.b1", u), like("erf.b2", u), like("erf.u2", u)
    np.add(u, u, out=u2)
    b1.fill(coefficients[-1])
    b2.fill(0)
    for c in coefficients[-2:0:-1]:
        np.subtract(c, b2, out=b2)
        t = scratch("erf.t", u.shape, u.dtype)
        np.multiply(u2, b1, out=t)
        b2 += t
        b1, b2 = b2, b1
    np.subtract(coefficients[0], b2, out=b2)
    b1 *= u
    b1 += b2
    return b1


@cache
def _erfcx_series() -> tuple[float, ...]:
    """The Chebyshev coefficients of exp(z^2) erfc(z) as a function of 2 t - 1, t = 2 / (2 + z)."""

    def f(u: float) -> float:
        t = (u + 1) / 2
        z = 2 / t - 2
        # Beyond 25, where erfc underflows, the asymptotic series is exact to rounding.
        if z < 25:
            return exp(z * z) * erfc(z)
        w = 1 / (2 * z * z)
        return (1 - w * (1 - 3 * w * (1 - 5 * w * (1 - 7 * w)))) / (z * sqrt(pi))

    def sampled(u: Any) -> Any:
        return np.array([f(float(v)) for v in u])

    return tuple(np.polynomial.chebyshev.chebinterpolate(sampled, 30).tolist())
