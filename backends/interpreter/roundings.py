"""Checked mode, of numbers: what an instruction stores is what f64 makes of the same operands, rounded once.

One rounding too many in a computation in bf16 is not to be told from the result of a step: those after it are as large.
It is to be told where it happens. Each instruction runs in f64 beside itself, on what it has read. An element that it
writes may be off by half a unit in the last place of its type, and all of them together, in the 2-norm, by what
arithmetic in f32 takes beyond that: u (16 + sqrt n), for sums of n terms, of their norm; or where they are small
differences of large numbers, of how far they move with their operands. f32 has u = 2^-24 and right programs take some
2^-25; one rounding to bf16 more takes 2^-10.

Norms add up squares in f32: of rows beyond 2^60 these leave its range, which is no rounding, and nothing is said: such
a run diverges. Instructions that have only f64 are left to the comparison with one device, updates of weights to
`wscc.reference.update`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np

from wscc.backends.interpreter.binding import MESSAGES, DieMemory, Template
from wscc.backends.interpreter.kernels.scratch import Array
from wscc.backends.interpreter.kernels.table import SEMANTICS
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.diagnostics import Code, fail
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.types import DType

_FEW: Final = 16  # roundings in a row, of what sums nothing
_DRAWS: Final = 4
_DEVIATIONS: Final = 4.0
_LEAST_EXPONENT: Final = {DType.F64: -1022, DType.F32: -126, DType.BF16: -126}
_LOST: Final = 2.0**-140  # of an element: what lies below the least numbers of f32 may be 0
_LARGE: Final = 2.0**60
_SQUARE: Final = frozenset({"layernorm", "layernorm_bwd", "rmsnorm", "rmsnorm_bwd"})
# Operands in whose own rounding an instruction looks for what they mean.
_KEPT: Final = frozenset({("rowmean", "p")})


def with_f64_beside(t: Template, memory: DieMemory, args: tuple[int, ...], inner: Prepared) -> Prepared:
    """The prepared instruction of a call with these arguments, which raises `CompileError` W504 where it rounds more
    than its types say."""
    row, types = INSTRUCTIONS[t.opcode], tuple(DType.of(p.dtype) for p in t.places)
    has_f64_alone = all(d in (DType.F64, DType.I32) for d in types)
    if t.opcode in MESSAGES or row.updates or has_f64_alone:
        return inner
    wide = tuple(d.is_float and (t.opcode, n) not in _KEPT for d, n in zip(types, row.names, strict=True))
    views, attrs = tuple(memory.views(t, args)), tuple(memory.attrs(t))
    return _Beside(t.opcode, t.writes, views, types, wide, attrs).run, inner


@dataclass(frozen=True, slots=True, eq=False)
class _Beside:
    """An instruction on one die: its operands, their types, which of them f64 is to hold, and its attributes."""

    opcode: str
    writes: int
    views: tuple[Array, ...]
    types: tuple[DType, ...]
    wide: tuple[bool, ...]
    attrs: tuple[Any, ...]

    def run(self, run: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Run it, and compare."""
        before = [
            np.array(v, np.float64 if wide else v.dtype)
            for v, wide in zip(self.views, self.wide, strict=True)
        ]
        exact = self._exact(before)
        run(*args)
        for i in range(self.writes):
            if self.types[i].is_float:
                self._compare(i, exact[i], before)

    def _exact(self, operands: list[Array]) -> list[Array]:
        """What it writes in f64."""
        copies = [x.copy() if i < self.writes else x for i, x in enumerate(operands)]
        SEMANTICS[self.opcode](*copies, *self.attrs)
        return copies[: self.writes]

    def _compare(self, i: int, exact: Array, before: list[Array]) -> None:
        off = excess(self.views[i], exact, self.types[i])
        if off <= _LOST:
            return
        slack = DType.F32.roundoff * (_FEW + sqrt(self._terms(i)))
        limit = slack * _norm(exact) + _LOST * sqrt(exact.size)
        if off > limit:
            limit = max(limit, _DEVIATIONS * self._movement(i, exact, before, slack))
        if off > limit and not self._overflows(before[self.writes :]):
            name, dtype = INSTRUCTIONS[self.opcode].names[i], self.types[i]
            raise fail(
                Code.CHECK,
                f"`{self.opcode}` rounds more than once: `{name}`, in {dtype}, is {off / _norm(exact):.1e} of its size"
                f" beyond what rounding to {dtype} makes of it, and arithmetic in f32 takes {limit / _norm(exact):.1e}",
            )

    def _overflows(self, reads: list[Array]) -> bool:
        return self.opcode in _SQUARE and any(_largest(x) > _LARGE for x in reads)

    def _terms(self, i: int) -> int:
        """At most so many terms are added up for an element of operand `i`."""
        return max(
            max((*x.shape[:1], *x.shape[-1:], x.size // max(self.views[i].size, 1)), default=1)
            for x in self.views[self.writes :] or self.views
        )

    def _movement(self, i: int, exact: Array, before: list[Array], slack: float) -> float:
        """How far operand `i` moves, in the root mean square of draws, with operands that move by up to `slack`."""
        random, squares = np.random.default_rng(0), 0.0
        for _ in range(_DRAWS):
            moved = [
                np.asarray(x * (1 + slack * random.uniform(-1, 1, x.shape))) if wide else x
                for x, wide in zip(before, self.wide, strict=True)
            ]
            squares += _norm(self._exact(moved)[i] - exact) ** 2
        return sqrt(squares / _DRAWS)


def excess(got: Array, exact: Array, dtype: DType) -> float:
    """The 2-norm of what the finite elements of `got` are off from `exact` beyond half a unit in the last place."""
    off = np.abs(got - exact)
    if not off.any():
        return 0.0
    exponents = np.maximum(np.frexp(exact)[1] - 1, _LEAST_EXPONENT[dtype])
    return _norm(np.maximum(off - np.ldexp(1.0, exponents - dtype.precision), 0))


def _norm(x: Array) -> float:
    """The 2-norm of the finite elements."""
    return float(np.linalg.norm(x[np.isfinite(x)]))


def _largest(x: Array) -> float:
    """The largest magnitude of the finite elements."""
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
