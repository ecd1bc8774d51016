"""The memory use of a die over a step: resident arrays, values kept between calls, and locals of the running call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.compose import Composer, Entry, Observer
from wscc.backends.simulator.locals import Locals, adds, locals_of
from wscc.diagnostics import Code, fail
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.profile import Origin, Profile
from wscc.ir.streams.program import Address, ProgramCall, ProgramStep

MAX_CALLS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A call of a step: the time at which it begins (ticks), and the most bytes that are live in it."""

    begin: int
    procedure: str
    resident: int
    kept: int
    locals: int

    @property
    def live(self) -> int:
        return self.resident + self.kept + self.locals


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory use of the dies of a stage. `resident` are bytes of arrays that live through the step, by kind;
    `at_peak` the values that are live at the peak, the largest first: (bytes, text, origin)."""

    stage: int
    resident: dict[str, int]
    moments: tuple[Moment, ...]
    at_peak: tuple[tuple[int, str, Origin | None], ...]

    @property
    def peak(self) -> Moment:
        return max(self.moments, key=lambda m: m.live)


def memory_over_time(builder: Builder, manifest: Manifest, profile: Profile) -> tuple[MemoryUse, ...]:
    """The memory use of each stage; all its dies share the memory map of the first. `CompileError` W003 for a step
    of more than `MAX_CALLS` calls."""
    count = max(_calls(step) for step in builder.streams.steps)
    if count > MAX_CALLS:
        raise fail(
            Code.LIMIT, f"a step makes {count:,} calls; memory is followed over {MAX_CALLS:,} at most",
            help="look at fewer micro-batches: `--set train.batch=N`",
        )  # fmt: skip
    firsts = [builder.stages.index(s) for s in range(len(builder.streams.steps))]
    begins: dict[int, list[int]] = {die: [] for die in firsts}

    def called(entry: Entry, begin: int) -> None:
        for die, state in zip(entry.cluster.dies, entry.state, strict=True):
            if die in begins:
                begins[die].append(begin + state)

    Composer(builder, Observer(called, lambda *_: None), unrolled=True).run()
    return tuple(
        _Stage(builder, manifest, profile, stage, die).use(begins[die]) for stage, die in enumerate(firsts)
    )


@dataclass(slots=True)
class _LiveRange:
    """A value at one address that is live between calls: from call `first` to call `last`, its size and its writer."""

    first: int
    last: int
    size: int
    writer: tuple[str, Origin | None]


@dataclass(slots=True)
class _Stage:
    builder: Builder
    manifest: Manifest
    profile: Profile
    stage: int
    die: int
    locals: dict[str, Locals] = field(default_factory=dict)
    modes: dict[str, list[tuple[bool, Origin | None]]] = field(default_factory=dict)

    def use(self, begins: list[int]) -> MemoryUse:
        resident, spans = self._resident()
        calls = list(self._calls(spans))
        ranges = self._live_ranges(calls)
        change = np.zeros(len(calls) + 1, np.int64)
        for r in ranges:
            change[r.first] += r.size
            change[r.last + 1] -= r.size
        live, whole = np.cumsum(change).tolist(), sum(resident.values())
        moments = tuple(
            Moment(begin, name, whole, kept_now, self._locals(name).peak)
            for begin, (name, _), kept_now in zip(begins, calls, live, strict=False)
        )
        peak = max(range(len(moments)), key=lambda i: moments[i].live)
        return MemoryUse(self.stage, resident, moments, self._live_at(peak, moments[peak], resident, ranges))

    def _live_at(
        self, call: int, moment: Moment, resident: dict[str, int], ranges: list[_LiveRange]
    ) -> tuple[tuple[int, str, Origin | None], ...]:
        """The values that are live at a call, as in `MemoryUse.at_peak`."""
        sizes: dict[tuple[str, Origin | None], int] = {(kind, None): n for kind, n in resident.items() if n}
        for r in ranges:
            if r.first <= call <= r.last:
                key = f"kept from {r.writer[0]}", r.writer[1]
                sizes[key] = sizes.get(key, 0) + r.size
        for origin, n in self._locals(moment.procedure).by_origin:
            sizes[f"local of {moment.procedure}", origin] = n
        return tuple(
            (n, words, origin) for (words, origin), n in sorted(sizes.items(), key=lambda f: (-f[1], f[0][0]))
        )

    def _resident(self) -> tuple[dict[str, int], list[tuple[int, int]]]:
        """Bytes of the arrays in the manifest, by kind, and their address ranges."""
        by_kind: dict[str, int] = {}
        spans = set()
        for tensor in self.manifest.tensors:
            for part in tensor.parts:
                if part.stage in (-1, self.stage):
                    span = part.address, part.address + part.count * part.stride
                    if span not in spans:
                        by_kind[str(tensor.kind)] = by_kind.get(str(tensor.kind), 0) + span[1] - span[0]
                    spans.add(span)
        return by_kind, sorted(spans)

    def _calls(self, spans: list[tuple[int, int]]) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
        """Every call of the step with the arguments (number, address) that are in no resident array."""
        step = self.builder.streams.steps[self.stage]
        yield from _dynamic(step, {}, {}, spans)

    def _live_ranges(self, calls: list[tuple[str, tuple[tuple[int, int], ...]]]) -> list[_LiveRange]:
        """The live range of every value: from the call that writes it to the last that reads it before the next
        write to its address."""
        current: dict[int, _LiveRange] = {}
        ended: list[_LiveRange] = []
        for t, (name, args) in enumerate(calls):
            modes = self._modes(name)
            reaches = self.builder.reaches(self.stage, name)
            for number, address in args:
                low, high = reaches[number]
                writes, origin = modes[number]
                old = current.get(address)
                if old is None or writes:
                    if old is not None and old.first < t:
                        old.last = min(old.last, t - 1)
                        ended.append(old)
                    current[address] = _LiveRange(t if writes else 0, t, high - low, (name, origin))
                else:
                    old.last, old.size = t, max(old.size, high - low)
        return ended + list(current.values())

    def _locals(self, procedure: str) -> Locals:
        if procedure not in self.locals:
            self.locals[procedure] = locals_of(self.builder, self.die, procedure, self._origins(procedure))
        return self.locals[procedure]

    def _origins(self, procedure: str) -> tuple[Origin, ...]:
        role = self.builder.streams.roles[self.die]
        return self.profile.instructions(role, self.builder.code(self.die, procedure))

    def _modes(self, procedure: str) -> list[tuple[bool, Origin | None]]:
        """(is written before it is read, origin of the last write) of each argument."""
        if procedure not in self.modes:
            code = self.builder.code(self.die, procedure)
            modes: list[tuple[bool, Origin | None] | None] = [None] * code.args
            for x, origin in zip(code.body, self._origins(procedure), strict=True):
                for o in x.reads:
                    if o.arg >= 0 and modes[o.arg] is None:
                        modes[o.arg] = False, None
                for o in x.writes:
                    if o.arg >= 0:
                        before = modes[o.arg]
                        modes[o.arg] = not adds(x) if before is None else before[0], origin
            self.modes[procedure] = [m or (False, None) for m in modes]
        return self.modes[procedure]


def _calls(step: ProgramStep) -> int:
    return sum(1 if isinstance(s, ProgramCall) else s.count * _calls(s.body) for s in step)


def _dynamic(
    step: ProgramStep, variables: dict[str, int], chosen: dict[int, list[tuple[int, Address]]],
    spans: list[tuple[int, int]],
) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:  # fmt: skip
    """The calls as `dynamic_calls` gives them, without arguments whose base is in one of the spans."""
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            if id(stmt) not in chosen:
                chosen[id(stmt)] = [
                    (i, a) for i, a in enumerate(stmt.args) if not any(lo <= a.base < hi for lo, hi in spans)
                ]
            yield stmt.procedure, tuple((i, a.at(variables)) for i, a in chosen[id(stmt)])
        else:
            for turn in range(stmt.count):
                yield from _dynamic(stmt.body, {**variables, stmt.variable: turn}, chosen, spans)
