"""A procedure as its scan sees it: its operands, each once, and what every instruction does with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

from wscc.backends.verify.views import Form, Ints, form_of, regular
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code, Column, Instruction, Operand
from wscc.ir.types import DType

DTYPES: Final = tuple(DType)


class Act(IntEnum):
    """What an instruction does: a kernel, or a part of a message."""

    COMPUTE = 0
    POST = 1
    SEND = 2
    RECEIVED = 3
    SENT = 4
    NOTHING = 5


@dataclass(frozen=True, slots=True)
class Action:
    """An instruction with numbers of operands. `in_place` says of each write that what is written was read."""

    act: Act
    x: Instruction
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    in_place: tuple[bool, ...] = ()
    accumulates: bool = False
    channel: int = -1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands in the declaration, writes first."""
        return INSTRUCTIONS[self.x.opcode].names


@dataclass(slots=True)
class Actions:
    """The actions and operands of a program, which its procedures have in common. The program must be kept."""

    operands: list[Operand] = field(default_factory=list)
    _action: dict[int, Action] = field(default_factory=dict)  # by id of the instruction
    _number: dict[int, int] = field(default_factory=dict)  # by id of the operand
    _numbers: dict[Operand, int] = field(default_factory=dict)
    _kinds: dict[tuple[int, Form, DType], int] = field(default_factory=dict)

    def of(self, x: Instruction) -> Action:
        """The action of an instruction, with numbers of `operands`."""
        found = self._action.get(id(x))
        if found is None:
            found = self._action[id(x)] = _action(x, *(tuple(map(self._one, o)) for o in (x.writes, x.reads)))
        return found

    def kind(self, o: Operand) -> int:
        """The number of what an operand is without its address."""
        return self._kinds.setdefault((o.arg, form_of(o), o.dtype), len(self._kinds))

    def _one(self, o: Operand) -> int:
        number = self._number.get(id(o))
        if number is None:
            number = self._number[id(o)] = self._numbers.setdefault(o, len(self._numbers))
            if number == len(self.operands):
                self.operands.append(o)
        return number


def _action(x: Instruction, writes: tuple[int, ...], reads: tuple[int, ...]) -> Action:
    match x.opcode:
        case "post" | "send":
            act = Act.POST if x.opcode == "post" else Act.SEND
            return Action(act, x, writes, reads, channel=_channel(x))
        case "wait":
            return Action(
                Act.RECEIVED if x.attr("side") == "received" else Act.SENT, x, (), (), channel=_channel(x)
            )
        case "delay":
            return Action(Act.NOTHING, x, (), ())
    adds = "accumulate" in INSTRUCTIONS[x.opcode].attr_names and bool(x.attr("accumulate"))
    return Action(Act.COMPUTE, x, writes, reads, tuple(adds or w in reads for w in writes), adds)


def _channel(x: Instruction) -> int:
    channel = x.attr("channel")
    assert isinstance(channel, int)
    return channel


@dataclass(frozen=True, slots=True)
class Body:
    """A procedure. The arrays have an entry for each operand: it covers `count` runs of `width` bytes, `stride` apart
    (a count of 0: others), from `low` to `high` from its address; that is `offset`, or the number in a `column` (-1:
    none) of the binding table, from where its `argument` lies (-1: none). `columns` are all columns of addresses.
    Operands of one `kind` differ in their addresses alone. `local` has the number here of each operand of the
    program."""

    code: Code
    actions: tuple[Action, ...]
    local: dict[int, int]
    operands: tuple[Operand, ...]
    forms: tuple[Form, ...]
    low: Ints
    high: Ints
    count: Ints
    stride: Ints
    width: Ints
    offset: Ints
    column: Ints
    argument: Ints
    columns: Ints
    kind: Ints

    @classmethod
    def of(cls, code: Code, table: Actions) -> Body:
        actions = tuple(map(table.of, code.body))
        distinct = {id(a): a for a in actions}.values()
        numbers = dict.fromkeys(n for a in distinct for n in (*a.writes, *a.reads))
        operands = tuple(table.operands[n] for n in numbers)
        forms = tuple(map(form_of, operands))
        low, high, count, stride, width = _columns([regular(f) for f in forms], 5)
        offset, column, argument = _columns([_address(o) for o in operands], 3)
        local = dict(zip(numbers, range(len(numbers)), strict=True))
        columns = np.unique(column[column >= 0])
        kind = np.array([table.kind(o) for o in operands], np.int64)
        return cls(
            code, actions, local, operands, forms, low, high, count, stride, width, offset, column, argument, columns,
            kind,
        )  # fmt: skip

    def offsets(self, row: Ints) -> Ints:
        """The offset of each operand on the die with this row of the binding table."""
        offsets = self.offset.copy()
        differs = self.column >= 0
        offsets[differs] = row[self.column[differs]]
        return offsets

    def extents(self, offsets: Ints) -> tuple[tuple[tuple[int, int], ...], tuple[int, int]]:
        """The bytes (low, high) that are accessed from the address of each argument, and those of the locals."""
        ends = np.zeros((self.code.args + 1, 2), np.int64)  # argument -1 stands for locals
        some = self.high > self.low
        for arg in np.unique(self.argument[some]).tolist():
            mine = some & (self.argument == arg)
            ends[arg] = (offsets + self.low)[mine].min(), (offsets + self.high)[mine].max()
        spans = [(low, high) for low, high in ends.tolist()]
        return tuple(spans[:-1]), spans[-1]


def _address(o: Operand) -> tuple[int, int, int]:
    return (0, o.offset.index, o.arg) if isinstance(o.offset, Column) else (o.offset, -1, o.arg)


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> Sequence[Ints]:
    return tuple(np.array(rows, np.int64).reshape(-1, count).T.copy())
