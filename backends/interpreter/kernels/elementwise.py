"""Kernels of arithmetic and activations: in-place passes over blocks that stay in cache.

`[*]` is any shape, the same for all operands; operands that are read may be broadcast (stride 0). All compute in
the element type of their operands, f32 or f64.
"""

from __future__ import annotations

from functools import cache
from math import erfc, exp, pi, sqrt
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like

_GELU = sqrt(2 / pi)
_CUBIC = 0.044715


def add(z: Array, x: Array, y: Array) -> None:
    """z [*] = x [*] + y [*]."""
    np.add(x, y, out=z)


def sub(z: Array, x: Array, y: Array) -> None:
    """z [*] = x [*] - y [*]."""
    np.subtract(x, y, out=z)


def mul(z: Array, x: Array, y: Array) -> None:
    """z [*] = x [*] y [*], element by element."""
    np.multiply(x, y, out=z)


def div(z: Array, x: Array, y: Array) -> None:
    """z [*] = x [*] / y [*], element by element."""
    np.divide(x, y, out=z)


def maximum(z: Array, x: Array, y: Array) -> None:
    """z [*] = the larger of x [*] and y [*], element by element."""
    np.maximum(x, y, out=z)


def scale(y: Array, x: Array, factor: float) -> None:
    """y [*] = factor x [*]."""
    np.multiply(x, factor, out=y)


def relu(y: Array, x: Array) -> None:
    """y [*] = max(x [*], 0)."""
    np.maximum(x, 0, out=y)


def relu_bwd(dx: Array, x: Array, dy: Array) -> None:
    """dx [*] = dy [*] where x [*] > 0, else 0."""
    np.multiply(dy, x > 0, out=dx)


def sigmoid(y: Array, x: Array) -> None:
    """y [*] = 1 / (1 + exp(-x [*]))."""
    for y_block, x_block in blocks(0, y, x):
        np.copyto(y_block, _sigmoid(x_block))


def sigmoid_bwd(dx: Array, x: Array, dy: Array) -> None:
    """dx [*] = dy [*] s (1 - s) with s = sigmoid(x [*]), which is t / (1 + t)^2 with t = exp(-|x|): where s is nearly
    1, the difference would cancel."""
    for dx_block, x_block, dy_block in blocks(0, dx, x, dy):
        slope = np.abs(x_block, out=scratch_like("sigmoid.slope", x_block))
        np.negative(slope, out=slope)
        np.exp(slope, out=slope)
        sums = np.add(slope, 1, out=scratch_like("sigmoid", x_block))
        slope /= np.square(sums, out=sums)
        np.multiply(slope, dy_block, out=dx_block)


def rsqrt(y: Array, x: Array, eps: float) -> None:
    """y [*] = 1 / sqrt(x [*] + eps)."""
    for y_block, x_block in blocks(0, y, x):
        np.copyto(y_block, _rsqrt(x_block, eps))


def rsqrt_bwd(dx: Array, x: Array, dy: Array, eps: float) -> None:
    """dx [*] = -dy [*] / 2 (x [*] + eps)^(-3/2)."""
    for dx_block, x_block, dy_block in blocks(0, dx, x, dy):
        r = _rsqrt(x_block, eps)
        cube = np.multiply(r, r, out=scratch_like("rsqrt.cube", r))
        cube *= r
        cube *= -0.5
        np.multiply(cube, dy_block, out=dx_block)


def _rsqrt(x: Array, eps: float) -> Array:
    """1 / sqrt(x + eps), of the shape of x, in scratch."""
    r = np.add(x, eps, out=scratch_like("rsqrt", x))
    np.sqrt(r, out=r)
    return np.reciprocal(r, out=r)


def gelu(y: Array, x: Array) -> None:
    """y [*] = GELU of x [*] in the tanh approximation (Hendrycks and Gimpel 2016)."""
    for y_block, x_block in blocks(0, y, x):
        t = _gelu_argument(x_block)
        np.tanh(t, out=t)
        t += 1
        t *= x_block
        np.multiply(t, 0.5, out=y_block)


def gelu_bwd(dx: Array, x: Array, dy: Array) -> None:
    """dx [*] = dy [*] times the slope of `gelu` at x [*].

    With u the argument of tanh, t = tanh u and h = (1 + t) / 2: the slope is h (1 + 2 x u' (1 - h)), and
    x u' = 3 u - 2 sqrt(2/pi) x. Beyond 30 the slope is 0 or 1, and u may overflow.
    """
    for dx_block, x_raw, dy_block in blocks(0, dx, x, dy):
        x_block = np.clip(x_raw, -30, 30, out=scratch_like("gelu.x", x_raw))
        u, h, a = _gelu_argument(x_block), scratch_like("gelu.h", x_block), scratch_like("gelu.a", x_block)
        np.tanh(u, out=h)
        h += 1
        h *= 0.5
        u *= 6
        np.multiply(x_block, 4 * _GELU, out=a)
        u -= a
        np.subtract(1, h, out=a)
        u *= a
        u += 1
        u *= h
        np.multiply(u, dy_block, out=dx_block)


