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

import numpy as np

from wscc.backends.verify.body import DTYPES, POST, RECEIVED, SEND, UPDATE, Action
from wscc.backends.verify.objects import NEVER, Objects
from wscc.backends.verify.places import LOCAL, OWN, Placed, Places, bits
from wscc.backends.verify.views import Ints, Runs, common, minus, repeats

Tell = Callable[[int, str], None]
# The order of what is told of one instruction: its reads, its operands among themselves, its writes.
_READS, _OPERANDS, _WRITES = range(3)


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
    return _Scan(placed, places).outcome(tell)


class _Scan:
    """The state while the procedure runs, as sets of operands: those whose objects are `live`; the `torn`, which were
    ended and lay inside others that live on; those `granted` to messages and being sent. `ended_by` has the instruction
    that ended the object of an operand."""

    def __init__(self, placed: Placed, places: Places) -> None:
        self.placed, self.places, self.body = placed, places, placed.body
        self.live, self.torn, self.granted, self.sending = placed.given, 0, 0, 0
        self.ended_by: dict[int, int] = {}
        self.objects = Objects(places)
        self.sends: dict[int, int] = {}  # by operand, how many messages of it are in flight
        self.taken: dict[int, int] = {}
        # By torn object, the live ones that touch it when it was last found to be whole in part.
        self.kept: dict[int, int] = {}
        self.wrong: list[tuple[int, int, str]] = []

    def outcome(self, tell: Tell) -> Outcome:
        number: Ints = np.array(self.placed.numbers, np.int64)
        self._check_operands()
        self._run(number[self.body.accesses.operand].tolist())
        for i, _, words in sorted(self.wrong, key=itemgetter(0, 1)):
            tell(i, words)
        last = sorted((n, v) for v, n in enumerate(self.objects.born) if n != NEVER)
        return Outcome(tuple(v for _, v in last), self.ended, tuple(self.taken.items()))

    @property
    def ended(self) -> int:
        """The operands whose objects were ended."""
        return sum(1 << v for v in self.ended_by)

    def _run(self, operands: Sequence[int]) -> None:
        """Go through the accesses, of these operands. There are millions: what was found before takes no call."""
        rows, readable, bit = self.places.rows, self.places.readable, self.places.bit
        taken, sends = self.taken, self.sends
        for t, (kind, v) in enumerate(zip(self.body.accesses.kind, operands, strict=True)):
            if kind <= SEND:
                reach = rows[v].reach
                own = readable[v].get(reach & self.live)
                if own is None or reach & (self.granted | self.torn):
                    self._read(t, v)
                elif own != OWN and v not in taken:
                    taken[v] = own
                if kind == SEND:
                    self.sending |= bit[v]
                    sends[v] = sends.get(v, 0) + 1
            elif kind <= UPDATE:
                if rows[v].reach & (self.granted | self.sending):
                    self._check_messages(t, v)
                if kind != UPDATE or self._is_first(v):
                    self._write(t, v)
                if kind == POST:
                    self.granted |= bit[v]
            elif kind == RECEIVED:
                self.granted &= ~bit[v]
            else:
                sends[v] -= 1
                if not sends[v]:
                    self.sending &= ~bit[v]

    def _say(self, t: int, rank: int, words: str) -> None:
        """Tell what is wrong with access t, behind the name of its operand."""
        accesses = self.body.accesses
        i = accesses.instruction[t]
        name = self.body.actions[i].names[accesses.position[t]]
        self.wrong.append((i, rank, f"`{name}` {words}"))

    # ---- operands of one instruction

    def _check_operands(self) -> None:
        """Check that no write is over another operand of its instruction. An elementwise instruction may write the view
        that it reads, a product may not."""
        numbers, distinct = self.placed.numbers, self.places.distinct
        for action, operands in self.body.computing:
            mine = tuple([numbers[v] for v in operands])
            key = action.x.opcode == "gemm", action.writes, mine
            if key in distinct:
                continue
            if wrong := list(self._overlaps(action, mine)):
                found = (i for i, a in enumerate(self.body.actions) if a is action)
                self.wrong += [(i, _OPERANDS, words) for i in found for words in wrong]
            else:
                distinct.add(key)

    def _overlaps(self, action: Action, operands: tuple[int, ...]) -> Iterator[str]:
        names, places = action.names, self.places
        for n, v in enumerate(operands[: action.writes]):
            if repeats(places.operands[v]):
                yield f"`{names[n]}` is written, and two elements of it share bytes"
            for m, u in enumerate(operands):
                if not (m < n or m >= action.writes) or not places.relation(v, u)[0]:
                    continue
                if m < n or action.x.opcode == "gemm" or not self._same_view(v, u):
                    yield f"`{names[n]}` is written over `{names[m]}`"

    def _same_view(self, v: int, u: int) -> bool:
        a, b = self.places.operands[v], self.places.operands[u]
        return (a.shape, a.strides) == (b.shape, b.strides) and all(self.places.relation(v, u))

    # ---- reads

    def _read(self, t: int, v: int) -> None:
        """Check the read of operand v: its bytes must be written, in one element type, and be in no granted slot."""
        places, born = self.places, self.objects.born
        touched = places.touching(v, self.live | self.granted | self.torn)
        near, torn = touched & self.live, touched & self.torn
        # Mostly one that holds all of v was born behind those that v may not read.
        if not torn and (ranks := places.ranked[v].get(near)) and not touched & self.granted:
            own, holding, others = ranks
            if born[holding] > max(map(born.__getitem__, others)):
                if own != OWN:
                    self.taken.setdefault(v, own)
                return
        if places.is_empty(v):
            return
        if touched & self.granted:
            self._say(t, _READS, "reads a slot whose message has not been waited for")
        bad = near & ~places.good[v]
        if not self.objects.hold(v, near, bad | torn):
            self._trace(t, v)
            return
        own = self._own(v, near)
        if own != OWN:
            self.taken.setdefault(v, own)
        if not bad | torn:
            places.readable[v][near] = own
        elif not torn and (holding := near & places.good[v] & places.inside(v)):
            last = max(bits(holding), key=born.__getitem__)
            places.ranked[v][near] = own, last, tuple(bits(bad))
        self._forget(torn)

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
        """The operands that have written the bytes of v that the caller has not; `OWN` if these are all."""
        own = near & ~self.places.given
        if near == own or own & self.places.inside(v) or (own and self.places.covers(own, v)):
            return OWN
        return own

    def _trace(self, t: int, v: int) -> None:
        """Say what is wrong with the read of v, from what last wrote each of its bytes; nothing may be."""
        places = self.places
        writers = list(self._writers(v))
        lost = [(int(runs[0][0]), u) for u, runs in writers if u is None or u in self.ended_by]
        held = [u for u, _ in writers if u is not None and u not in self.ended_by]
        if lost:
            at, u = min(lost, key=itemgetter(0))
            reason = "that nothing has written"
            if u is not None:
                reason = f"of a value that instruction {self.ended_by[u]} has overwritten in part"
            self._say(t, _READS, f"reads bytes from {places.address(v, at)} on {reason}")
        elif places.given & sum(1 << u for u in held):
            own = self._own(v, places.touching(v, self.live | self.ended))
            if own != OWN:
                self.taken.setdefault(v, own)
        self._check_side(t, v, held)
        dtypes = {places.operands[u].dtype for u in held if not places.given >> u & 1}
        if wrong := dtypes - {places.operands[v].dtype}:
            written = min(wrong, key=DTYPES.index)
            self._say(t, _READS, f"reads as {places.operands[v].dtype} what was written as {written}")
        if lost:
            self._bear(t, v)  # reported once

    def _check_side(self, t: int, v: int, held: Sequence[int]) -> None:
        """Check that an argument is read where one was written, and a local where a local was, since what is handed on
        lies among the locals."""
        if not self.placed.handed:
            return
        of_argument = [bool(self.places.given >> u & 1) or self.places.operands[u].arg >= 0 for u in held]
        if self.places.operands[v].arg >= 0 and not all(of_argument):
            self._say(t, _READS, "reads an argument whose bytes a local has overwritten")
        elif self.places.operands[v].arg < 0 and any(of_argument):
            self._say(t, _READS, "reads as a local what was written to an argument")

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

    def _check_messages(self, t: int, v: int) -> None:
        """Check that no message uses the bytes of v, which is written."""
        if self.places.touching(v, self.granted):
            self._say(t, _WRITES, "overwrites a slot that is granted to a message")
        elif self.places.touching(v, self.sending):
            self._say(t, _WRITES, "overwrites bytes of a message that has not been waited for")

    def _write(self, t: int, v: int) -> None:
        """Make an object of operand v; it ends those that it covers in part."""
        places = self.places
        known = places.overwritten[v].get(places.rows[v].reach & self.live)
        if known is None:
            if places.is_empty(v):
                return
            near = places.touching(v, self.live)
            known = places.overwritten[v][near] = self._overwritten(v, near)
        over, ended = known
        self.live ^= over
        for u in bits(ended) if ended else ():
            self._end(t, u)
        self._bear(t, v)

    def _overwritten(self, v: int, near: int) -> tuple[int, int]:
        """Of the live objects that touch v, those that a write of it takes the bytes of, and those that it ends since
        it leaves a part of them."""
        covered = near & self.places.around(v)
        ended = near & ~covered & ~self.places.inside(v)
        return covered | ended, ended

    def _is_first(self, v: int) -> bool:
        """True if the bytes of v, which have been read, are of an argument, and some are as the caller left them."""
        if self.places.space[v] == LOCAL:
            return False
        own = self.places.touching(v, self.live) & ~self.places.given
        return not (own & self.places.inside(v) or (own and self.places.covers(own, v)))

    def _bear(self, t: int, v: int) -> None:
        """Make the object that v holds from now on."""
        bit = self.places.bit[v]
        self.live |= bit
        self.objects.born[v] = t
        self.ended_by.pop(v, None)
        if self.torn:
            self.torn &= ~(bit | (self.places.touching(v, self.torn) & self.places.around(v)))

    def _end(self, t: int, u: int) -> None:
        """End the object of u, which access t destroys."""
        self.ended_by[u] = self.body.accesses.instruction[t]
        if self.places.touching(u, self.live) & self.places.inside(u):  # it leaves a hole in another object
            self.torn |= 1 << u
