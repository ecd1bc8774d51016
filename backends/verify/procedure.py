"""Hazards inside one procedure on one die, and a summary of the bytes that it needs, leaves and destroys.

Every write makes an *object* of its bytes. Unwritten bytes may not be read. A write over a part of an object, and
over bytes beside it, ends the object: its memory has been given to another value, and the rest of the object may not
be read either. So two live buffers that share bytes are found without a list of buffers. A write in place (`x += y`)
changes what it has just read, which is no new value: all objects in it live on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.intervals import Grid, Intervals, equal, overlap, size, within
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
Sharing = tuple[tuple[int, int], ...]
Range = tuple[int, int, int, int]
Tell = Callable[[int, str], None]


def apart(args: int) -> Sharing:
    """The sharing of `args` arguments that share no memory."""
    return tuple((n, 0) for n in range(args))


@dataclass(frozen=True, slots=True)
class Summary:
    """Ranges as (space, start, end, number in `DTYPES`): those read before they are written, those that hold a value
    when the procedure ends, and those that it destroys (of no element type); `local` are ranges of its local bytes."""

    needs: tuple[Range, ...]
    leaves: tuple[Range, ...]
    loses: tuple[Range, ...]
    local: tuple[tuple[int, int], ...]


def operands(x: Instruction) -> Iterator[tuple[str, Operand]]:
    """The operands, writes first, each with its name in the declaration."""
    return zip(INSTRUCTIONS[x.opcode].names, (*x.writes, *x.reads), strict=True)


def accumulates(x: Instruction) -> bool:
    """True if the instruction adds to the operand that it writes."""
    return "accumulate" in INSTRUCTIONS[x.opcode].attr_names and bool(x.attr("accumulate"))


def summarise(code: Code, row: Ints, sharing: Sharing, tell: Tell) -> Summary:
    """The summary of the procedure on the die with this row of the binding table; `tell` is called with the number of
    an instruction and the text of an error in it."""
    return _Scan(code, row, sharing, tell).summary()


class _Scan:
    """The state of every interval while the procedure runs: the object in it (`holds`; negative: destroyed by that
    instruction) and the messages that use it (`busy`)."""

    def __init__(self, code: Code, row: Ints, sharing: Sharing, tell: Tell) -> None:
        self.code, self.tell = code, tell
        keys = [_place(o, row, sharing) for x in code.body for _, o in operands(x)]
        placed = {key: _runs(*key) for key in keys}
        self.grid = Grid((key[0], runs) for key, runs in placed.items())
        intervals = {key: self.grid.intervals(key[0], runs) for key, runs in placed.items()}
        count = self.grid.count
        self.accessed = np.zeros(count, np.int8)
        for c in intervals.values():
            self.accessed[c] = 1
        self.intervals = iter([intervals[key] for key in keys])
        self.holds = np.zeros(count, np.int32)
        self.busy = np.zeros(count, np.int16)
        self.needs = np.zeros(count, np.int8)
        self.objects: list[Intervals] = [slice(0, 0)]
        self.alive = [0]
        self.kinds = [_ANY]
        for space in self.grid.spaces:
            if space != LOCAL:
                self._new(self.grid.whole(space), _ANY)
        self.last_argument = len(self.objects) - 1
        # By object, the argument whose value it is, of arguments that lie among the locals and of all that is written.
        are_near = any(space == LOCAL for space, _ in sharing)
        among_locals = self._among_locals(keys, intervals) if are_near else ()
        self.argument_of = {self._new(near, _ANY): arg for arg, near in among_locals}
        self.handed = list(self.argument_of)
        self.received: dict[int, tuple[Intervals, int]] = {}
        self.sent: dict[int, Intervals] = {}

    def summary(self) -> Summary:
        for i, x in enumerate(self.code.body):
            named = [(name, o, next(self.intervals)) for name, o in operands(x)]
            match x.opcode:
                case "post":
                    ((_, o, intervals),) = named
                    self.write(i, "slot", o, intervals)
                    self.busy[intervals] = _GRANTED
                    self.received[_channel(x)] = intervals, DTYPES.index(o.dtype)
                case "send":
                    ((_, o, intervals),) = named
                    self.read(i, "x", o, intervals)
                    self.busy[intervals] += 1
                    self.sent[_channel(x)] = intervals
                case "wait":
                    self._wait(x)
                case _:
                    self._compute(i, x, named)
        return self._result()

    def _compute(self, i: int, x: Instruction, named: Sequence[tuple[str, Operand, Intervals]]) -> None:
        writes, reads = named[: len(x.writes)], named[len(x.writes) :]
        for name, o, intervals in (*reads, *(writes if accumulates(x) else ())):
            self.read(i, name, o, intervals)
        for n, (name, o, intervals) in enumerate(writes):
            if repeats(o):
                self.tell(i, f"`{name}` is written, and two elements of it share bytes")
            conflicts = [other for other, _, theirs in writes[:n] if overlap(intervals, theirs)]
            conflicts += [
                other for other, p, theirs in reads if _conflict(x.opcode, (o, intervals), (p, theirs))
            ]
            for other in conflicts:
                self.tell(i, f"`{name}` is written over `{other}`")
            self.write(i, name, o, intervals, in_place=accumulates(x) or any(o == p for _, p, _ in reads))

    def _wait(self, x: Instruction) -> None:
        channel = _channel(x)
        if x.attr("side") == "received" and channel in self.received:
            intervals, _ = self.received.pop(channel)
            self.busy[intervals] = 0
        elif x.attr("side") == "sent" and channel in self.sent:
            self.busy[self.sent.pop(channel)] -= 1

    def read(self, i: int, name: str, o: Operand, intervals: Intervals) -> None:
        """Check the read of an operand: its bytes must be written, in one element type, and be in no granted slot."""
        if not size(intervals):
            return
        held, kind = self.holds[intervals], DTYPES.index(o.dtype)
        low, high = int(held.min()), int(held.max())
        if int(self.busy[intervals].max()) >= _GRANTED:
            self.tell(i, f"`{name}` reads a slot whose message has not been waited for")
        if low <= UNWRITTEN:
            self._tell_unwritten(i, name, intervals, held)
        elif low <= self.last_argument or self.handed:
            from_argument = (held <= self.last_argument) | np.isin(held, self.handed)
            self.needs[intervals] = np.where(
                from_argument & (self.needs[intervals] == 0), kind + 1, self.needs[intervals]
            )
        if self.handed:
            self._check_side(i, name, o, held)
        if 0 < low == high and self.kinds[low] == kind:
            return
        kinds = {self.kinds[h] for h, _ in _counted(held, low, high) if h > 0}
        if wrong := kinds - {kind, _ANY}:
            self.tell(i, f"`{name}` reads as {o.dtype} what was written as {DTYPES[min(wrong)]}")

    def _check_side(self, i: int, name: str, o: Operand, held: NDArray[np.int32]) -> None:
        """Check that an argument is read where one was written, and a local where a local was, since what is handed on
        lies among the locals."""
        of_argument = np.isin(held, list(self.argument_of)) | (held <= self.last_argument)
        if o.arg >= 0 and not of_argument.all():
            self.tell(i, f"`{name}` reads an argument whose bytes a local has overwritten")
        elif o.arg < 0 and (of_argument & (held > UNWRITTEN)).any():
            self.tell(i, f"`{name}` reads as a local what was written to an argument")

    def _tell_unwritten(self, i: int, name: str, intervals: Intervals, held: NDArray[np.int32]) -> None:
        unwritten = np.flatnonzero(held <= UNWRITTEN)
        first, state = int(unwritten[0]), int(held[unwritten[0]])
        interval = first + intervals.start if isinstance(intervals, slice) else int(intervals[first])
        reason = "that nothing has written"
        if state != UNWRITTEN:
            reason = f"of a value that instruction {-state - 1} has overwritten in part"
        self.tell(i, f"`{name}` reads bytes from {self.grid.address(interval)} on {reason}")
        held[unwritten] = self._new(slice(0, 0), _ANY)  # reported once
        self.holds[intervals] = held

    def write(self, i: int, name: str, o: Operand, intervals: Intervals, *, in_place: bool = False) -> None:
        """Check the write of an operand: no message may use its bytes. It ends objects that it covers in part, unless
        the instruction has read the same operand."""
        if not size(intervals):
            return
        held, busy = self.holds[intervals], int(self.busy[intervals].max())
        if busy >= _GRANTED:
            self.tell(i, f"`{name}` overwrites a slot that is granted to a message")
        elif busy:
            self.tell(i, f"`{name}` overwrites bytes of a message that has not been waited for")
        low, high = int(held.min()), int(held.max())
        if in_place and low > self.last_argument:
            return
        for old, n in _counted(held, low, high):
            if old > self.last_argument:
                self.alive[old] -= n
                if self.alive[old] > 0 and not within(intervals, self.objects[old]):
                    self._end(i, old)
        number = self._new(intervals, DTYPES.index(o.dtype))
        if o.arg >= 0:
            self.argument_of[number] = o.arg

    def _end(self, i: int, old: int) -> None:
        """End object `old`, which instruction i destroys."""
        rest = self.objects[old]
        held = self.holds[rest]
        held[held == old] = -i - 1
        self.holds[rest] = held
        self.alive[old] = 0

    def _new(self, intervals: Intervals, kind: int) -> int:
        """The number of a new object in these intervals; `kind` is the number of its element type."""
        number = len(self.objects)
        self.objects.append(intervals)
        self.kinds.append(kind)
        self.alive.append(size(intervals))
        self.holds[intervals] = number
        return number

    def _result(self) -> Summary:
        kinds = np.array(self.kinds, np.int8)
        written = self.holds > self.last_argument
        leaves = np.where(written, kinds[np.maximum(self.holds, 0)] + 1, 0).astype(np.int8)
        loses = (self.holds < 0).astype(np.int8)
        handed_on: list[Range] = []
        if LOCAL in self.grid.spaces:
            # Of what lies among the locals, values of arguments stay, and what was handed on and is whole.
            near = self.grid.whole(LOCAL)
            for arg in sorted({*self.argument_of.values()} if self.handed else ()):
                own = [n for n, a in self.argument_of.items() if a == arg and n not in self.handed]
                mark = np.where(np.isin(self.holds, own), leaves, 0).astype(np.int8)
                handed_on += [r for r in self._ranges(mark) if r[0] == LOCAL]
            self.accessed[near][np.isin(self.holds[near], self.handed)] = 0
            leaves[near] = loses[near] = 0
        return Summary(
            self._ranges(self.needs),
            (*self._ranges(leaves), *handed_on),
            self._ranges(loses),
            tuple((a, b) for s, a, b, _ in self._ranges(self.accessed) if s == LOCAL),
        )

    def _ranges(self, mark: NDArray[np.int8]) -> tuple[Range, ...]:
        return tuple((s, a, b, v - 1) for s in self.grid.spaces for a, b, v in self.grid.ranges(s, mark))

    def _among_locals(
        self, keys: Sequence[_Place], intervals: dict[_Place, Intervals]
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The arguments that lie among the locals, and the intervals of each."""
        by_argument: dict[int, list[NDArray[np.int64]]] = {}
        numbers = np.arange(self.grid.count)
        placed = iter(keys)
        for x in self.code.body:
            for _, o in operands(x):
                key = next(placed)
                if o.arg >= 0 and key[0] == LOCAL:
                    by_argument.setdefault(o.arg, []).append(numbers[intervals[key]])
        for arg, parts in by_argument.items():
            yield arg, np.unique(np.concatenate(parts))


