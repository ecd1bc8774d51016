"""How data moves between dies: a receive slot is granted, a message fills it, both ends learn of it.

A message is copied once, from the sender's memory into the granted slot, by whichever side comes second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

import numpy as np

from wscc.backends.scratch import Array
from wscc.diagnostics import Code, fail


class Outcome(Enum):
    BLOCKED = "blocked"


BLOCKED: Final = Outcome.BLOCKED


class State(IntEnum):
    IDLE = 0
    UNDER_WAY = 1
    DONE = 2  # and not yet waited for


@dataclass(slots=True, eq=False)
class End:
    """One die's side of a channel: it sends or receives at most one message on it at a time."""

    die: int
    channel: int
    sends: bool
    peer: int = -1
    state: State = State.IDLE
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
        _begin(box.receiver, box.sender.die)
        with self.lock:
            message, box.message = box.message, None
            if message is None:
                box.slot = slot
                return
        self._deliver(box, slot, message)

    def send(self, message: Array, box: Mailbox, counts: dict[tuple[int, int], int], route: int) -> None:
        """Start the message; it leaves at once if there is a slot for it. Messages are counted by route
        and bytes."""
        _begin(box.sender, box.receiver.die)
        kind = (route, message.nbytes)
        counts[kind] = counts.get(kind, 0) + 1
        with self.lock:
            slot, box.slot = box.slot, None
            if slot is None:
                box.message = message
                return
        self._deliver(box, slot, message)

    def wait(self, end: End) -> Outcome | None:
        """Ends the message of the channel if it is done, else BLOCKED (and nothing changes)."""
        if end.state is State.DONE:
            end.state = State.IDLE
            return None
        if end.state is State.IDLE:
            raise fail(Code.ARTIFACT, f"`wait` for channel {end.channel}, on which nothing was begun")
        return BLOCKED

    def park(self, end: End) -> bool:
        """Ask to be woken for the end; False if there is no need to any more."""
        with self.lock:
            end.waiting = end.state is not State.DONE
            return end.waiting

    def _deliver(self, box: Mailbox, slot: Array, message: Array) -> None:
        copy_in_order(slot, message)
        with self.lock:
            for end in (box.sender, box.receiver):
                end.state = State.DONE
                if end.waiting:
                    end.waiting = False
                    self.wake(end.die)


def _begin(end: End, peer: int) -> None:
    if end.state is not State.IDLE:
        verb = "send" if end.sends else "post"
        raise fail(Code.ARTIFACT, f"second `{verb}` on channel {end.channel} before the first was waited for")
    end.state, end.peer = State.UNDER_WAY, peer


def copy_in_order(slot: Array, message: Array) -> None:
    """Element i of the message, row-major, becomes element i of the slot, whatever their shapes."""
    if slot.size != message.size or slot.dtype != message.dtype:
        raise fail(
            Code.ARTIFACT,
            f"a message of {message.size} {message.dtype} arrives in a slot of {slot.size} {slot.dtype}",
        )
    if slot.shape == message.shape:
        np.copyto(slot, message)
    elif slot.flags.c_contiguous:
        np.copyto(slot.reshape(message.shape), message)
    else:
        np.copyto(slot, message.reshape(slot.shape))
