"""One procedure on one die, its arguments as formals: hazards inside it, and what it needs and leaves.

Every write makes an *object* of its bytes. Bytes that nothing wrote may not be read. A write over a part of an
object, and over bytes beside it, ends the object: memory has been given to something else, and what is left of the
object may not be read either. So two live buffers that share bytes are found without being told of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.cells import Cells, Grid, equal, meet, size, within
from wscc.backends.verify.views import Ints, Runs, repeats, view_runs
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code, Instruction, Operand, resolve
from wscc.ir.types import DType

LOCAL: Final = -1
DTYPES: Final = tuple(DType)
UNWRITTEN: Final = 0
_ANY: Final = -1
_GRANTED: Final = 1 << 14

# (space of the argument, bytes to add to its offsets): arguments that share memory share a space.
Where = tuple[tuple[int, int], ...]
Range = tuple[int, int, int, int]
Tell = Callable[[int, str], None]


def apart(args: int) -> Where:
    """Arguments that have nothing in common."""
    return tuple((n, 0) for n in range(args))


@dataclass(frozen=True, slots=True)
class Summary:
    """Ranges as (space, start, end, number in `DTYPES`): those read before they are written, those written when the
    procedure ends, and those that it has destroyed (of no element type); `own` are the procedure's own bytes."""

    needs: tuple[Range, ...]
    leaves: tuple[Range, ...]
    loses: tuple[Range, ...]
    own: tuple[tuple[int, int], ...]


def operands(x: Instruction) -> Iterator[tuple[str, Operand]]:
    """Writes first, each with its name in the declaration."""
    return zip(INSTRUCTIONS[x.opcode].names, (*x.writes, *x.reads), strict=True)


def accumulates(x: Instruction) -> bool:
    """Whether it adds to what it writes."""
    return "accumulate" in INSTRUCTIONS[x.opcode].attr_names and bool(x.attr("accumulate"))


def summarise(code: Code, row: Ints, where: Where, tell: Tell) -> Summary:
    """Go through the procedure on the die with this row of the binding table; `tell` gets the number of an
    instruction and what is wrong with it."""
    return _Scan(code, row, where, tell).summary()


