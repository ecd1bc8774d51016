"""Hazards inside one procedure on one die.

Every write makes an *object* of its bytes. Unwritten bytes may not be read. A write over a part of an object, and
over bytes beside it, ends the object: its memory has been given to another value, and the rest of the object may not
be read either. So two live buffers that share bytes are found without a list of buffers. A write in place (`x += y`)
changes what it has just read, which is no new value: all objects in it live on.

An object is known by the operand that wrote it. What an access finds depends on the live objects that touch its operand
alone, mostly one or two, so that it is found once for these, whatever die and time it is (`Places`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from wscc.backends.verify.body import DTYPES, Act, Action
from wscc.backends.verify.objects import NEVER, Objects
from wscc.backends.verify.places import LOCAL, Placed, Places, bits
from wscc.backends.verify.views import Runs, common, minus, repeats

Tell = Callable[[int, str], None]
# Of `Places.readable`: no part of the caller's is read.
_OWN: Final = -1
# Members of an enumeration are found slowly, and a scan asks for them at every instruction.
_COMPUTE, _POST, _SEND, _RECEIVED, _SENT = Act.COMPUTE, Act.POST, Act.SEND, Act.RECEIVED, Act.SENT


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scan ends with. `written` are operands that were written, in the order of their last time, `ended` those
    whose objects were ended; of the operands `taken` are read bytes that the caller wrote: all that are not in the set
    with each."""

    written: tuple[int, ...]
    ended: int
    taken: tuple[tuple[int, int], ...]


def scan(placed: Placed, places: Places, tell: Tell) -> Outcome:
    """The outcome of the procedure on one of the dies of `places`; `tell` is called with the number of an instruction
    and the text of an error in it."""
    places.prepare(placed.numbers)
    return _Scan(placed, places, tell).outcome()


