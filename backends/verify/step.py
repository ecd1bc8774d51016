"""A check of memory over the whole step of every die: its calls in order, each by the summary of its procedure.

Dies whose procedures need and leave the same bytes go through the step together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.verify.body import Actions, Body
from wscc.backends.verify.calls import DynamicCall, distinct_calls, sharing
from wscc.backends.verify.distinct import Distinct
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.places import Places, Sharing
from wscc.backends.verify.procedure import Tell, scan
from wscc.backends.verify.summary import Summary, summary
from wscc.backends.verify.views import Ints
from wscc.backends.verify.walk import Walk
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Streams, stage_of_role

Extents = tuple[tuple[tuple[int, int], ...], tuple[int, int]]
# A procedure by its number, and its offsets on a die: dies with equal keys access the same bytes in it.
Key = tuple[int, bytes]


# A procedure on a die with the sharing of a call.
Shared = tuple[Key, Sharing]
# Operands of dies that are placed together: to find how they lie takes their square.
_TOGETHER: Final = 1 << 12


@dataclass(slots=True)
class Bodies:
    """Caches of the extents and summaries of procedures, by the offsets that a die has; equal procedures are one."""

    streams: Streams
    manifest: Manifest
    findings: Findings
    _distinct: Distinct = field(default_factory=Distinct)
    _actions: Actions = field(default_factory=Actions)
    _bodies: dict[int, Body] = field(default_factory=dict)
    _extents: dict[Key, Extents] = field(default_factory=dict)
    _summaries: dict[Shared, Summary] = field(default_factory=dict)
    _same: dict[Summary, Summary] = field(default_factory=dict)

    def key(self, code: Code, die: int) -> Key:
        """The key of a procedure on a die."""
        number = self._distinct.number(code)
        if number not in self._bodies:
            self._bodies[number] = Body.of(code, self._actions)
        return number, self.streams.bindings[die, self._bodies[number].columns].tobytes()

    def extents(self, key: Key, die: int) -> Extents:
        """The bytes (low, high) that the procedure accesses, from the address of each argument; last, its locals."""
        if key not in self._extents:
            self._extents[key] = self._bodies[key[0]].extents(self._offsets(key, die))
        return self._extents[key]

    def scan(self, wanted: Mapping[Shared, int]) -> None:
        """Scan each procedure once for all dies that access the same bytes in it; `wanted` has one of them."""
        groups: dict[tuple[str, Sharing], list[tuple[Key, int]]] = {}
        for (key, shared), die in wanted.items():
            groups.setdefault((self._bodies[key[0]].code.name, shared), []).append((key, die))
        for (_, shared), group in groups.items():
            for some in self._together(group):
                self._scan(some, shared)

    def _together(self, group: Sequence[tuple[Key, int]]) -> Iterator[list[tuple[Key, int]]]:
        """Dies that are placed together: as many as have no more operands than twice those of one, or `_TOGETHER`."""
        some: list[tuple[Key, int]] = []
        operands: set[tuple[int, int]] = set()
        most = 0
        for key, die in group:
            body = self._bodies[key[0]]
            own = set(zip(self._offsets(key, die).tolist(), body.kind.tolist(), strict=True))
            most = max(most, len(own))
            if some and len(operands | own) > max(2 * most, _TOGETHER):
                yield some
                some, operands = [], set()
            some.append((key, die))
            operands |= own
        yield some

    def _scan(self, some: Sequence[tuple[Key, int]], shared: Sharing) -> None:
        places = Places([(self._bodies[key[0]], self._offsets(key, die)) for key, die in some], shared)
        for (key, die), placed in zip(some, places.placed, strict=True):
            outcome = scan(placed, places, self._tell(placed.body.code, die))
            made = summary(outcome, placed, places)
            self._summaries[key, shared] = self._same.setdefault(made, made)

    def summary(self, shared: Shared) -> Summary:
        """The summary of a procedure that has been scanned; equal summaries are one object."""
        return self._summaries[shared]

    def _offsets(self, key: Key, die: int) -> Ints:
        return self._bodies[key[0]].offsets(self.streams.bindings[die])

    def _tell(self, code: Code, die: int) -> Tell:
        name = die_name(self.streams.dies[die], self.manifest)
        return lambda i, words: self.findings.add(Finding("memory", words, name, code.name, i))


def check_step(streams: Streams, manifest: Manifest, findings: Findings) -> None:
    """Check that every read of every die is of bytes that the host or the step wrote and that were not destroyed."""
    bodies = Bodies(streams, manifest, findings)
    calls = [list(distinct_calls(step)) for step in streams.steps]
    wanted: dict[Shared, int] = {}
    lines: dict[tuple[object, ...], tuple[int, int, list[_Call]]] = {}
    for die, stage, keys in _keys(bodies, calls):
        step_key = (stage, *keys.values())
        if step_key not in lines:
            lines[step_key] = die, stage, list(_calls(bodies, die, keys, calls[stage]))
            for _, shared, _ in lines[step_key][2]:
                wanted.setdefault(shared, die)
    bodies.scan(wanted)
    done: set[tuple[int, tuple[int, ...]]] = set()
    for die, stage, made in lines.values():
        whole = tuple((name, bodies.summary(shared), spaces) for name, shared, spaces in made)
        # Equal summaries are one object.
        summaries = stage, tuple(id(summary) for _, summary, _ in whole)
        if summaries not in done:
            done.add(summaries)
            Walk(die_name(streams.dies[die], manifest), stage, manifest, findings).run(whole)


# A call: the name and sharing of its procedure, and the address of each of its spaces.
_Call = tuple[str, Shared, tuple[int, ...]]


def _keys(
    bodies: Bodies, calls: Sequence[Sequence[DynamicCall]]
) -> Iterator[tuple[int, int, dict[str, Key]]]:
    """Each die with its stage and the keys of the procedures that it calls."""
    streams = bodies.streams
    stages = stage_of_role(streams)
    codes = {p.role: {c.name: c for c in p.procedures} for p in streams.programs}
    called = [dict.fromkeys(name for name, _ in of_stage) for of_stage in calls]
    for die, role in enumerate(streams.roles):
        stage = stages[role]
        yield die, stage, {name: bodies.key(codes[role][name], die) for name in called[stage]}


def _calls(bodies: Bodies, die: int, keys: dict[str, Key], calls: Sequence[DynamicCall]) -> Iterator[_Call]:
    """Each call with the sharing of its procedure and the addresses of its spaces."""
    shared_of: dict[tuple[str, Sharing], Shared] = {}
    for name, addresses in calls:
        shared, spaces = sharing(addresses, *bodies.extents(keys[name], die))
        yield name, shared_of.setdefault((name, shared), (keys[name], shared)), spaces
