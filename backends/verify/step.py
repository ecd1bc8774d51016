"""The whole step on every kind of die: calls one after the other, each by the summary of its procedure.

Dies whose procedures need and leave the same bytes go through the step together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.verify.calls import DynamicCall, distinct_calls, sharing
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.procedure import Summary, Tell, Where, summarise
from wscc.backends.verify.views import view_runs
from wscc.backends.verify.walk import Line, Walk
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Column, Operand, Streams, stage_of_role

Extents = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Bodies:
    """The procedures of all roles, equal ones once, and what is known of them by the offsets that a die has."""

    streams: Streams
    manifest: Manifest
    findings: Findings
    _numbers: dict[Code, int] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)
    _columns: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _views: dict[int, tuple[Operand, ...]] = field(default_factory=dict)
    _extents: dict[tuple[int, tuple[int, ...]], Extents] = field(default_factory=dict)
    _summaries: dict[tuple[int, tuple[int, ...], Where], Summary] = field(default_factory=dict)
    _same: dict[Summary, Summary] = field(default_factory=dict)

    def key(self, code: Code, die: int) -> tuple[int, tuple[int, ...]]:
        """Dies with one key for a procedure use the same bytes in it."""
        if id(code) not in self._known:  # to hash a whole procedure for every die takes longer than all else
            self._known[id(code)] = self._numbers.setdefault(code, len(self._numbers))
        number = self._known[id(code)]
        if number not in self._views:
            views = tuple(dict.fromkeys(o for x in code.body for o in (*x.writes, *x.reads)))
            self._views[number] = views
            self._columns[number] = tuple(
                dict.fromkeys(o.offset.index for o in views if isinstance(o.offset, Column))
            )
        return number, tuple(self.streams.bindings[die, list(self._columns[number])].tolist())

    def extents(self, code: Code, key: tuple[int, tuple[int, ...]]) -> Extents:
        """The bytes that the procedure reaches from the address of each argument."""
        if key not in self._extents:
            row = dict(zip(self._columns[key[0]], key[1], strict=True))
            reach: list[tuple[int, int]] = [(0, 0)] * code.args
            for o in self._views[key[0]]:
                starts, ends = view_runs(o.shape, o.strides, o.dtype.size)
                if o.arg >= 0 and len(starts):
                    offset = row[o.offset.index] if isinstance(o.offset, Column) else o.offset
                    low, high = int(starts[0]) + offset, int(ends[-1]) + offset
                    old = reach[o.arg]
                    reach[o.arg] = (low, high) if old == (0, 0) else (min(old[0], low), max(old[1], high))
            self._extents[key] = tuple(reach)
        return self._extents[key]

    def summary(self, code: Code, die: int, key: tuple[int, tuple[int, ...]], where: Where) -> Summary:
        known = self._summaries.get((*key, where))
        if known is None:
            made = summarise(code, self.streams.bindings[die], where, self._tell(code, die))
            known = self._summaries[(*key, where)] = self._same.setdefault(made, made)
        return known

    def _tell(self, code: Code, die: int) -> Tell:
        name = die_name(self.streams.dies[die], self.manifest)
        return lambda i, words: self.findings.add(Finding("memory", words, name, code.name, i))


def check_step(streams: Streams, manifest: Manifest, findings: Findings) -> None:
    """Every read of every die is of bytes that were written, by the host or in the step, and still hold it."""
    bodies = Bodies(streams, manifest, findings)
    stages = stage_of_role(streams)
    codes = {p.role: {c.name: c for c in p.procedures} for p in streams.programs}
    calls = [list(distinct_calls(step)) for step in streams.steps]
    lines: dict[tuple[object, ...], tuple[Line, ...]] = {}
    done: dict[tuple[int, tuple[int, ...]], None] = {}
    for die, role in enumerate(streams.roles):
        mine, stage = codes[role], stages[role]
        called = dict.fromkeys(name for name, _ in calls[stage])
        keys = {name: bodies.key(mine[name], die) for name in called}
        known = (stage, *keys.values())
        if known not in lines:
            lines[known] = tuple(_lines(bodies, die, mine, keys, calls[stage]))
        # Equal summaries are one object.
        way = stage, tuple(id(summary) for _, summary, _ in lines[known])
        if way not in done:
            done[way] = None
            Walk(die_name(streams.dies[die], manifest), stage, manifest, findings).run(lines[known])


def _lines(
    bodies: Bodies, die: int, codes: dict[str, Code], keys: dict[str, tuple[int, tuple[int, ...]]],
    calls: Sequence[DynamicCall],
) -> Iterator[Line]:  # fmt: skip
    """Each call with its summary and the addresses of its spaces."""
    for name, addresses in calls:
        where, spaces = sharing(addresses, bodies.extents(codes[name], keys[name]))
        yield name, bodies.summary(codes[name], die, keys[name], where), spaces