class _Scan:
    """The state while the procedure runs, as sets of operands: those whose objects are `live`; those that were `ended`,
    and of these the `torn`, which lay inside others that live on; those `granted` to messages and being sent."""

    def __init__(self, placed: Placed, places: Places, tell: Tell) -> None:
        self.placed, self.places, self.tell = placed, places, tell
        self.number = {n: placed.numbers[v] for n, v in placed.body.local.items()}
        self.live, self.ended, self.torn, self.granted, self.sending = placed.given, 0, 0, 0, 0
        self.ended_by: dict[int, int] = {}
        self.objects = Objects(places)
        # By channel, the operands of messages in flight; by operand, how many of them.
        self.slots: dict[int, int] = {}
        self.messages: dict[int, int] = {}
        self.sends: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        # By torn object, the live ones that touch it when it was last found to be whole in part.
        self.kept: dict[int, int] = {}

    def outcome(self) -> Outcome:
        number, bit = self.number, self.places.bit
        for i, action in enumerate(self.placed.body.actions):
            act = action.act
            if act is _COMPUTE:
                self._compute(i, action)
            elif act is _RECEIVED:
                v = self.slots.pop(action.channel, None)
                if v is not None:
                    self.granted &= ~bit[v]
            elif act is _SENT:
                v = self.messages.pop(action.channel, None)
                if v is not None:
                    self._sent(v)
            elif act is _POST:
                v = self.slots[action.channel] = number[action.writes[0]]
                self.write(i, action, 0, v)
                self.granted |= bit[v]
            elif act is _SEND:
                v = self.messages[action.channel] = number[action.reads[0]]
                self.read(i, action, 0, v)
                self.sending |= bit[v]
                self.sends[v] = self.sends.get(v, 0) + 1
        last = sorted((n, v) for v, n in enumerate(self.objects.born) if n != NEVER)
        return Outcome(tuple(v for _, v in last), self.ended, tuple(self.taken.items()))

    def _sent(self, v: int) -> None:
        self.sends[v] -= 1
        if not self.sends[v]:
            self.sending &= ~self.places.bit[v]

    def _compute(self, i: int, action: Action) -> None:
        number, distinct = self.number, self.places.distinct
        writes, reads = tuple([number[n] for n in action.writes]), tuple([number[n] for n in action.reads])
        for n, v in enumerate(reads, len(writes)):
            self.read(i, action, n, v)
        if action.accumulates:
            for n, v in enumerate(writes):
                self.read(i, action, n, v)
        operands = action.x.opcode == "gemm", writes, reads
        if operands not in distinct and self._are_distinct(i, action, writes, reads):
            distinct.add(operands)
        for n, v in enumerate(writes):
            self.write(i, action, n, v, in_place=action.in_place[n])

    def _are_distinct(self, i: int, action: Action, writes: tuple[int, ...], reads: tuple[int, ...]) -> bool:
        """Check that no write is over another operand of its instruction. An elementwise instruction may write the view
        that it reads, a product may not."""
        wrong = []
        for n, v in enumerate(writes):
            if repeats(self.places.operands[v]):
                wrong.append(f"`{action.names[n]}` is written, and two elements of it share bytes")
            over = [m for m, u in enumerate(writes[:n]) if self.places.relation(v, u)[0]]
            over += [
                m
                for m, u in enumerate(reads, len(writes))
                if self.places.relation(v, u)[0] and (action.x.opcode == "gemm" or not self._same_view(v, u))
            ]
            wrong += [f"`{action.names[n]}` is written over `{action.names[m]}`" for m in over]
        for words in wrong:
            self.tell(i, words)
        return not wrong

    def _same_view(self, v: int, u: int) -> bool:
        a, b = self.places.operands[v], self.places.operands[u]
        return (a.shape, a.strides) == (b.shape, b.strides) and all(self.places.relation(v, u))

    # ---- reads

    def read(self, i: int, action: Action, n: int, v: int) -> None:
        """Check the read of operand v, the n-th of an instruction: its bytes must be written, in one element type, and
        be in no granted slot."""
        places = self.places
        touched = places.touching(v, self.live | self.granted | self.torn)
        near = touched & self.live
        own = places.readable[v].get(near)
        if own is None or touched & (self.granted | self.torn):
            self._read(i, action.names[n], v, touched)
        elif own != _OWN:
            self.taken.setdefault(v, own)

    def _read(self, i: int, name: str, v: int, touched: int) -> None:
        places, near = self.places, touched & self.live
        if places.is_empty(v):
            return
        if touched & self.granted:
            self.tell(i, f"`{name}` reads a slot whose message has not been waited for")
        bad = near & ~places.good[v] | touched & self.torn
        if not self.objects.hold(v, near, bad):
            self._trace(i, name, v)
            return
        own = self._own(v, near)
        if own != _OWN:
            self.taken.setdefault(v, own)
        if not bad:
            places.readable[v][near] = own
        self._forget(touched & self.torn)

    def _forget(self, torn: int) -> None:
        """Forget those torn objects of which all bytes have been overwritten, in parts."""
        for u in bits(torn):
            near = self.places.touching(u, self.live)
            if self.kept.get(u) == near:
                continue
            self.kept[u] = near
            later = self.objects.later(near, self.objects.born[u])
            if later and self.places.covers(later, u):
                self.torn ^= 1 << u

    def _own(self, v: int, near: int) -> int:
        """The operands that have written the bytes of v that the caller has not; `_OWN` if these are all."""
        own = near & ~self.places.given
        if near == own or own & self.places.inside(v) or (own and self.places.covers(own, v)):
            return _OWN
        return own

    def _trace(self, i: int, name: str, v: int) -> None:
        """Say what is wrong with the read of v, from what last wrote each of its bytes; nothing may be."""
        places = self.places
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
            own = self._own(v, places.touching(v, self.live | self.ended))
            if own != _OWN:
                self.taken.setdefault(v, own)
        self._check_side(i, name, v, held)
        dtypes = {places.operands[u].dtype for u in held if not places.given >> u & 1}
        if wrong := dtypes - {places.operands[v].dtype}:
            written = min(wrong, key=DTYPES.index)
            self.tell(i, f"`{name}` reads as {places.operands[v].dtype} what was written as {written}")
        if lost:
            self._bear(v)  # reported once

    def _check_side(self, i: int, name: str, v: int, held: Sequence[int]) -> None:
        """Check that an argument is read where one was written, and a local where a local was, since what is handed on
        lies among the locals."""
        if not self.placed.handed:
            return
        of_argument = [bool(self.places.given >> u & 1) or self.places.operands[u].arg >= 0 for u in held]
        if self.places.operands[v].arg >= 0 and not all(of_argument):
            self.tell(i, f"`{name}` reads an argument whose bytes a local has overwritten")
        elif self.places.operands[v].arg < 0 and any(of_argument):
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

    def write(self, i: int, action: Action, n: int, v: int, *, in_place: bool = False) -> None:
        """Check the write of operand v, the n-th of an instruction: no message may use its bytes. It ends objects that
        it covers in part, unless the instruction has read the same operand."""
        places = self.places
        touched = places.touching(v, self.live | self.granted | self.sending)
        near = touched & self.live
        if touched & (self.granted | self.sending):
            self._tell_overwritten(i, action.names[n], touched)
        if in_place and not self._is_first(v, near):
            return
        known = places.overwritten[v].get(near)
        if known is None:
            if places.is_empty(v):
                return
            known = places.overwritten[v][near] = self._overwritten(v, near)
        over, ended = known
        self.live ^= over
        if ended:
            for u in bits(ended):
                self._end(i, u)
        self._bear(v)

    def _tell_overwritten(self, i: int, name: str, touched: int) -> None:
        if touched & self.granted:
            self.tell(i, f"`{name}` overwrites a slot that is granted to a message")
        else:
            self.tell(i, f"`{name}` overwrites bytes of a message that has not been waited for")

    def _overwritten(self, v: int, near: int) -> tuple[int, int]:
        """Of the live objects that touch v, those that a write of it takes the bytes of, and those that it ends since
        it leaves a part of them."""
        covered = near & self.places.around(v)
        ended = near & ~covered & ~self.places.inside(v)
        return covered | ended, ended

    def _is_first(self, v: int, near: int) -> bool:
        """True if the bytes of v are of an argument, and some are as the caller left them."""
        own = near & ~self.places.given
        if self.places.space[v] == LOCAL or own & self.places.inside(v):
            return False
        return not (own and self.places.covers(own, v))

    def _bear(self, v: int) -> None:
        """Make the object that v holds from now on."""
        bit = self.places.bit[v]
        self.live |= bit
        if self.ended & bit:
            self.ended ^= bit
        self.objects.bear(v)
        if self.torn:
            self.torn &= ~(bit | (self.places.touching(v, self.torn) & self.places.around(v)))

    def _end(self, i: int, u: int) -> None:
        """End the object of u, which instruction i destroys."""
        self.ended |= 1 << u
        self.ended_by[u] = i
        if self.places.touching(u, self.live) & self.places.inside(u):  # it leaves a hole in another object
            self.torn |= 1 << u