# Space, offset, and shape, strides and element size of a view.
_Place = tuple[int, int, tuple[int, ...], tuple[int, ...], int]


def _place(o: Operand, row: Ints, sharing: Sharing) -> _Place:
    space, start = sharing[o.arg] if o.arg >= 0 else (LOCAL, 0)
    return space, int(resolve(o.offset, row)) + start, o.shape, o.strides, o.dtype.size


def _runs(_: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Runs:
    starts, ends = view_runs(shape, strides, item)
    return starts + offset, ends + offset


def _counted(held: NDArray[np.int32], low: int, high: int) -> Iterator[tuple[int, int]]:
    """(object, number of intervals) of each object in `held`, whose numbers are from `low` to `high`."""
    if low == high:
        yield low, len(held)
    else:
        counts = np.bincount(held - low)
        present = np.flatnonzero(counts)
        yield from zip((present + low).tolist(), counts[present].tolist(), strict=True)


def _channel(x: Instruction) -> int:
    channel = x.attr("channel")
    assert isinstance(channel, int)
    return channel


def _conflict(opcode: str, write: tuple[Operand, Intervals], read: tuple[Operand, Intervals]) -> bool:
    """True if the write overlaps the read and is not allowed to: an elementwise instruction may write the same view
    that it reads, a product may not."""
    (o, intervals), (p, theirs) = write, read
    if not overlap(intervals, theirs):
        return False
    return opcode == "gemm" or (o.shape, o.strides) != (p.shape, p.strides) or not equal(intervals, theirs)
