"""A procedure as its scan sees it: its operands, each once, and what every instruction does with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wscc.backends.verify.views import Form, Ints, form_of, regular
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code, Column, Instruction, Operand
from wscc.ir.types import DType

DTYPES: Final = tuple(DType)


# What an access does: a read by a kernel or of a message that is sent, a write by a kernel, of a slot that is granted,
# or in place of what the same instruction has read; and the end of a message at its receiver and at its sender.
READ, SEND, WRITE, POST, UPDATE, RECEIVED, SENT = range(7)


@dataclass(frozen=True, slots=True)
class Action:
    """An instruction with numbers of operands, of which the first are `writes`, and its accesses: the kind of each, its
    operand, and its `position` among the operands. A message is known by the kind of its end and its channel, where it
    begins and where it is waited for."""

    x: Instruction
    operands: tuple[int, ...]
    writes: int
    kind: tuple[int, ...]
    operand: tuple[int, ...]
    position: tuple[int, ...]
    message: tuple[int, int] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands in the declaration, writes first."""
        return INSTRUCTIONS[self.x.opcode].names

    @property
    def computes(self) -> bool:
        return self.message is None and bool(self.operands)


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
            found = self._action[id(x)] = _action(x, tuple(map(self._one, (*x.writes, *x.reads))))
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


def _action(x: Instruction, operands: tuple[int, ...]) -> Action:
    match x.opcode:
        case "post":
            return Action(x, operands, 1, (POST,), operands, (0,), (RECEIVED, _channel(x)))
        case "send":
            return Action(x, operands, 0, (SEND,), operands, (0,), (SENT, _channel(x)))
        case "wait":
            end = RECEIVED if x.attr("side") == "received" else SENT
            return Action(x, (), 0, (end,), (), (0,), (end, _channel(x)))
    count = len(x.writes)
    writes, reads = operands[:count], operands[count:]
    adds = "accumulate" in INSTRUCTIONS[x.opcode].attr_names and bool(x.attr("accumulate"))
    added = writes if adds else ()
    kind = [READ] * (len(reads) + len(added)) + [UPDATE if adds or v in reads else WRITE for v in writes]
    position = (*range(count, len(operands)), *range(len(added)), *range(count))
    return Action(x, operands, count, tuple(kind), (*reads, *added, *writes), position)


def _channel(x: Instruction) -> int:
    channel = x.attr("channel")
    assert isinstance(channel, int)
    return channel


@dataclass(frozen=True, slots=True)
class Accesses:
    """The accesses of a procedure in order: the kind of each, its operand, its instruction, and its position among the
    operands there. What is waited for and was never begun is left out."""

    kind: list[int]
    operand: Ints
    instruction: list[int]
    position: list[int]

    @classmethod
    def of(cls, actions: Sequence[Action], local: dict[int, int]) -> Accesses:
        """The accesses of `actions`, where operands are numbered as in `local`."""
        kind: list[int] = []
        operand: list[int] = []
        instruction: list[int] = []
        position: list[int] = []
        begun: dict[tuple[int, int], tuple[int, ...]] = {}
        for i, action in enumerate(actions):
            operands = action.operand
            if (message := action.message) is not None:
                if operands:
                    begun[message] = operands
                elif not (operands := begun.pop(message, ())):
                    continue
            kind += action.kind
            operand += operands
            position += action.position
            instruction += [i] * len(operands)
        return cls(kind, np.array(list(map(local.__getitem__, operand)), np.int64), instruction, position)


@dataclass(frozen=True, slots=True)
class Body:
    """A procedure. The arrays have an entry for each operand: it covers `count` runs of `width` bytes, `stride` apart
    (a count of 0: others), from `low` to `high` from its address; that is `offset`, or the number in a `column` (-1:
    none) of the binding table, from where its `argument` lies (-1: none). `columns` are all columns of addresses.
    Operands of one `kind` differ in their addresses alone. `accesses` have numbers of operands here, as have the
    distinct instructions that are `computing`."""

    code: Code
    actions: tuple[Action, ...]
    computing: tuple[tuple[Action, tuple[int, ...]], ...]
    accesses: Accesses
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
        numbers = dict.fromkeys(n for a in distinct for n in a.operands)
        operands = tuple(table.operands[n] for n in numbers)
        forms = tuple(map(form_of, operands))
        low, high, count, stride, width = _columns([regular(f) for f in forms], 5)
        offset, column, argument = _columns([_address(o) for o in operands], 3)
        local = dict(zip(numbers, range(len(numbers)), strict=True))
        columns = np.unique(column[column >= 0])
        kind = np.array([table.kind(o) for o in operands], np.int64)
        computing = tuple((a, tuple(map(local.__getitem__, a.operands))) for a in distinct if a.computes)
        accesses = Accesses.of(actions, local)
        return cls(
            code, actions, computing, accesses, operands, forms, low, high, count, stride, width, offset, column,
            argument, columns, kind,
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
