"""Arrays that one call hands to the next: when each holds a value, and where it lies among the locals of procedures.

An array holds a value from the call that writes it to the last call that reads that value. These are the live variables
of a step, found by the usual backward iteration over successive calls (Aho, Lam, Sethi, Ullman, "Compilers", section
9.2.5). Locals of a procedure may have its bytes whenever it holds none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from wscc.analysis.memory.gaps import lowest_gap
from wscc.analysis.memory.stride import element_stride
from wscc.analysis.successive_calls import successive
from wscc.ir.module import Mode, Module
from wscc.ir.step import Call

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Handed:
    """What calls of one procedure do with an array that is handed on, in `bytes` from `address` on: the arguments that
    read it and those that write it, and whether a value in it may live through a call."""

    array: str
    bytes: int
    address: int
    reads: Names
    writes: Names
    lives_on: bool


# The arrays that are handed to, by, or past the calls of a procedure, by its name.
HandedIn = Mapping[str, tuple[Handed, ...]]


def handed_in(module: Module) -> HandedIn:
    """The arrays that are handed to, by, or past the calls of each procedure."""
    places = handed_places(module)
    calls: dict[tuple[str, str], list[_Live]] = defaultdict(list)
    for live in _live(module) if places else ():
        for name in live.present:
            calls[live.call.procedure, name].append(live)
    found: dict[str, list[Handed]] = defaultdict(list)
    for (procedure, name), lives in calls.items():
        size = element_stride(module, module.array(name))
        reads = Names().union(*(live.reads.get(name, ()) for live in lives))
        writes = Names().union(*(live.writes.get(name, ()) for live in lives))
        lives_on = any(name in live.before & live.after - live.writes.keys() for live in lives)
        found[procedure].append(Handed(name, size, places[name], reads, writes, lives_on))
    return {name: tuple(handed) for name, handed in found.items()}


def handed_places(module: Module) -> dict[str, int]:
    """The address of each array that is handed on: the lowest at which it overlaps none that the same call meets."""
    names = [a.name for a in module.arrays if a.handed]
    if not names:
        return {}
    met: dict[str, set[str]] = {n: set() for n in names}
    for live in _live(module):
        for n in live.present:
            met[n] |= live.present
    places: dict[str, int] = {}
    sizes = {n: element_stride(module, module.array(n)) for n in names}
    for n in names:
        taken = sorted((places[m], places[m] + sizes[m]) for m in places if m in met[n])
        places[n] = lowest_gap(taken, sizes[n])
    return places


@dataclass(frozen=True, slots=True)
class _Live:
    """The arguments of a call by the handed array that they read or write, and the arrays that hold a value before and
    after it."""

    call: Call
    reads: dict[str, Names]
    writes: dict[str, Names]
    before: Names
    after: Names

    @property
    def present(self) -> Names:
        return Names((*self.reads, *self.writes, *self.before, *self.after))


def _live(module: Module) -> list[_Live]:
    """The liveness of the arrays that are handed on, at each call of the step; at equal calls, of all of them."""
    handed = {a.name for a in module.arrays if a.handed}
    found = []
    for body in module.steps():
        pairs = [(a.call, b.call) for a, b in successive(body) if a and b]
        uses = {c: _uses(c, module, handed) for pair in pairs for c in pair}
        before: dict[Call, Names] = {c: Names(reads) for c, (reads, _) in uses.items()}
        after: dict[Call, Names] = dict.fromkeys(uses, Names())
        changed = True
        while changed:
            changed = False
            for a, b in reversed(pairs):
                if not before[b] <= after[a]:
                    after[a] |= before[b]
                    before[a] |= after[a] - uses[a][1].keys()
                    changed = True
        found += [_Live(c, *uses[c], before[c], after[c]) for c in uses]
    return found


def _uses(call: Call, module: Module, handed: set[str]) -> tuple[dict[str, Names], dict[str, Names]]:
    """The arguments that read, and those that write, each handed array."""
    procedure = module.procedure(call.procedure)
    reads: dict[str, Names] = {}
    writes: dict[str, Names] = {}
    modes: list[Mode | None] = [*(None for _ in procedure.inputs), *(o.mode for o in procedure.outputs)]
    for mode, value, ref in zip(modes, procedure.arguments, call.args, strict=True):
        if ref.array in handed:
            # What is added to is read as well.
            sides = [reads] if mode is None else [writes] if mode is Mode.WRITE else [reads, writes]
            for side in sides:
                side[ref.array] = side.get(ref.array, Names()) | {value.name}
    return reads, writes
