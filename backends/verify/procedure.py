"""Hazards inside one procedure on one die.

Every write makes an *object* of its bytes. Unwritten bytes may not be read. A write over a part of an object, and
over bytes beside it, ends the object: its memory has been given to another value, and the rest of the object may not
be read either. So two live buffers that share bytes are found without a list of buffers. A write in place (`x += y`)
changes what it has just read, which is no new value: all objects in it live on.

An object is known by the operand that wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from wscc.backends.verify.body import DTYPES, Act, Action, Body
from wscc.backends.verify.objects import NEVER, Objects
from wscc.backends.verify.places import LOCAL, Places, bits, mask_of
from wscc.backends.verify.views import Runs, common, minus, repeats

Tell = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Event:
    """Operand v is written, which ends the objects `of`; or it is read from these, while others too are `live`, and
    some `torn`."""

    v: int
    of: int
    live: int = 0
    torn: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scan ends with. `written` are operands that were written, in the order of their last time, `ended` those
    whose objects were ended; of the operands `taken` are read bytes that the caller wrote: all that are not in the set
    with each. `clean` if nothing is wrong.

    The rest says what this is due to: the `events`; by operand, the messages `in_flight` when it was accessed; whether
    all bytes of an operand are in the union of a set; and `traced` if the last writer of single bytes was asked for."""

    written: tuple[int, ...]
    ended: int
    taken: tuple[tuple[int, int], ...]
    clean: bool
    events: list[Event]
    in_flight: list[int]
    covered: dict[tuple[int, int], bool]
    traced: bool
    good: list[int]


def scan(body: Body, places: Places, tell: Tell) -> Outcome:
    """The outcome of the procedure; `tell` is called with the number of an instruction and the text of an error in
    it."""
    places.prepare(range(len(body.operands)))
    return _Scan(body, places, tell).outcome()


