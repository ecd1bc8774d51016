"""The step of `baseline.py` with what can be done about memory in NumPy: how fast one process can be made.

All arrays are made once; parameters lie in one vector, and so do their gradients and moments; element-wise work goes
over rows that fit in a cache, and attention over one sequence after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.bench.baseline import BETA1, BETA2, EPSILON, RATE, Size, initial_weights

Array = NDArray[Any]

_PIECE = 1 << 16  # elements of one array in a chain of element-wise passes


def _shapes(n: Size) -> dict[str, tuple[int, ...]]:
    d, layer = n.width, (n.layers,)
    return {
        "tokens": (n.vocabulary, d), "places": (n.length, d),
        "gain1": (*layer, d), "shift1": (*layer, d), "qkv": (*layer, d, 3 * d), "out": (*layer, d, d),
        "gain2": (*layer, d), "shift2": (*layer, d), "up": (*layer, d, n.hidden), "down": (*layer, n.hidden, d),
        "gain3": (d,), "shift3": (d,), "head": (d, n.vocabulary),
    }  # fmt: skip


class _Store:
    """Named tensors that lie one after another in `flat`."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.flat = np.zeros(sum(map(prod, shapes.values())), np.float32)
        self.tensors: dict[str, Array] = {}
        at = 0
        for name, shape in shapes.items():
            self.tensors[name] = self.flat[at : at + prod(shape)].reshape(shape)
            at += prod(shape)

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name]


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Rows of arrays of equal length, some at a time."""
    rows = max(1, _PIECE * len(arrays[0]) // arrays[0].size)
    for i in range(0, len(arrays[0]), rows):
        yield tuple([a[i : i + rows] for a in arrays])


class Training:
    """A model with its optimizer; `step` trains on the same random batch every time and returns the loss."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        self.size = size
        shapes = _shapes(size)
        self.weights, self.grads = _Store(shapes), _Store(shapes)
        self.first, self.second = np.zeros_like(self.weights.flat), np.zeros_like(self.weights.flat)
        self.count = 0
        random = np.random.default_rng(seed)
        for name, w in initial_weights(size, random).items():
            kind, _, layer = name.partition(".")
            self.weights[kind][int(layer) if layer else ...] = w
        text = random.integers(0, size.vocabulary, (size.batch, size.length + 1))
        self.inputs, self.labels = text[:, :-1].reshape(-1), text[:, 1:].reshape(-1)
        self._allocate()

    def _allocate(self) -> None:
        n = self.size
        rows = n.batch * n.length

        def saved(*shape: int) -> Array:
            return np.empty((n.layers, *shape), np.float32)

        def work(*shape: int) -> Array:
            return np.empty(shape, np.float32)

        self.unit1, self.scale1 = saved(rows, n.width), saved(rows, 1)
        self.unit2, self.scale2 = saved(rows, n.width), saved(rows, 1)
        self.normal1, self.normal2 = saved(rows, n.width), saved(rows, n.width)
        self.qkv, self.mixed = saved(rows, 3 * n.width), saved(rows, n.width)
        self.odds = saved(n.batch, n.heads, n.length, n.length)
        self.before, self.after, self.turned = (saved(rows, n.hidden) for _ in range(3))
        self.unit3, self.scale3, self.normal3 = work(rows, n.width), work(rows, 1), work(rows, n.width)
        self.x, self.dx, self.dy = (work(rows, n.width) for _ in range(3))
        self.logits, self.wide, self.dqkv = (
            work(rows, n.vocabulary),
            work(rows, n.hidden),
            work(rows, 3 * n.width),
        )
        self.future = np.triu(np.full((n.length, n.length), -np.inf, np.float32), 1)

    def step(self) -> float:
        """Forward, backward, update."""
        loss = self._forward()
        self._backward()
        self._update()
        return loss

    # -- forward ----------------------------------------------------------------------------------------

    def _forward(self) -> float:
        w, x, dy = self.weights, self.x, self.dy
        np.take(w["tokens"], self.inputs, axis=0, out=x, mode="clip")
        x.reshape(self.size.batch, -1, self.size.width)[...] += w["places"]
        for i in range(self.size.layers):
            _norm(x, w["gain1"][i], w["shift1"][i], self.unit1[i], self.scale1[i], self.normal1[i])
            np.matmul(self.normal1[i], w["qkv"][i], out=self.qkv[i])
            self._attend(i)
            x += np.matmul(self.mixed[i], w["out"][i], out=dy)
            _norm(x, w["gain2"][i], w["shift2"][i], self.unit2[i], self.scale2[i], self.normal2[i])
            np.matmul(self.normal2[i], w["up"][i], out=self.before[i])
            _gelu(self.before[i], self.turned[i], self.after[i])
            x += np.matmul(self.after[i], w["down"][i], out=dy)
        _norm(x, w["gain3"], w["shift3"], self.unit3, self.scale3, self.normal3)
        return self._loss()

    def _heads(self, x: Array) -> list[Array]:
        """Per sequence: queries, keys and values, each [heads, length, width of a head]."""
        n = self.size
        return list(x.reshape(n.batch, n.length, 3, n.heads, -1).transpose(0, 2, 3, 1, 4))

    def _mixed(self, x: Array) -> Array:
        return x.reshape(self.size.batch, self.size.length, self.size.heads, -1).transpose(0, 2, 1, 3)

    def _attend(self, i: int) -> None:
        factor = np.float32(1 / sqrt(self.size.width / self.size.heads))
        for (q, k, v), p, out in zip(
            self._heads(self.qkv[i]), self.odds[i], self._mixed(self.mixed[i]), strict=True
        ):
            np.matmul(q * factor, k.transpose(0, 2, 1), out=p)
            p += self.future
            p -= p.max(axis=-1, keepdims=True)
            np.exp(p, out=p)
            p /= p.sum(axis=-1, keepdims=True)
            np.matmul(p, v, out=out)

    def _loss(self) -> float:
        """The loss; its gradient by the logits replaces them."""
        n = len(self.labels)
        total = 0.0
        np.matmul(self.normal3, self.weights["head"], out=self.logits)
        for some, label in _pieces(self.logits, self.labels):
            mine = np.arange(len(label)), label
            some -= some.max(axis=-1, keepdims=True)
            hit = some[mine]
            np.exp(some, out=some)
            mass = some.sum(axis=-1, keepdims=True)
            total += float(np.log(mass).sum() - hit.sum())
            some /= mass * np.float32(n)
            some[mine] -= np.float32(1 / n)
        return total / n

    # -- backward ---------------------------------------------------------------------------------------

    def _backward(self) -> None:
        w, g, dx, dy = self.weights, self.grads, self.dx, self.dy
        np.matmul(self.normal3.T, self.logits, out=g["head"])
        np.matmul(self.logits, w["head"].T, out=dy)
        dx.fill(0)
        _norm_back(dy, w["gain3"], self.unit3, self.scale3, dx, g["gain3"], g["shift3"])
        for i in reversed(range(self.size.layers)):
            np.matmul(self.after[i].T, dx, out=g["down"][i])
            np.matmul(dx, w["down"][i].T, out=self.wide)
            _gelu_back(self.wide, self.before[i], self.turned[i])
            np.matmul(self.normal2[i].T, self.wide, out=g["up"][i])
            np.matmul(self.wide, w["up"][i].T, out=dy)
            _norm_back(dy, w["gain2"][i], self.unit2[i], self.scale2[i], dx, g["gain2"][i], g["shift2"][i])
            np.matmul(self.mixed[i].T, dx, out=g["out"][i])
            np.matmul(dx, w["out"][i].T, out=dy)
            self._attend_back(i)
            np.matmul(self.normal1[i].T, self.dqkv, out=g["qkv"][i])
            np.matmul(self.dqkv, w["qkv"][i].T, out=dy)
            _norm_back(dy, w["gain1"][i], self.unit1[i], self.scale1[i], dx, g["gain1"][i], g["shift1"][i])
        self._embedding_back()

    def _attend_back(self, i: int) -> None:
        """From the gradient of the mixed values in `dy` to that of queries, keys and values in `dqkv`."""
        factor = np.float32(1 / sqrt(self.size.width / self.size.heads))
        for (q, k, v), (dq, dk, dv), p, do in zip(
            self._heads(self.qkv[i]), self._heads(self.dqkv), self.odds[i], self._mixed(self.dy), strict=True
        ):
            ds = do @ v.transpose(0, 2, 1)
            ds -= np.vecdot(ds, p)[..., None]
            ds *= p
            ds *= factor
            np.matmul(p.transpose(0, 2, 1), do, out=dv)
            np.matmul(ds, k, out=dq)
            np.matmul(ds.transpose(0, 2, 1), q, out=dk)

    def _embedding_back(self) -> None:
        g, n = self.grads, self.size
        np.add.reduce(self.dx.reshape(n.batch, n.length, n.width), axis=0, out=g["places"])
        g["tokens"].fill(0)
        for token, row in zip(self.inputs.tolist(), self.dx, strict=True):
            g["tokens"][token] += row

    def _update(self) -> None:
        self.count += 1
        late, decay = np.float32(1 - BETA2**self.count), np.float32(RATE / (1 - BETA1**self.count))
        for w, g, m, v in _pieces(self.weights.flat, self.grads.flat, self.first, self.second):
            m *= np.float32(BETA1)
            m += np.float32(1 - BETA1) * g
            v *= np.float32(BETA2)
            g *= g
            g *= np.float32(1 - BETA2)
            v += g
            root = v / late
            np.sqrt(root, out=root)
            root += np.float32(EPSILON)
            np.divide(m, root, out=root)
            root *= decay
            w -= root


