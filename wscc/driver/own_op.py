"""Ops of a user's own: one declaration, entered into every table that knows something of an op.

The tables are those of `docs/add-an-op.md`: the row with its index rule, the instructions, the derivative, the
lowering, the kernels, the reference, and the call in the language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.kernels import table as kernels
from wscc.backends.interpreter.kernels.table import Kernel
from wscc.backends.interpreter.kernels.views import declared
from wscc.frontend.builtins import BUILTINS, Builtin
from wscc.ir.op import Op, Value
from wscc.ir.ops import OPS, OpDef
from wscc.ir.streams.instruction_def import InstructionDef
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.passes.differentiate.rules import DERIVATIVES
from wscc.passes.differentiate.tape import Backward
from wscc.passes.lower_collectives.ops import LOWERINGS, one_instruction
from wscc.reference import tape as reference
from wscc.reference.semantics import Semantics

Function = Callable[..., Any]
_BACKWARD: Final = "_bwd"


@dataclass(frozen=True, slots=True)
class OwnOp:
    """An op on operands of one shape, with one result of that shape; `rows`: it needs whole rows of the last dimension.

    `forward(*operands, **options)` gives the result, `backward(*operands, dy, **options)` the gradient of each operand.
    The two of the reference do the same and are written another time, so that a mistake in one of them shows.
    """

    name: str
    arguments: tuple[str, ...]
    forward: Function
    backward: Function
    reference: Function
    reference_backward: Function
    options: Mapping[str, float]
    rows: bool = False


def names_of(name: str) -> tuple[str, str]:
    """The names that an op takes in the tables: its own and that of its backward op."""
    return name, name + _BACKWARD


def is_taken(name: str) -> bool:
    """True if an op, an instruction or an operation of the language has the name."""
    return any(name in table for table in (OPS, INSTRUCTIONS, BUILTINS, reference.SEMANTICS))


def enter(own: OwnOp) -> None:
    """Enter an op into all tables; its names are free."""
    name, backward = names_of(own.name)
    attrs = dict.fromkeys(own.options, float)
    count = len(own.arguments)
    first, more = ("* d!", "* d") if own.rows else ("*", "*")
    operands = ", ".join([first] + [more] * (count - 1))
    OPS[name] = OpDef(name=name, rule=f"{operands} -> {more}", attrs=attrs)
    OPS[backward] = OpDef(
        name=backward,
        rule=f"{operands}, {more} -> {', '.join([more] * count)}",
        attrs=attrs,
        differentiable=False,
    )
    row = "[*,d]" if own.rows else ""
    reads, options = [f"{a}{row}" for a in own.arguments], " ".join(own.options)
    INSTRUCTIONS[name] = InstructionDef(name, f"result{row}", " ".join(reads), options)
    grads = " ".join(f"d{read}" for read in reads)
    INSTRUCTIONS[backward] = InstructionDef(backward, grads, " ".join([*reads, f"dresult{row}"]), options)
    DERIVATIVES[name] = _derivative(backward)
    for opcode in (name, backward):
        LOWERINGS[opcode] = one_instruction(opcode)
    kernels.SEMANTICS[name] = _kernel(own.forward, 1, count, tuple(own.options))
    kernels.SEMANTICS[backward] = _kernel(own.backward, count, count + 1, tuple(own.options))
    reference.SEMANTICS[name] = _semantics(own)
    BUILTINS[name] = Builtin(name, own.arguments, (), tuple(own.options), defaults=own.options, rows=own.rows)


def remove(name: str) -> None:
    """Take an op of a user's own out of all tables."""
    for table in (
        OPS,
        INSTRUCTIONS,
        DERIVATIVES,
        LOWERINGS,
        kernels.SEMANTICS,
        reference.SEMANTICS,
        BUILTINS,
    ):
        for word in names_of(name):
            table.pop(word, None)
    declared.cache_clear()


def _derivative(back: str) -> Callable[[Backward, Sequence[Value | None]], Sequence[Value | None]]:
    """One backward op, of the operands and the gradient of the result."""

    def rule(b: Backward, dys: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = dys
        assert dy is not None
        term, count = b.op.rule.ins[0], len(b.op.operands)
        operands = [*(b.tape.forward(v) for v in b.op.operands), dy]
        dtypes = [b.tape.grad_dtype(v) for v in b.op.operands]
        return b.emit(back, operands, [term] * (count + 1), [term] * count, dtypes, dict(b.op.attrs))

    return rule


def _kernel(function: Function, writes: int, reads: int, options: tuple[str, ...]) -> Kernel:
    """The function as a kernel, which writes its results into its first arguments."""

    def run(*args: Any) -> None:
        results, operands, attrs = args[:writes], args[writes : writes + reads], args[writes + reads :]
        values = function(*operands, **dict(zip(options, attrs, strict=True)))
        for result, value in zip(results, _parts(values, writes), strict=True):
            np.copyto(result, value, casting="same_kind")

    return run


def _parts(values: Any, count: int) -> Sequence[NDArray[Any]]:
    return (values,) if count == 1 and not isinstance(values, tuple | list) else values


def _semantics(own: OwnOp) -> Semantics:
    def options(op: Op) -> dict[str, float]:
        return {name: float(op.attr(name)) for name in own.options}

    def forward(op: Op, xs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        return [np.asarray(own.reference(*xs, **options(op)))]

    def vjp(
        op: Op, xs: Sequence[NDArray[Any]], ys: Sequence[NDArray[Any]], dys: Sequence[NDArray[Any]]
    ) -> Sequence[NDArray[Any] | None]:
        return _parts(own.reference_backward(*xs, dys[0], **options(op)), len(xs))

    return Semantics(forward, vjp)
