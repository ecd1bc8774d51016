"""Messages between dies: a receiver grants a slot, a message fills it, and both ends are notified.

A message is copied once, from the sender's memory into the granted slot, by the side that comes second. That is so
too where the other side runs in another process (`exchange`): all processes see the memory of all dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from wscc.backends.interpreter.exchange import Exchange
from wscc.backends.interpreter.kernels.scratch import Array
from wscc.diagnostics import Code, CompileError, fail

# Messages are counted by (route, bytes).
Kind = tuple[int, int]
Counts = dict[Kind, int]


class Outcome(Enum):
    BLOCKED = "blocked"


BLOCKED: Final = Outcome.BLOCKED


class State(IntEnum):
    IDLE = 0
    UNDER_WAY = 1
    DONE = 2  # and not yet waited for


# As globals, because they are looked up for every message.
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


@dataclass(slots=True, eq=False)
class Mailbox:
    """The state of one channel from one die to another: a granted slot, or a message without one, or neither.

    `origins`: in checked mode, of the messages that the receiver has not waited for, what their elements are made of.
    """

    sender: End
    receiver: End
    slot: Array | None = None
    message: Array | None = None
    origins: deque[Array] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class FarBox:
    """This process's end of a channel to or from a die of another process; `number` is that of the exchange,
    `far(words)` gives the array at the other end, which the other process has described."""

    end: End
    number: int
    peer: int
    far: Callable[[bytes], Array]


@dataclass(slots=True)
class Transport:
    """The channels of the dies of one process. `ready` gains each die whose wait has ended."""

    ready: list[int] = field(default_factory=list)
    exchange: Exchange | None = None
    ends: dict[tuple[int, int, bool], End] = field(default_factory=dict)
    boxes: dict[tuple[int, int, int], Mailbox] = field(default_factory=dict)
    far_boxes: dict[int, FarBox] = field(default_factory=dict)

    def end(self, die: int, channel: int, sends: bool) -> End:
        """The side of a die, made at the first request."""
        return self.ends.setdefault((die, channel, sends), End(die, channel, sends))

    def box(self, sender: int, receiver: int, channel: int) -> Mailbox:
        """The mailbox of a channel between two dies of this process, made at the first request."""
        key = (sender, receiver, channel)
        if key not in self.boxes:
            self.boxes[key] = Mailbox(self.end(sender, channel, True), self.end(receiver, channel, False))
        return self.boxes[key]

    def far_box(self, end: End, number: int, peer: int, far: Callable[[bytes], Array]) -> FarBox:
        """The far box of channel `number` of `Exchange.numbers`, made at the first request."""
        return self.far_boxes.setdefault(number, FarBox(end, number, peer, far))

    def post(self, slot: Array, box: Mailbox) -> None:
        """Grant the slot; fill it at once if the message is there already. W501 if the end is not idle."""
        end = box.receiver
        if end.state is not IDLE:
            raise _second(end)
        end.state, end.peer = UNDER_WAY, box.sender.die
        message = box.message
        if message is None:
            box.slot = slot
        else:
            box.message = None
            self._deliver(box, slot, message)

    def send(self, message: Array, box: Mailbox, counts: Counts, kind: Kind) -> None:
        """Start the message, and count it; it is copied at once if there is a slot for it. W501 as for `post`."""
        end = box.sender
        if end.state is not IDLE:
            raise _second(end)
        end.state, end.peer = UNDER_WAY, box.receiver.die
        counts[kind] += 1
        slot = box.slot
        if slot is None:
            box.message = message
        else:
            box.slot = None
            self._deliver(box, slot, message)

    def _deliver(self, box: Mailbox, slot: Array, message: Array) -> None:
        copy_in_order(slot, message)
        # The die that runs is the second to come, and waits for nothing: only the other may have to be woken.
        sender, receiver = box.sender, box.receiver
        sender.state = receiver.state = DONE
        if sender.waiting:
            sender.waiting = False
            self.ready.append(sender.die)
        elif receiver.waiting:
            receiver.waiting = False
            self.ready.append(receiver.die)

    def post_far(self, slot: Array, box: FarBox, view: memoryview) -> None:
        """`post` where the sender runs in another process; `view` describes the slot to it."""
        message = self._meet(box, view)
        if message is not None:
            copy_in_order(slot, message)
            self._done_far(box)

    def send_far(self, message: Array, box: FarBox, view: memoryview, counts: Counts, kind: Kind) -> None:
        """`send` where the receiver runs in another process."""
        counts[kind] += 1
        slot = self._meet(box, view)
        if slot is not None:
            copy_in_order(slot, message)
            self._done_far(box)

    def _meet(self, box: FarBox, view: memoryview) -> Array | None:
        """The array at the other end, or None if that has yet to come."""
        end = box.end
        if end.state is not IDLE:
            raise _second(end)
        end.state, end.peer = UNDER_WAY, box.peer
        assert self.exchange is not None
        description = self.exchange.meet(box.number, view)
        return None if description is None else box.far(description)

    def _done_far(self, box: FarBox) -> None:
        assert self.exchange is not None
        box.end.state = DONE
        self.exchange.tell(box.number)

    def poll(self) -> None:
        """Take note of messages that other processes have completed."""
        if self.exchange is not None:
            while (number := self.exchange.poll()) is not None:
                self._done(self.far_boxes[number].end)

    def rest(self) -> bool:
        """Wait, while no die of this process can run, for a completed message; False if there will be none."""
        if self.exchange is None:
            return False
        number = self.exchange.rest()
        if number is not None:
            self._done(self.far_boxes[number].end)
        return number is not None

    def wait(self, end: End) -> Outcome | None:
        """End the message of the channel if it is done; else return BLOCKED and change nothing.

        W501 if no message was begun.
        """
        if end.state is DONE:
            end.state = IDLE
            return None
        if end.state is IDLE:
            raise fail(Code.ARTIFACT, f"`wait` for channel {end.channel}, on which nothing was begun")
        return BLOCKED

    def _done(self, end: End) -> None:
        end.state = DONE
        if end.waiting:
            end.waiting = False
            self.ready.append(end.die)


def _second(end: End) -> CompileError:
    verb = "send" if end.sends else "post"
    return fail(Code.ARTIFACT, f"second `{verb}` on channel {end.channel} before the first was waited for")


def copy_in_order(slot: Array, message: Array) -> None:
    """Copy element i of the message, row-major, to element i of the slot; their shapes may differ.

    W501 if sizes or element types differ.
    """
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