def _gelu_argument(x: Array) -> Array:
    """The argument of tanh, sqrt(2/pi) (x + 0.044715 x^3), of the shape of x, in scratch."""
    u = np.multiply(x, x, out=scratch_like("gelu.u", x))
    u *= _CUBIC * _GELU
    u += _GELU
    u *= x
    return u


def gelu_erf(y: Array, x: Array) -> None:
    """y [*] = x [*] Phi(x), the exact GELU; Phi is the normal distribution function."""
    for y_block, x_block in blocks(0, y, x):
        np.multiply(_normal_cdf(x_block)[0], x_block, out=y_block)


def gelu_erf_bwd(dx: Array, x: Array, dy: Array) -> None:
    """dx [*] = dy [*] (Phi(x) + x phi(x)) at x [*], with the normal distribution function and its density."""
    for dx_block, x_block, dy_block in blocks(0, dx, x, dy):
        cdf, density = _normal_cdf(x_block)
        density *= x_block
        density += cdf
        np.multiply(density, dy_block, out=dx_block)


def soft_cap(y: Array, x: Array, cap: float) -> None:
    """y [*] = cap tanh(x [*] / cap); y may be x itself."""
    np.divide(x, cap, out=y)
    np.tanh(y, out=y)
    y *= cap


def soft_cap_bwd(dx: Array, x: Array, dy: Array, cap: float) -> None:
    """dx [*] = dy [*] (1 - tanh(x / cap)^2) at x [*], as 4 e / (1 + e)^2 with e = exp(-2 |x| / cap), whose digits are
    not lost far out; dx may be dy itself."""
    for dx_block, x_block, dy_block in blocks(0, dx, x, dy):
        e, t = scratch_like("soft_cap.e", x_block), scratch_like("soft_cap.t", x_block)
        np.abs(x_block, out=e)
        e *= -2 / cap
        np.exp(e, out=e)
        np.add(e, 1, out=t)
        t *= t
        e /= t
        e *= 4
        np.multiply(e, dy_block, out=dx_block)


def swiglu(y: Array, a: Array, b: Array) -> None:
    """y [*] = a [*] sigmoid(a) b [*] (Shazeer 2020)."""
    for y_block, a_block, b_block in blocks(0, y, a, b):
        s = _sigmoid(a_block)
        s *= a_block
        np.multiply(s, b_block, out=y_block)


def swiglu_bwd(da: Array, db: Array, a: Array, b: Array, dy: Array) -> None:
    """da, db [*] = gradients of `swiglu` at a, b [*] for dy [*].

    With s = sigmoid(a): db = dy a s; da = dy b s (1 + a (1 - s)).
    """
    for da_block, db_block, a_block, b_block, dy_block in blocks(0, da, db, a, b, dy):
        s = _sigmoid(a_block)
        g = scratch_like("swiglu.g", s)
        np.multiply(dy_block, s, out=g)  # dy s
        np.subtract(1, s, out=s)
        s *= a_block
        s += 1
        s *= g
        s *= b_block
        np.multiply(g, a_block, out=db_block)
        np.copyto(da_block, s)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), of the shape of x, in scratch."""
    s = scratch_like("sigmoid", x)
    np.negative(x, out=s)
    np.exp(s, out=s)
    s += 1
    return np.reciprocal(s, out=s)


def _normal_cdf(x: Array) -> tuple[Array, Array]:
    """The normal distribution function Phi(x) and its density phi(x), of the shape of x, in scratch.

    erfc(z) = exp(-z^2) f(t) for z >= 0, t = 2 / (2 + z), where f is a Chebyshev series: accurate relative to
    the result even far out in the tail, where 1 + erf would cancel.
    """
    z = scratch_like("erf.z", x)
    np.abs(x, out=z)
    z *= sqrt(0.5)
    gauss = scratch_like("erf.gauss", x)
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
    """The Chebyshev series at u, by Clenshaw's recurrence b_k = c_k + 2 u b_(k+1) - b_(k+2), in scratch."""
    b1, b2, u2 = scratch_like("erf.b1", u), scratch_like("erf.b2", u), scratch_like("erf.u2", u)
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

    def erfcx(u: float) -> float:
        t = (u + 1) / 2
        z = 2 / t - 2
        # Beyond 25, where erfc underflows, the asymptotic series is exact to rounding.
        if z < 25:
            return exp(z * z) * erfc(z)
        w = 1 / (2 * z * z)
        return (1 - w * (1 - 3 * w * (1 - 5 * w * (1 - 7 * w)))) / (z * sqrt(pi))

    def sampled(u: Any) -> Any:
        return np.array([erfcx(float(v)) for v in u])

    return tuple(np.polynomial.chebyshev.chebinterpolate(sampled, 30).tolist())
