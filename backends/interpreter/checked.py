"""Checked mode: a shadow of each arena with a tag for every byte, and poison in bytes that are unwritten.

Bytes of a granted slot belong to the message from `post` to `wait received`; bytes of a message may be read
but not written from `send` to `wait sent`. The checks follow the program order of the die, not the time at which a
message happened to arrive, so a race is found in every run. A procedure's local memory is unwritten when it starts,
but for what is handed to it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import DieMemory, Place, Routine, Template
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.backends.interpreter.messages import BLOCKED, End, Mailbox, Outcome, copy_in_order
from wscc.backends.interpreter.origins import GraphTypes, Marks, Origins
from wscc.backends.interpreter.roundings import with_f64_beside
from wscc.diagnostics import Code, fail
from wscc.ir.streams.instructions import INSTRUCTIONS

# The tag of a written byte that no message uses is 0.
UNWRITTEN: Final = 0x80
GRANTED: Final = 0x40
SENDING: Final = 0x3F  # the number of messages in flight that read the byte

# A pattern of two bytes: a NaN in f64, f32 and bf16, and -458760 in i32, which no index or label is.
_POISON: Final = 0xFFF8

Tags = NDArray[np.uint8]
Named = list[tuple[str, Tags]]


class Shadow:
    """The tags of one die's arena, and the slots and messages that it has in flight, by channel.

    Its methods raise `CompileError` W504 where a check fails. Without `types`, numbers may change theirs anywhere.
    """

    def __init__(self, memory: DieMemory, types: GraphTypes | None) -> None:
        self._memory = memory
        self._origins = None if types is None else Origins(memory, types)
        self._tags = np.full(memory.arena.size, UNWRITTEN, np.uint8)
        self._slots: dict[int, Tags] = {}
        self._arriving: dict[int, tuple[Marks, Mailbox]] = {}
        self._messages: dict[int, Tags] = {}
        self._locals: dict[str, list[tuple[int, int]]] = {}
        memory.arena[: memory.arena.size // 2 * 2].view(np.uint16).fill(_POISON)

    def store(self, address: int, size: int, *, data: bool) -> None:
        """Mark `size` bytes as written by the host, as `data` of a batch or as anything else."""
        self._tags[address : address + size] = 0
        if self._origins is not None:
            self._origins.store(address, size, data=data)

    def load(self, address: int, size: int) -> None:
        """Check that `size` bytes that the host reads have been written."""
        if not self.is_written(address, size):
            raise fail(Code.CHECK, f"the host reads bytes at {address} that nothing wrote")

    def is_written(self, address: int, size: int) -> bool:
        """True if something has written all of these bytes."""
        return not (self._tags[address : address + size] & UNWRITTEN).any()

    def enter(self, routine: Routine, args: Sequence[int]) -> None:
        """Poison the procedure's local memory before a call with these arguments, but for the bytes of messages in
        flight, and of arguments that it reads there: what the call before has handed on."""
        ranges = self._local_ranges(routine)
        handed = list(self._handed(routine, args, ranges[-1][1] if ranges else 0))
        for low, high in ranges:
            tags = self._tags[low:high]
            idle = (tags & (GRANTED | SENDING)) == 0
            for start, end in handed:
                idle[max(start - low, 0) : max(end - low, 0)] = False
            tags[idle] = UNWRITTEN
            np.copyto(self._memory.arena[low:high].view(np.uint16), _POISON, where=idle[::2])

    def _local_ranges(self, routine: Routine) -> list[tuple[int, int]]:
        """Disjoint byte ranges that cover the local operands of a procedure."""
        if routine.name not in self._locals:
            spans = sorted(
                (a + p.low, a + p.high)
                for t in routine.body
                for p in t.places
                if p.arg < 0 and (a := self._memory.address(p, ())) >= 0
            )
            ranges: list[tuple[int, int]] = []
            for low, high in spans:
                if ranges and low <= ranges[-1][1]:
                    ranges[-1] = ranges[-1][0], max(high, ranges[-1][1])
                else:
                    ranges.append((low, high))
            self._locals[routine.name] = ranges
        return self._locals[routine.name]

    def _handed(self, routine: Routine, args: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
        """The bytes that the procedure reads of arguments that lie before `end`."""
        near = {n for n, address in enumerate(args) if address < end}
        for t in routine.body if near else ():
            for p in t.places[t.writes :]:
                if p.arg in near:
                    address = self._memory.address(p, args)
                    yield address + p.low, address + p.high

    def guard(self, t: Template, args: tuple[int, ...], inner: Prepared) -> Prepared:
        """The prepared instruction with its checks around it; the first argument of a wait stays its `End`."""
        run, inner_args = inner
        tags = [self._view(p, args) for p in t.places]
        match t.opcode:
            case "post":
                return self._post, (t.attrs[0], tags[0], self._marks(t, args), inner)
            case "send":
                return self._send, (t.attrs[0], tags[0], self._marks(t, args), inner)
            case "wait":
                return self._wait, (*inner_args, run)
        names = INSTRUCTIONS[t.opcode].writes.split() + INSTRUCTIONS[t.opcode].reads.split()
        operands = list(zip(names, tags, strict=True))
        writes, reads = operands[: t.writes], operands[t.writes :]
        if "accumulate" in INSTRUCTIONS[t.opcode].attr_names and t.attrs[-1]:
            reads = reads + writes
        inner = with_f64_beside(t, self._memory, args, inner)
        if self._origins is not None:
            inner = self._origins.followed(t, args, inner)
        return self._compute, (reads, writes, inner)

    def _marks(self, t: Template, args: tuple[int, ...]) -> Marks | None:
        """What the elements of a message, or of a slot, are made of."""
        return None if self._origins is None else self._origins.view(t.places[0], args)

    def _view(self, p: Place, args: tuple[int, ...]) -> Tags:
        """The tags of an operand: its dimensions of nonzero stride, and the bytes of an element as the last."""
        address = self._memory.address(p, args)
        if p.dense:
            return self._tags[address : address + p.high]
        dims = [(n, s) for n, s in zip(p.sizes, p.strides, strict=True) if s]
        sizes = (*(n for n, _ in dims), p.dtype.itemsize)
        return np.ndarray(sizes, np.uint8, self._tags.data, address, (*(s for _, s in dims), 1))

    def _compute(self, reads: Named, writes: Named, inner: Prepared) -> None:
        for name, tags in reads:
            _check_read(name, tags)
        # Most bytes that are written were written before, and their tags are 0 already.
        fresh = [tags for name, tags in writes if _check_write(name, tags)]
        run, args = inner
        run(*args)
        for tags in fresh:
            tags.fill(0)

    def _post(self, channel: int, tags: Tags, marks: Marks | None, inner: Prepared) -> None:
        _check_write("slot", tags)
        tags.fill(GRANTED)
        self._slots[channel] = tags
        run, args = inner
        if marks is not None:
            self._arriving[channel] = marks, args[1]
        args[0].fill(np.nan if args[0].dtype != np.int32 else np.iinfo(np.int32).min)
        run(*args)

    def _send(self, channel: int, tags: Tags, marks: Marks | None, inner: Prepared) -> None:
        _check_read("x", tags)
        tags += 1
        self._messages[channel] = tags
        run, args = inner
        run(*args)
        if marks is not None:
            args[1].origins.append(marks.copy())

    def _wait(self, end: End, run: Callable[[End], Outcome | None]) -> Outcome | None:
        if run(end) is BLOCKED:
            return BLOCKED
        if end.sends:
            tags = self._messages.pop(end.channel)
            tags -= 1
        else:
            self._slots.pop(end.channel).fill(0)
            if end.channel in self._arriving:
                marks, box = self._arriving.pop(end.channel)
                copy_in_order(marks, box.origins.popleft())
        return None


def _check_read(name: str, tags: Tags) -> None:
    bits = _any(tags)
    if bits & GRANTED:
        raise fail(Code.CHECK, f"`{name}` reads a slot whose message has not been waited for")
    if bits & UNWRITTEN:
        raise fail(Code.CHECK, f"`{name}` reads bytes that nothing has written")


def _check_write(name: str, tags: Tags) -> int:
    """The union of the bits of all tags: what the bytes were before."""
    bits = _any(tags)
    if bits & GRANTED:
        raise fail(Code.CHECK, f"`{name}` overwrites a slot that is granted to a message")
    if bits & SENDING:
        raise fail(Code.CHECK, f"`{name}` overwrites bytes of a message that has not been waited for")
    return bits


def _any(tags: Tags) -> int:
    """The union of the bits of all tags."""
    # Nearly always none, which is quicker to count than to put together.
    return int(np.bitwise_or.reduce(tags, axis=None)) if np.count_nonzero(tags) else 0