class _Scan:
    """The state while the procedure runs, as sets of operands: those whose objects are `live`; those that were `ended`,
    and of these the `torn`, which lay inside others that live on; those `granted` to messages and being sent."""

    def __init__(self, body: Body, places: Places, tell: Tell) -> None:
        self.body, self.places, self._tell = body, places, tell
        self.clean = True
        count = len(places.low)
        self.live, self.ended, self.torn, self.granted, self.sending = places.given, 0, 0, 0, 0
        self.ended_by: dict[int, int] = {}
        self.good = _good(body, places)
        self.objects = Objects(places, self.good)
        self.sends: Counter[int] = Counter()
        self.in_flight: dict[tuple[Act, int], int] = {}
        self.taken: dict[int, int] = {}
        self.events: list[Event] = []
        self.busy = [0] * count
        self.traced = False

    def tell(self, i: int, words: str) -> None:
        self.clean = False
        self._tell(i, words)

    def outcome(self) -> Outcome:
        local = self.body.local
        for i, action in enumerate(self.body.actions):
            match action.act:
                case Act.COMPUTE:
                    self._compute(i, action)
                case Act.POST:
                    v = local[action.writes[0]]
                    self.write(i, "slot", v)
                    self.granted |= 0 if self.places.is_empty(v) else 1 << v
                    self.in_flight[Act.RECEIVED, action.channel] = v
                case Act.SEND:
                    v = local[action.reads[0]]
                    self.read(i, "x", v)
                    self.sending |= 0 if self.places.is_empty(v) else 1 << v
                    self.sends[v] += 1
                    self.in_flight[Act.SENT, action.channel] = v
                case Act.RECEIVED | Act.SENT:
                    self._wait(action)
        last = sorted((n, v) for v, n in enumerate(self.objects.born) if n != NEVER)
        return Outcome(
            tuple(v for _, v in last), self.ended, tuple(self.taken.items()), self.clean, self.events, self.busy,
            self.objects.covered, self.traced, self.good,
        )  # fmt: skip

    def _wait(self, action: Action) -> None:
        v = self.in_flight.pop((action.act, action.channel), None)
        if v is None:
            return
        if action.act is Act.RECEIVED:
            self.granted &= ~(1 << v)
        else:
            self.sends[v] -= 1
            if not self.sends[v]:
                self.sending &= ~(1 << v)

    def _compute(self, i: int, action: Action) -> None:
        local, names, count = self.body.local, action.names, len(action.writes)
        writes, reads = [local[n] for n in action.writes], [local[n] for n in action.reads]
        for name, v in zip(names[count:], reads, strict=True):
            self.read(i, name, v)
        if action.accumulates:
            for name, v in zip(names, writes, strict=False):
                self.read(i, name, v)
        for n, v in enumerate(writes):
            self._check_distinct(i, action, v, writes[:n], reads)
            self.write(i, names[n], v, in_place=action.in_place[n])

    def _check_distinct(
        self, i: int, action: Action, v: int, earlier: Sequence[int], reads: Sequence[int]
    ) -> None:
        """Check that a write is not over another operand of its instruction. An elementwise instruction may write the
        view that it reads, a product may not."""
        others = 0
        for u in (*earlier, *reads):
            others |= 1 << u
        self.busy[v] |= others
        name = action.names[len(earlier)]
        if repeats(self.body.operands[v]):
            self.tell(i, f"`{name}` is written, and two elements of it share bytes")
        if not self.places.touching(v, others):
            return
        conflicts = [action.names[n] for n, u in enumerate(earlier) if self.places.relation(v, u)[0]]
        conflicts += [
            other
            for other, u in zip(action.names[len(action.writes) :], reads, strict=True)
            if self.places.relation(v, u)[0] and (action.x.opcode == "gemm" or not self._same_view(v, u))
        ]
        for other in conflicts:
            self.tell(i, f"`{name}` is written over `{other}`")

    def _same_view(self, v: int, u: int) -> bool:
        a, b = self.body.operands[v], self.body.operands[u]
        return (a.shape, a.strides) == (b.shape, b.strides) and all(self.places.relation(v, u))

    # ---- reads

    def read(self, i: int, name: str, v: int) -> None:
        """Check the read of an operand: its bytes must be written, in one element type, and be in no granted slot."""
        places = self.places
        if places.is_empty(v):
            return
        self.busy[v] |= self.granted | self.sending
        touched = places.touching(v, self.live | self.granted | self.torn)
        near = touched & self.live
        if touched & self.granted:
            self.tell(i, f"`{name}` reads a slot whose message has not been waited for")
        holders = self.objects.that_hold(v, near, touched & self.torn)
        if not holders:
            self._trace(i, name, v)
            return
        if near & places.given:
            self._take(v, near)
        self.events.append(
            Event(v, self.objects.with_parts(holders, self.live | self.torn), self.live, self.torn)
        )

    def _take(self, v: int, near: int) -> None:
        """Note the bytes of v that nothing in the procedure has written, but its caller."""
        own = near & ~self.places.given
        if (
            v not in self.taken
            and not (own & self.places.inside(v))
            and not (own and self.objects.cover(own, v))
        ):
            self.taken[v] = own

    def _trace(self, i: int, name: str, v: int) -> None:
        """Say what is wrong with the read of v, from what last wrote each of its bytes; nothing may be."""
        self.traced = True
        places, body = self.places, self.body
        writers = list(self._writers(v))
        lost = [(int(runs[0][0]), u) for u, runs in writers if u is None or self.ended >> u & 1]
        held = [u for u, _ in writers if u is not None and not self.ended >> u & 1]
        if lost:
            at, u = min(lost, key=itemgetter(0))
            reason = "that nothing has written"
            if u is not None:
                reason = f"of a value that instruction {self.ended_by[u]} has overwritten in part"
            self.tell(i, f"`{name}` reads bytes from {places.address(v, at)} on {reason}")
        elif places.given & sum(1 << u for u in held):
            self._take(v, places.touching(v, self.live | self.ended))
        self._check_side(i, name, v, held)
        dtypes = {body.operands[u].dtype for u in held if not places.given >> u & 1}
        if wrong := dtypes - {body.operands[v].dtype}:
            written = min(wrong, key=DTYPES.index)
            self.tell(i, f"`{name}` reads as {body.operands[v].dtype} what was written as {written}")
        if lost:
            self._bear(v)  # reported once

    def _check_side(self, i: int, name: str, v: int, held: Sequence[int]) -> None:
        """Check that an argument is read where one was written, and a local where a local was, since what is handed on
        lies among the locals."""
        if not self.places.handed:
            return
        of_argument = [bool(self.places.given >> u & 1) or self.body.operands[u].arg >= 0 for u in held]
        if self.body.operands[v].arg >= 0 and not all(of_argument):
            self.tell(i, f"`{name}` reads an argument whose bytes a local has overwritten")
        elif self.body.operands[v].arg < 0 and any(of_argument):
            self.tell(i, f"`{name}` reads as a local what was written to an argument")

    def _writers(self, v: int) -> Iterator[tuple[int | None, Runs]]:
        """The bytes of v by the operand that last wrote them, None if none has."""
        rest = self.places.runs(v)
        near = bits(self.places.touching(v, self.live | self.ended))
        for u in sorted(near, key=lambda u: (self.objects.born[u], u), reverse=True):
            if len((mine := common(rest, self.places.runs(u)))[0]):
                yield u, mine
                rest = minus(rest, mine)
        if len(rest[0]):
            yield None, rest

    # ---- writes

    def write(self, i: int, name: str, v: int, *, in_place: bool = False) -> None:
        """Check the write of an operand: no message may use its bytes. It ends objects that it covers in part, unless
        the instruction has read the same operand."""
        places = self.places
        if places.is_empty(v):
            return
        self.busy[v] |= self.granted | self.sending
        touched = places.touching(v, self.live | self.granted | self.sending)
        near = touched & self.live
        if touched & self.granted:
            self.tell(i, f"`{name}` overwrites a slot that is granted to a message")
        elif touched & self.sending:
            self.tell(i, f"`{name}` overwrites bytes of a message that has not been waited for")
        if in_place and not self._is_first(v, near):
            return
        covered = near & places.around(v)
        ended = near & ~covered & ~places.inside(v)
        over = covered | ended
        self.events.append(Event(v, over))
        self.live &= ~over
        for u in bits(ended):
            self._end(i, u)
        self._bear(v)

    def _is_first(self, v: int, near: int) -> bool:
        """True if the bytes of v are of an argument, and some are as the caller left them."""
        own = near & ~self.places.given
        if self.places.space[v] == LOCAL or own & self.places.inside(v):
            return False
        return not (own and self.objects.cover(own, v))

    def _bear(self, v: int) -> None:
        """Make the object that v holds from now on."""
        self.live |= 1 << v
        self.ended &= ~(1 << v)
        self.torn &= ~(1 << v)
        self.objects.bear(v)
        for u in bits(self.places.touching(v, self.torn)):
            if self.places.relation(u, v)[1]:
                self.torn &= ~(1 << u)

    def _end(self, i: int, u: int) -> None:
        """End the object of u, which instruction i destroys."""
        self.ended |= 1 << u
        self.ended_by[u] = i
        if self.places.touching(u, self.live) & self.places.inside(u):  # it leaves a hole in another object
            self.torn |= 1 << u


def _good(body: Body, places: Places) -> list[int]:
    """By operand, those whose objects it may read: of its element type, and on its side of what is handed on."""
    dtypes = np.array([DTYPES.index(o.dtype) for o in body.operands], np.int64)
    of_type = {n: places.given | mask_of(dtypes == n) for n in np.unique(dtypes).tolist()}
    if not places.handed:
        return [of_type[n] for n in dtypes.tolist()]
    arguments = places.given | mask_of(body.argument >= 0)
    sides = zip(dtypes.tolist(), (body.argument >= 0).tolist(), strict=True)
    return [of_type[n] & (arguments if is_argument else ~arguments) for n, is_argument in sides]
