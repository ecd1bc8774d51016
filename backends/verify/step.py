"""A check of memory over the whole step of every die: its calls in order, each by the summary of its procedure.

Dies whose procedures need and leave the same bytes go through the step together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.verify.calls import DynamicCall, distinct_calls, sharing
from wscc.backends.verify.distinct import Distinct
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.procedure import Sharing, Summary, Tell, summarise
from wscc.backends.verify.views import view_runs
from wscc.backends.verify.walk import Line, Walk
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Column, Operand, Streams, stage_of_role

Extents = tuple[tuple[tuple[int, int], ...], tuple[int, int]]


@dataclass(slots=True)
class Bodies:
    """Caches of the extents and summaries of procedures, by the offsets that a die has; equal procedures are one."""

    streams: Streams
    manifest: Manifest
    findings: Findings
    _distinct: Distinct = field(default_factory=Distinct)
    _columns: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _views: dict[int, tuple[Operand, ...]] = field(default_factory=dict)
    _extents: dict[tuple[int, tuple[int, ...]], Extents] = field(default_factory=dict)
    _summaries: dict[tuple[int, tuple[int, ...], Sharing], Summary] = field(default_factory=dict)
    _same: dict[Summary, Summary] = field(default_factory=dict)

    def key(self, code: Code, die: int) -> tuple[int, tuple[int, ...]]:
        """A key of a procedure on a die: dies with equal keys access the same bytes in it."""
        number = self._distinct.number(code)
        if number not in self._views:
            # Equal operands are mostly one object, and to hash one takes long.
            objects = {id(o): o for x in code.body for o in (*x.writes, *x.reads)}
            views = tuple(dict.fromkeys(objects.values()))
            self._views[number] = views
            self._columns[number] = tuple(
                dict.fromkeys(o.offset.index for o in views if isinstance(o.offset, Column))
            )
        return number, tuple(self.streams.bindings[die, list(self._columns[number])].tolist())

    def extents(self, code: Code, key: tuple[int, tuple[int, ...]]) -> Extents:
        """The bytes (low, high) that the procedure accesses, from the address of each argument; last, its locals."""
        if key not in self._extents:
            row = dict(zip(self._columns[key[0]], key[1], strict=True))
            spans: list[tuple[int, int]] = [(0, 0)] * (code.args + 1)  # argument -1 stands for locals
            for o in self._views[key[0]]:
                starts, ends = view_runs(o.shape, o.strides, o.dtype.size)
                if len(starts):
                    offset = row[o.offset.index] if isinstance(o.offset, Column) else o.offset
                    low, high = int(starts[0]) + offset, int(ends[-1]) + offset
                    old = spans[o.arg]
                    spans[o.arg] = (low, high) if old == (0, 0) else (min(old[0], low), max(old[1], high))
            self._extents[key] = tuple(spans[:-1]), spans[-1]
        return self._extents[key]

    def summary(self, code: Code, die: int, key: tuple[int, tuple[int, ...]], sharing: Sharing) -> Summary:
        """The summary of a procedure on a die; equal summaries are one object."""
        cached = self._summaries.get((*key, sharing))
        if cached is None:
            summary = summarise(code, self.streams.bindings[die], sharing, self._tell(code, die))
            cached = self._summaries[(*key, sharing)] = self._same.setdefault(summary, summary)
        return cached

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
            lines[step_key] = tuple(_lines(bodies, die, procedures, keys, calls[stage]))
        # Equal summaries are one object.
        summaries = stage, tuple(id(summary) for _, summary, _ in lines[step_key])
        if summaries not in done:
            done[summaries] = None
            Walk(die_name(streams.dies[die], manifest), stage, manifest, findings).run(lines[step_key])


def _lines(
    bodies: Bodies, die: int, codes: dict[str, Code], keys: dict[str, tuple[int, tuple[int, ...]]],
    calls: Sequence[DynamicCall],
) -> Iterator[Line]:  # fmt: skip
    """Each call with its summary and the addresses of its spaces."""
    for name, addresses in calls:
        shared, spaces = sharing(addresses, *bodies.extents(codes[name], keys[name]))
        yield name, bodies.summary(codes[name], die, keys[name], shared), spaces