def _norm(x: Array, gain: Array, shift: Array, unit: Array, scale: Array, out: Array) -> None:
    """Layernorm of rows; keeps the normalised rows and what they were scaled by."""
    for rows, u, s, y in _pieces(x, unit, scale, out):
        np.subtract(rows, rows.mean(axis=-1, keepdims=True), out=u)
        s[:, 0] = np.vecdot(u, u)
        s /= np.float32(x.shape[-1])
        s += np.float32(1e-5)
        np.sqrt(s, out=s)
        np.reciprocal(s, out=s)
        u *= s
        np.multiply(u, gain, out=y)
        y += shift


def _norm_back(
    dy: Array, gain: Array, unit: Array, scale: Array, dx: Array, dgain: Array, dshift: Array
) -> None:
    """Adds to `dx`; `dy` is overwritten."""
    dgain.fill(0)
    dshift.fill(0)
    for d, u, s, into in _pieces(dy, unit, scale, dx):
        dshift += np.add.reduce(d, axis=0)
        dgain += np.add.reduce(d * u, axis=0)
        d *= gain
        lean = np.vecdot(d, u)[:, None] / np.float32(u.shape[-1])
        d -= d.mean(axis=-1, keepdims=True)
        d -= u * lean
        d *= s
        into += d


_ROOT, _CUBE = np.float32(sqrt(2 / pi)), np.float32(0.044715)


def _gelu(x: Array, turned: Array, y: Array) -> None:
    """y = x (1 + t) / 2 with t, which is kept, the tanh of sqrt(2/pi) (x + 0.044715 x^3)."""
    for some, t, out in _pieces(x, turned, y):
        np.square(some, out=t)
        t *= _ROOT * _CUBE
        t += _ROOT
        t *= some
        np.tanh(t, out=t)
        np.add(t, np.float32(1), out=out)
        out *= some
        out *= np.float32(0.5)


def _gelu_back(dy: Array, x: Array, turned: Array) -> None:
    """Multiplies `dy` by the slope of gelu, (1 + t)/2 (1 + x (1 - t) u'); `turned` is overwritten."""
    for d, some, t in _pieces(dy, x, turned):
        slope = np.square(some)
        slope *= 3 * _ROOT * _CUBE
        slope += _ROOT
        slope *= some
        d *= np.float32(0.5)
        slope -= slope * t
        slope += np.float32(1)
        d *= slope
        t += np.float32(1)
        d *= t
