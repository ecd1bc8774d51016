"""A check of memory over the whole step of every die: its calls in order, each by the summary of its procedure.

Dies whose procedures need and leave the same bytes go through the step together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.verify.alike import Basis
from wscc.backends.verify.body import Actions, Body
from wscc.backends.verify.calls import DynamicCall, distinct_calls, sharing
from wscc.backends.verify.distinct import Distinct
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.places import Places, Sharing
from wscc.backends.verify.procedure import Outcome, Tell, scan
from wscc.backends.verify.summary import Summary, summary
from wscc.backends.verify.walk import Line, Walk
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Streams, stage_of_role

Extents = tuple[tuple[tuple[int, int], ...], tuple[int, int]]
# A procedure by its number, and its offsets on a die: dies with equal keys access the same bytes in it.
Key = tuple[int, bytes]


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
    _scans: dict[tuple[int, Sharing], list[Basis]] = field(default_factory=dict)
    _summaries: dict[tuple[Key, Sharing], Summary] = field(default_factory=dict)
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
            body = self._bodies[key[0]]
            self._extents[key] = body.extents(body.offsets(self.streams.bindings[die]))
        return self._extents[key]

    def summary(self, key: Key, die: int, sharing: Sharing) -> Summary:
        """The summary of a procedure on a die; equal summaries are one object."""
        cached = self._summaries.get((key, sharing))
        if cached is None:
            body = self._bodies[key[0]]
            places = Places(body, body.offsets(self.streams.bindings[die]), sharing)
            made = summary(self._outcome(key, die, places, sharing), places)
            cached = self._summaries[key, sharing] = self._same.setdefault(made, made)
        return cached

    def _outcome(self, key: Key, die: int, places: Places, sharing: Sharing) -> Outcome:
        """The outcome of the procedure on a die: of a scan there, or of one that would be the same."""
        body, scans = self._bodies[key[0]], self._scans.setdefault((key[0], sharing), [])
        for known in scans:
            if known.is_alike(places):
                return known.outcome
        outcome = scan(body, places, self._tell(body.code, die))
        if outcome.clean and not outcome.traced:
            scans.append(Basis(outcome, places))
        return outcome

    def _tell(self, code: Code, die: int) -> Tell:
        name = die_name(self.streams.dies[die], self.manifest)
        return lambda i, words: self.findings.add(Finding("memory", words, name, code.name, i))


def check_step(streams: Streams, manifest: Manifest, findings: Findings) -> None:
    """Check that every read of every die is of bytes that the host or the step wrote and that were not destroyed."""
    bodies = Bodies(streams, manifest, findings)
    stages = stage_of_role(streams)
    codes = {p.role: {c.name: c for c in p.procedures} for p in streams.programs}
    calls = [list(distinct_calls(step)) for step in streams.steps]
    lines: dict[tuple[object, ...], tuple[Line, ...]] = {}
    done: dict[tuple[int, tuple[int, ...]], None] = {}
    for die, role in enumerate(streams.roles):
        procedures, stage = codes[role], stages[role]
        called = dict.fromkeys(name for name, _ in calls[stage])
        keys = {name: bodies.key(procedures[name], die) for name in called}
        step_key = (stage, *keys.values())
        if step_key not in lines:
            lines[step_key] = tuple(_lines(bodies, die, keys, calls[stage]))
        # Equal summaries are one object.
        summaries = stage, tuple(id(summary) for _, summary, _ in lines[step_key])
        if summaries not in done:
            done[summaries] = None
            Walk(die_name(streams.dies[die], manifest), stage, manifest, findings).run(lines[step_key])


def _lines(
    bodies: Bodies, die: int, keys: dict[str, Key], calls: Sequence[DynamicCall]
) -> Iterator[Line]:  # fmt: skip
    """Each call with its summary and the addresses of its spaces."""
    for name, addresses in calls:
        shared, spaces = sharing(addresses, *bodies.extents(keys[name], die))
        yield name, bodies.summary(keys[name], die, shared), spaces