class _Scan:
    """What is known of every cell while the procedure runs: the object that it holds and who is busy with it."""

    def __init__(self, code: Code, row: Ints, where: Where, tell: Tell) -> None:
        self.code, self.tell = code, tell
        keys = [_place(o, row, where) for x in code.body for _, o in operands(x)]
        placed = {key: _runs(*key) for key in keys}
        self.grid = Grid((key[0], runs) for key, runs in placed.items())
        cells = {key: self.grid.cells(key[0], runs) for key, runs in placed.items()}
        count = self.grid.count
        self.touched = np.zeros(count, np.int8)
        for c in cells.values():
            self.touched[c] = 1
        self.cells = iter([cells[key] for key in keys])
        self.holds = np.zeros(count, np.int32)
        self.busy = np.zeros(count, np.int16)
        self.needs = np.zeros(count, np.int8)
        self.objects: list[Cells] = [slice(0, 0)]
        self.alive = [0]
        self.kinds = [_ANY]
        for space in self.grid.spaces:
            if space != LOCAL:
                self._new(self.grid.whole(space), _ANY)
        self.given = len(self.objects) - 1
        self.received: dict[int, tuple[Cells, int]] = {}
        self.sent: dict[int, Cells] = {}

    def summary(self) -> Summary:
        for i, x in enumerate(self.code.body):
            named = [(name, o, next(self.cells)) for name, o in operands(x)]
            match x.opcode:
                case "post":
                    ((_, o, cells),) = named
                    self.write(i, "slot", o, cells)
                    self.busy[cells] = _GRANTED
                    self.received[_channel(x)] = cells, DTYPES.index(o.dtype)
                case "send":
                    ((_, o, cells),) = named
                    self.read(i, "x", o, cells)
                    self.busy[cells] += 1
                    self.sent[_channel(x)] = cells
                case "wait":
                    self._wait(x)
                case _:
                    self._compute(i, x, named)
        return self._result()

    def _compute(self, i: int, x: Instruction, named: Sequence[tuple[str, Operand, Cells]]) -> None:
        writes, reads = named[: len(x.writes)], named[len(x.writes) :]
        for name, o, cells in (*reads, *(writes if accumulates(x) else ())):
            self.read(i, name, o, cells)
        for n, (name, o, cells) in enumerate(writes):
            if repeats(o):
                self.tell(i, f"`{name}` is written, and two elements of it share bytes")
            clashes = [other for other, _, theirs in writes[:n] if meet(cells, theirs)]
            clashes += [other for other, p, theirs in reads if _clash(x.opcode, (o, cells), (p, theirs))]
            for other in clashes:
                self.tell(i, f"`{name}` is written over `{other}`")
            self.write(i, name, o, cells)

    def _wait(self, x: Instruction) -> None:
        channel = _channel(x)
        if x.attr("side") == "received" and channel in self.received:
            cells, _ = self.received.pop(channel)
            self.busy[cells] = 0
        elif x.attr("side") == "sent" and channel in self.sent:
            self.busy[self.sent.pop(channel)] -= 1

    def read(self, i: int, name: str, o: Operand, cells: Cells) -> None:
        """An operand is read: its bytes must be written, by one element type, and no slot under way."""
        if not size(cells):
            return
        held, kind = self.holds[cells], DTYPES.index(o.dtype)
        low, high = int(held.min()), int(held.max())
        if int(self.busy[cells].max()) >= _GRANTED:
            self.tell(i, f"`{name}` reads a slot whose message has not been waited for")
        if low <= UNWRITTEN:
            self._tell_unwritten(i, name, cells, held)
        elif low <= self.given:
            mine = held <= self.given
            self.needs[cells] = np.where(mine & (self.needs[cells] == 0), kind + 1, self.needs[cells])
        kinds = {self.kinds[h] for h, _ in _counted(held, low, high) if h > 0}
        if wrong := kinds - {kind, _ANY}:
            self.tell(i, f"`{name}` reads as {o.dtype} what was written as {DTYPES[min(wrong)]}")

    def _tell_unwritten(self, i: int, name: str, cells: Cells, held: NDArray[np.int32]) -> None:
        bad = np.flatnonzero(held <= UNWRITTEN)
        first, who = int(bad[0]), int(held[bad[0]])
        cell = first + cells.start if isinstance(cells, slice) else int(cells[first])
        why = "that nothing has written"
        if who != UNWRITTEN:
            why = f"of a value that instruction {-who - 1} has overwritten in part"
        self.tell(i, f"`{name}` reads bytes from {self.grid.address(cell)} on {why}")
        held[bad] = self._new(slice(0, 0), _ANY)  # told once
        self.holds[cells] = held

    def write(self, i: int, name: str, o: Operand, cells: Cells) -> None:
        """An operand is written: nobody may be busy with its bytes, and it ends what it covers in part."""
        if not size(cells):
            return
        held, busy = self.holds[cells], int(self.busy[cells].max())
        if busy >= _GRANTED:
            self.tell(i, f"`{name}` overwrites a slot that is granted to a message")
        elif busy:
            self.tell(i, f"`{name}` overwrites bytes of a message that has not been waited for")
        low, high = int(held.min()), int(held.max())
        for old, n in _counted(held, low, high):
            if old > self.given:
                self.alive[old] -= n
                if self.alive[old] > 0 and not within(cells, self.objects[old]):
                    self._end(i, old)
        self._new(cells, DTYPES.index(o.dtype))

    def _end(self, i: int, old: int) -> None:
        rest = self.objects[old]
        held = self.holds[rest]
        held[held == old] = -i - 1
        self.holds[rest] = held
        self.alive[old] = 0

    def _new(self, cells: Cells, kind: int) -> int:
        number = len(self.objects)
        self.objects.append(cells)
        self.kinds.append(kind)
        self.alive.append(size(cells))
        self.holds[cells] = number
        return number

    def _result(self) -> Summary:
        kinds = np.array(self.kinds, np.int8)
        own = self.holds > self.given
        leaves = np.where(own, kinds[np.maximum(self.holds, 0)] + 1, 0).astype(np.int8)
        loses = (self.holds < 0).astype(np.int8)
        local = [r for s in self.grid.spaces if s == LOCAL for r in self.grid.ranges(s, self.touched)]
        return Summary(
            self._ranges(self.needs),
            self._ranges(leaves),
            self._ranges(loses),
            tuple((a, b) for a, b, _ in local),
        )

    def _ranges(self, mark: NDArray[np.int8]) -> tuple[Range, ...]:
        return tuple(
            (s, a, b, v - 1) for s in self.grid.spaces if s != LOCAL for a, b, v in self.grid.ranges(s, mark)
        )


# Space, offset, and a view at offset 0.
_Place = tuple[int, int, tuple[int, ...], tuple[int, ...], int]


def _place(o: Operand, row: Ints, where: Where) -> _Place:
    space, more = where[o.arg] if o.arg >= 0 else (LOCAL, 0)
    return space, int(resolve(o.offset, row)) + more, o.shape, o.strides, o.dtype.size


def _runs(_: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Runs:
    starts, ends = view_runs(shape, strides, item)
    return starts + offset, ends + offset


def _counted(held: NDArray[np.int32], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Each of the objects from `low` to `high` that is there, and how often."""
    if low == high:
        yield low, len(held)
    else:
        counts = np.bincount(held - low)
        there = np.flatnonzero(counts)
        yield from zip((there + low).tolist(), counts[there].tolist(), strict=True)


def _channel(x: Instruction) -> int:
    channel = x.attr("channel")
    assert isinstance(channel, int)
    return channel


def _clash(opcode: str, write: tuple[Operand, Cells], read: tuple[Operand, Cells]) -> bool:
    """Whether an operand must not be written where the other is read: the very same view is fine element by
    element; in a product nothing is."""
    (o, cells), (p, theirs) = write, read
    if not meet(cells, theirs):
        return False
    return opcode == "gemm" or (o.shape, o.strides) != (p.shape, p.strides) or not equal(cells, theirs)
