"""One training step of a small GPT by hand, in one process: what the interpreter's speed is compared with.

The model of `gpt.wsl` without its strategy: layernorm, causal attention, tanh GELU, no biases in the linear layers,
an untied head, the mean cross entropy of all tokens, AdamW without decay, everything in f32. It is what one writes
in NumPy who knows it: whole arrays, sums and scalings in place where that costs no thought, BLAS on all cores for
every product; no memory set aside beforehand and nothing cut to the size of a cache (`tuned.py` does that).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = dict[str, Array]

RATE, BETA1, BETA2, EPSILON = 3e-4, 0.9, 0.95, 1e-8


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a model and of its batch (sequences)."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    length: int
    batch: int

    @property
    def settings(self) -> tuple[str, ...]:
        """What `--set` makes `gpt.wsl` this size with."""
        named = {
            "layers": self.layers, "d": self.width, "heads": self.heads, "ffn": self.hidden,
            "vocab": self.vocabulary, "seq": self.length,
        }  # fmt: skip
        return (f"train.batch={self.batch}", *(f"model.{name}={n}" for name, n in named.items()))


SIZES: Final = {
    "S": Size(layers=4, width=256, heads=8, hidden=1024, vocabulary=512, length=128, batch=16),
    "M": Size(layers=8, width=512, heads=8, hidden=2048, vocabulary=4096, length=256, batch=16),
}


def initial_weights(n: Size, random: np.random.Generator) -> Tensors:
    """Names of a layer's tensors end with its number."""
    d = n.width
    made = {"tokens": _matrix(random, n.vocabulary, d), "places": _matrix(random, n.length, d)}
    made["tokens"] *= 10
    for i in range(n.layers):
        made |= {
            f"gain1.{i}": np.ones(d, np.float32), f"shift1.{i}": np.zeros(d, np.float32),
            f"qkv.{i}": _matrix(random, d, 3 * d), f"out.{i}": _matrix(random, d, d),
            f"gain2.{i}": np.ones(d, np.float32), f"shift2.{i}": np.zeros(d, np.float32),
            f"up.{i}": _matrix(random, d, n.hidden), f"down.{i}": _matrix(random, n.hidden, d),
        }  # fmt: skip
    made |= {"gain3": np.ones(d, np.float32), "shift3": np.zeros(d, np.float32)}
    return made | {"head": _matrix(random, d, n.vocabulary)}


def _matrix(random: np.random.Generator, rows: int, columns: int) -> Array:
    return random.standard_normal((rows, columns), np.float32) / np.float32(sqrt(rows))


