"""Dies on which a procedure does the same, though at other addresses: what was found on one holds of the other.

A read is right if its bytes are in certain objects, which nothing has overwritten. So the places of another die need
only lie to one another as those of the first where one is accessed while the object of the other still matters: before
its last read. The dies of a ring may take the parts of a buffer in any order, and use any memory for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.objects import Objects
from wscc.backends.verify.places import LOCAL, Places, bits, mask_of
from wscc.backends.verify.procedure import Outcome
from wscc.backends.verify.views import Ints


class Basis:
    """An outcome of a scan at some places, and what it rests on: by operand, the objects that matter when it is
    `written`, or `read`. `of` are the objects that each event is about, on this die or on one that is like it."""

    def __init__(self, outcome: Outcome, places: Places) -> None:
        self.outcome, self.places = outcome, places
        self.of = [event.of for event in outcome.events]
        self.written, self.read = self._mattering()

    def _mattering(self) -> tuple[list[int], list[int]]:
        written, places = list(self.outcome.in_flight), self.places
        read = [0] * len(written)
        # What a caller sees matters to the end.
        seen = mask_of(places.body.argument >= 0) | places.given & ~places.handed
        matters = seen
        for event, of in zip(reversed(self.outcome.events), reversed(self.of), strict=True):
            if event.live:
                matters |= of
                read[event.v] |= matters
                continue
            matters = matters & ~(1 << event.v) | seen
            # What has been overwritten inside an object must be so wholly.
            for u in bits(of):
                matters |= 1 << u if places.touching(u, matters) & places.inside(u) else 0
            written[event.v] |= matters
        return written, read

    def is_alike(self, other: Places) -> bool:
        """True if the outcome is as good for the `other` places."""
        shift = self._shift(other)
        if shift is None or self._changed(self.written, other, shift):
            return False
        changed = self._changed(self.read, other, shift) | self._uncovered(other, shift)
        if not changed:
            return True
        return self._read_well(changed, other) and not self._changed(self.written, other, shift)

    def _shift(self, other: Places) -> Ints | None:
        """How far each operand lies from where it was; None if what the caller wrote has another form."""
        x = self.places
        if len(x.low) != len(other.low):
            return None
        shift: Ints = other.low - x.low
        for v in range(len(x.body.operands), len(shift)):
            (a, b), (c, d) = x.runs(v), other.runs(v)
            if not (np.array_equal(a + shift[v], c) and np.array_equal(b + shift[v], d)):
                return None
        return shift

    def _read_well(self, changed: int, other: Places) -> bool:
        """True if the operands `changed` are read from whole objects there too, which then matter until they are."""
        asked = changed
        for event, of in zip(self.outcome.events, self.of, strict=True):
            asked |= of if event.live and changed >> event.v & 1 else 0
        other.prepare(bits(asked))
        objects = Objects(other, self.outcome.good)
        all_of = list(self.of)
        for n, event in enumerate(self.outcome.events):
            v = event.v
            if not event.live:
                objects.bear(v)
            elif changed >> v & 1:
                near = other.touching(v, event.live)
                holders = objects.that_hold(v, near, other.touching(v, event.torn))
                if not holders or holders & other.given or other.space[v] != LOCAL:
                    return False
                all_of[n] |= objects.with_parts(holders, event.live | event.torn)
        if all_of != self.of:
            self.of = all_of
            self.written, _ = self._mattering()
        return True

    def _changed(self, related: list[int], other: Places, shift: Ints) -> int:
        """The operands that do not lie to all that they are `related` with as before."""
        x = self.places
        a, b = _pairs(related, shift)
        near = _between(x, a, b) | _between(other, a, b)
        a, b = a[near], b[near]
        was, now = (p.compared(a, b) for p in (x, other))
        known, differs = was[3], (was[0] != now[0]) | (was[1] != now[1]) | (was[2] != now[2])
        changed = mask_of(np.isin(np.arange(len(shift)), a[known & differs]))
        for v, u in zip(a[~known].tolist(), b[~known].tolist(), strict=True):
            if not changed >> v & 1 and x.relation(v, u) != other.relation(v, u):
                changed |= 1 << v
        return changed

    def _uncovered(self, other: Places, shift: Ints) -> int:
        """The operands that others cover no longer, or did not before."""
        changed = 0
        for (cover, v), answer in self.outcome.covered.items():
            moved = {int(shift[u]) for u in (v, *bits(cover))}
            if len(moved) > 1 and other.covers(cover, v) != answer:
                changed |= 1 << v
        return changed


def _pairs(related: list[int], shift: Ints) -> tuple[Ints, Ints]:
    """The pairs of operands that are related and of which one has moved against the other."""
    moved = mask_of(shift != 0)
    kept = [mask if moved >> v & 1 else mask & moved for v, mask in enumerate(related)]
    rows = [v for v, mask in enumerate(kept) if mask]
    size = (len(related) + 7) // 8
    packed = np.frombuffer(b"".join(kept[v].to_bytes(size, "little") for v in rows), np.uint8)
    n, b = np.nonzero(np.unpackbits(packed.reshape(len(rows), size), axis=1, bitorder="little"))
    a = np.array(rows, np.int64)[n]
    differs = shift[a] != shift[b]
    return a[differs], b[differs]


def _between(p: Places, a: Ints, b: Ints) -> NDArray[np.bool_]:
    """Whether the bytes of operands may be the same: whether one begins before the other ends."""
    near: NDArray[np.bool_] = (p.low[a] < p.high[b]) & (p.low[b] < p.high[a])
    return near
