"""How data moves between dies: a receive slot is granted, a message fills it, both ends learn of it.

A message is copied once, from the sender's memory into the granted slot, by whichever side comes second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from wscc.backends.scratch import Array
from wscc.diagnostics import Code, CompileError, fail


class Outcome(Enum):
    BLOCKED = "blocked"


BLOCKED: Final = Outcome.BLOCKED


class State(IntEnum):
    IDLE = 0
    UNDER_WAY = 1
    DONE = 2  # and not yet waited for


# Looked up for every message.
IDLE, UNDER_WAY, DONE = State


@dataclass(slots=True, eq=False)
class End:
    """One die's side of a channel: it sends or receives at most one message on it at a time."""

    die: int
    channel: int
    sends: bool
    peer: int = -1
    state: State = IDLE
    waiting: bool = False

    @property
    def waits_for(self) -> str:
        return "sent" if self.sends else "received"


@dataclass(slots=True, eq=False)
class Mailbox:
    """What is under way from one die to another on one channel: a granted slot, or a message without one."""

    sender: End
    receiver: End
    slot: Array | None = None
    message: Array | None = None


@dataclass(slots=True)
class Transport:
    """All channels of the wafer. `wake` is called, holding `lock`, with each die whose wait has ended."""

    wake: Callable[[int], None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    ends: dict[tuple[int, int, bool], End] = field(default_factory=dict)
    boxes: dict[tuple[int, int, int], Mailbox] = field(default_factory=dict)

    def end(self, die: int, channel: int, sends: bool) -> End:
        with self.lock:
            return self._end(die, channel, sends)

    def box(self, sender: int, receiver: int, channel: int) -> Mailbox:
        with self.lock:
            key = (sender, receiver, channel)
            if key not in self.boxes:
                ends = self._end(sender, channel, True), self._end(receiver, channel, False)
                self.boxes[key] = Mailbox(*ends)
            return self.boxes[key]

    def _end(self, die: int, channel: int, sends: bool) -> End:
        return self.ends.setdefault((die, channel, sends), End(die, channel, sends))

    def post(self, slot: Array, box: Mailbox) -> None:
        """Grant the slot; fill it at once if the message is there already."""
        end = box.receiver
        if end.state is not IDLE:
            raise _second(end)
        end.state, end.peer = UNDER_WAY, box.sender.die
        with self.lock:
            message = box.message
            if message is None:
                box.slot = slot
                return
            box.message = None
        self._deliver(box, slot, message)

    def send(self, message: Array, box: Mailbox, counts: dict[tuple[int, int], int], route: int) -> None:
        """Start the message; it leaves at once if there is a slot for it. Messages are counted by route
        and bytes."""
        end = box.sender
        if end.state is not IDLE:
            raise _second(end)
        end.state, end.peer = UNDER_WAY, box.receiver.die
        kind = (route, message.nbytes)
        counts[kind] = counts.get(kind, 0) + 1
        with self.lock:
            slot = box.slot
            if slot is None:
                box.message = message
                return
            box.slot = None
        self._deliver(box, slot, message)

    def wait(self, end: End) -> Outcome | None:
        """Ends the message of the channel if it is done, else BLOCKED (and nothing changes)."""
        if end.state is DONE:
            end.state = IDLE
            return None
        if end.state is IDLE:
            raise fail(Code.ARTIFACT, f"`wait` for channel {end.channel}, on which nothing was begun")
        return BLOCKED

    def _deliver(self, box: Mailbox, slot: Array, message: Array) -> None:
        copy_in_order(slot, message)
        sender, receiver = box.sender, box.receiver
        with self.lock:
            sender.state = receiver.state = DONE
            if sender.waiting:
                sender.waiting = False
                self.wake(sender.die)
            if receiver.waiting:
                receiver.waiting = False
                self.wake(receiver.die)


def _second(end: End) -> CompileError:
    verb = "send" if end.sends else "post"
    return fail(Code.ARTIFACT, f"second `{verb}` on channel {end.channel} before the first was waited for")


def copy_in_order(slot: Array, message: Array) -> None:
    """Element i of the message, row-major, becomes element i of the slot, whatever their shapes."""
    if slot.shape == message.shape and slot.dtype == message.dtype:
        slot[...] = message
    elif slot.size != message.size or slot.dtype != message.dtype:
        raise fail(
            Code.ARTIFACT,
            f"a message of {message.size} {message.dtype} arrives in a slot of {slot.size} {slot.dtype}",
        )
    elif slot.flags.c_contiguous:
        slot.reshape(message.shape)[...] = message
    else:
        slot[...] = message.reshape(slot.shape)