class Training:
    """A model with its optimizer; `step` trains on the same random batch every time and returns the loss."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        self.size = size
        random = np.random.default_rng(seed)
        self.weights = initial_weights(size, random)
        self.first = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.count = 0
        text = random.integers(0, size.vocabulary, (size.batch, size.length + 1))
        self.inputs, self.labels = text[:, :-1].reshape(-1), text[:, 1:].reshape(-1)
        self.future = np.triu(np.full((size.length, size.length), -1e9, np.float32), 1)

    def step(self) -> float:
        """Forward, backward, update."""
        w = self.weights
        x = w["tokens"][self.inputs] + np.tile(w["places"], (self.size.batch, 1))
        saved = []
        for i in range(self.size.layers):
            x, kept = self._layer(i, x)
            saved.append(kept)
        hidden, kept3 = _norm(x, w["gain3"], w["shift3"])
        loss, dlogits = _cross_entropy(hidden @ w["head"], self.labels)
        grads = {"head": hidden.T @ dlogits}
        dx, grads["gain3"], grads["shift3"] = _norm_back(dlogits @ w["head"].T, w["gain3"], kept3)
        for i in reversed(range(self.size.layers)):
            dx = self._layer_back(i, dx, saved.pop(), grads)
        grads["places"] = dx.reshape(self.size.batch, self.size.length, -1).sum(axis=0)
        grads["tokens"] = np.zeros_like(w["tokens"])
        np.add.at(grads["tokens"], self.inputs, dx)
        self._update(grads)
        return loss

    def _layer(self, i: int, x: Array) -> tuple[Array, tuple[Any, ...]]:
        w = self.weights
        y1, kept1 = _norm(x, w[f"gain1.{i}"], w[f"shift1.{i}"])
        mixed, attended = self._attend(y1 @ w[f"qkv.{i}"])
        x = x + mixed @ w[f"out.{i}"]
        y2, kept2 = _norm(x, w[f"gain2.{i}"], w[f"shift2.{i}"])
        before = y2 @ w[f"up.{i}"]
        after, turned = _gelu(before)
        x = x + after @ w[f"down.{i}"]
        return x, (y1, kept1, attended, mixed, y2, kept2, before, turned, after)

    def _layer_back(self, i: int, dx: Array, saved: tuple[Any, ...], grads: Tensors) -> Array:
        w = self.weights
        y1, kept1, attended, mixed, y2, kept2, before, turned, after = saved
        grads[f"down.{i}"] = after.T @ dx
        wide = _gelu_back(dx @ w[f"down.{i}"].T, before, turned)
        grads[f"up.{i}"] = y2.T @ wide
        back, grads[f"gain2.{i}"], grads[f"shift2.{i}"] = _norm_back(
            wide @ w[f"up.{i}"].T, w[f"gain2.{i}"], kept2
        )
        dx += back
        grads[f"out.{i}"] = mixed.T @ dx
        dqkv = self._attend_back(dx @ w[f"out.{i}"].T, attended)
        grads[f"qkv.{i}"] = y1.T @ dqkv
        back, grads[f"gain1.{i}"], grads[f"shift1.{i}"] = _norm_back(
            dqkv @ w[f"qkv.{i}"].T, w[f"gain1.{i}"], kept1
        )
        dx += back
        return dx

    def _attend(self, qkv: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        n = self.size
        heads = qkv.reshape(n.batch, n.length, 3, n.heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = np.ascontiguousarray(heads)
        odds = q @ k.swapaxes(-1, -2)
        odds *= self._factor
        odds += self.future
        odds -= odds.max(axis=-1, keepdims=True)
        np.exp(odds, out=odds)
        odds /= odds.sum(axis=-1, keepdims=True)
        mixed = (odds @ v).swapaxes(1, 2).reshape(n.batch * n.length, n.width)
        return mixed, (q, k, v, odds)

    def _attend_back(self, dmixed: Array, attended: tuple[Array, Array, Array, Array]) -> Array:
        n = self.size
        q, k, v, odds = attended
        do = np.ascontiguousarray(dmixed.reshape(n.batch, n.length, n.heads, -1).swapaxes(1, 2))
        ds = do @ v.swapaxes(-1, -2)
        ds -= np.vecdot(ds, odds)[..., None]
        ds *= odds
        ds *= self._factor
        dqkv = np.empty((n.batch, n.length, 3, n.heads, n.width // n.heads), np.float32)
        dqkv[:, :, 0] = (ds @ k).swapaxes(1, 2)
        dqkv[:, :, 1] = (ds.swapaxes(-1, -2) @ q).swapaxes(1, 2)
        dqkv[:, :, 2] = (odds.swapaxes(-1, -2) @ do).swapaxes(1, 2)
        return dqkv.reshape(n.batch * n.length, 3 * n.width)

    @property
    def _factor(self) -> np.float32:
        return np.float32(1 / sqrt(self.size.width / self.size.heads))

    def _update(self, grads: Tensors) -> None:
        self.count += 1
        late, decay = np.float32(1 - BETA2**self.count), np.float32(RATE / (1 - BETA1**self.count))
        for name, w in self.weights.items():
            g, m, v = grads[name], self.first[name], self.second[name]
            m *= np.float32(BETA1)
            m += np.float32(1 - BETA1) * g
            v *= np.float32(BETA2)
            g *= g
            g *= np.float32(1 - BETA2)
            v += g
            root = np.sqrt(v / late)
            root += np.float32(EPSILON)
            np.divide(m, root, out=root)
            root *= decay
            w -= root


def _norm(x: Array, gain: Array, shift: Array) -> tuple[Array, tuple[Array, Array]]:
    """Layernorm of rows; keeps the normalised rows and what they were scaled by."""
    unit = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt(np.vecdot(unit, unit)[:, None] / np.float32(x.shape[-1]) + np.float32(1e-5))
    unit *= scale
    return unit * gain + shift, (unit, scale)


def _norm_back(dy: Array, gain: Array, kept: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    unit, scale = kept
    dx = dy * gain
    lean = np.vecdot(dx, unit)[:, None] / np.float32(unit.shape[-1])
    dx -= dx.mean(axis=-1, keepdims=True)
    dx -= unit * lean
    dx *= scale
    return dx, np.einsum("td,td->d", dy, unit), dy.sum(axis=0)


_ROOT, _CUBE = np.float32(sqrt(2 / pi)), np.float32(0.044715)


def _gelu(x: Array) -> tuple[Array, Array]:
    """x (1 + t) / 2, and t, the tanh of sqrt(2/pi) (x + 0.044715 x^3)."""
    turned = x * x
    turned *= _CUBE
    turned += np.float32(1)
    turned *= x
    turned *= _ROOT
    np.tanh(turned, out=turned)
    y = turned + np.float32(1)
    y *= x
    y *= np.float32(0.5)
    return y, turned


def _gelu_back(dy: Array, x: Array, turned: Array) -> Array:
    """dy times the slope, (1 + t)/2 + x (1 - t^2) u' / 2."""
    slope = x * x
    slope *= 3 * _CUBE
    slope += np.float32(1)
    slope *= x
    slope *= _ROOT
    rest = turned * turned
    np.subtract(np.float32(1), rest, out=rest)
    slope *= rest
    slope += turned
    slope += np.float32(1)
    slope *= np.float32(0.5)
    slope *= dy
    return slope


def _cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """The mean over the rows, and its gradient, which overwrites the logits."""
    n = len(labels)
    mine = np.arange(n), labels
    logits -= logits.max(axis=-1, keepdims=True)
    hit = logits[mine]
    np.exp(logits, out=logits)
    mass = logits.sum(axis=-1, keepdims=True)
    loss = float((np.log(mass[:, 0]) - hit).mean())
    logits /= mass * np.float32(n)
    logits[mine] -= np.float32(1 / n)
    return loss, logits
