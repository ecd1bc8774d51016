"""Translation of a fabric statement to an instruction; integers that differ between dies refer to the binding table."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from wscc.ir.die_arrays import as_array, present
from wscc.ir.fabric import FabricStmt, Kernel, KernelAttr, Post, Send, Transfer, Wait
from wscc.ir.module import Procedure
from wscc.ir.per_die import Ints, PerDie
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Column, Field, Instruction, Operand, Scalar
from wscc.ir.views import View


class Bindings:
    """Collects the columns of the binding table; equal columns become one."""

    def __init__(self, dies: int) -> None:
        self.dies = dies
        self._columns: dict[bytes, int] = {}
        self._linear: dict[tuple[PerDie, int, int], Field] = {}

    def field(self, values: NDArray[np.int64]) -> Field:
        """A constant if the values [dies] are all equal, else the column that holds them."""
        if (values == values[0]).all():
            return int(values[0])
        return Column(self._columns.setdefault(values.tobytes(), len(self._columns)))

    def integer(self, ints: Ints) -> Field:
        """The field of one integer for all dies, or one for each."""
        return ints if isinstance(ints, int) else self.field(as_array(ints, self.dies))

    def linear(self, base: int, ints: Ints, factor: int) -> Field:
        """The field of `base` + `factor` times the integer of each die."""
        if isinstance(ints, int):
            return base + factor * ints
        key = ints, base, factor
        if key not in self._linear:  # operands of all procedures take the same few
            self._linear[key] = self.field(base + as_array(ints, self.dies) * factor)
        return self._linear[key]

    def array(self) -> NDArray[np.int64]:
        """The binding table [dies, columns]."""
        columns = [np.frombuffer(values, np.int64) for values in self._columns]
        return np.stack(columns, axis=1) if columns else np.zeros((self.dies, 0), np.int64)


class Names:
    """The addresses of the names of a procedure: parameters by argument number, locals by address."""

    def __init__(self, procedure: Procedure) -> None:
        self._place: dict[str, tuple[int, int]] = {b.name: (-1, b.address) for b in procedure.buffers}
        # An output that replaces an input has its name, and the call binds both to the same bytes.
        for number, value in enumerate(procedure.arguments):
            self._place.setdefault(value.name, (number, 0))
        self._operands: dict[View, Operand] = {}

    def operand(self, view: View, table: Bindings) -> Operand:
        """The operand for a view on one of the names: one object for equal views, as most are both written and read."""
        if (known := self._operands.get(view)) is not None:
            return known
        arg, base = self._place[view.buffer]
        size = view.dtype.size
        offset = table.linear(base, view.offset, size)
        operand = Operand(arg, offset, view.shape, view.strides, view.dtype)
        return self._operands.setdefault(view, operand)


def participants(stmt: FabricStmt, dies: int) -> Ints:
    """The mask of the dies that execute the statement: 1 on those, else 0."""
    match stmt:
        case Kernel() | Wait():
            return stmt.where
        case Post():
            return present(stmt.sender, dies)
        case Send():
            return present(stmt.to, dies)
        case Transfer():
            raise AssertionError("emit needs a scheduled module")
    assert_never(stmt)


def instruction(stmt: FabricStmt, names: Names, table: Bindings) -> Instruction:
    """The instruction of a statement; columns that it needs are added to `table`."""
    match stmt:
        case Kernel():
            attr_names = tuple(k for k, _ in stmt.attrs)
            assert INSTRUCTIONS[stmt.opcode].takes(attr_names), f"{stmt.opcode} has attributes {attr_names}"
            return Instruction(
                stmt.opcode,
                tuple(names.operand(v, table) for v in stmt.writes),
                tuple(names.operand(v, table) for v in stmt.reads),
                tuple((k, _scalar(v, table)) for k, v in stmt.attrs),
            )
        case Post():
            attrs: tuple[tuple[str, Scalar], ...]
            attrs = (("channel", stmt.channel), ("peer", table.integer(stmt.sender)))
            return Instruction("post", (names.operand(stmt.write, table),), (), attrs)
        case Send():
            attrs = (
                ("channel", stmt.channel),
                ("peer", table.integer(stmt.to)),
                ("route", table.integer(stmt.route)),
            )
            return Instruction("send", (), (names.operand(stmt.read, table),), attrs)
        case Wait():
            side = "sent" if stmt.sent else "received"
            return Instruction("wait", attrs=(("channel", stmt.channel), ("side", side)))
        case Transfer():
            raise AssertionError("emit needs a scheduled module")
    assert_never(stmt)


def _scalar(value: KernelAttr, table: Bindings) -> Scalar:
    return table.integer(value) if isinstance(value, PerDie) else value
