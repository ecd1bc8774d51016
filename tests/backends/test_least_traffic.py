"""The least traffic of HBM against every division of the unrolled step into windows, byte by byte; and the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.whole_step import builder, compiled
from wscc.analysis.memory.report import format_bytes
from wscc.backends.artifact.files import write_artifact
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.least_traffic import arguments, least_bytes, least_hbm_bytes
from wscc.backends.simulator.least_traffic.arguments import Touched
from wscc.cli import main
from wscc.driver.simulate import simulate
from wscc.ir.array import Kind
from wscc.ir.step import Affine
from wscc.ir.streams.program import (
    Address,
    Operand,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    dynamic_calls,
)
from wscc.machine.links import CUT_THROUGH

SMALL = ("model.layers=2", "model.seq=16", "model.vocab=64", "train.batch=8", "model.d=32")
# Degrees and SRAM: what a layer needs fits, some of it, next to nothing.
PROGRAMS = {
    f"{degrees} {sram}": ("gpt-tiny", degrees, *SMALL, *more, f"wafer.die.sram={sram} kB")
    for degrees, more, srams in (
        ("dp=2", ("train.microbatch=1",), (16,)),
        ("tatp=2", ("train.microbatch=2",), (48,)),
        ("pp=2", ("train.microbatch=2",), (24,)),
        ("dp=2,sp=2", ("train.microbatch=1", "train.zero=3", "train.recompute=full"), (24,)),
    )
    for sram in srams
}
UNIT = 4
Bytes = NDArray[np.bool_]


@dataclass
class Unrolled:
    """A step of one die as calls: the bytes in HBM (by `UNIT`) that each reads before it writes them, and that it
    writes. After the step the host reads those of `kept`."""

    reads: list[Bytes]
    writes: list[Bytes]
    kept: Bytes

    @staticmethod
    def of(b: Builder, die: int, kept: Sequence[int]) -> Unrolled:
        size = -(-b.streams.arena_bytes // UNIT)
        reads, writes = [], []
        for name, args in dynamic_calls(b.streams.steps[b.stages[die]]):
            read, written = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
            for x in b.code(die, name).body:
                adds = any(k == "accumulate" and v for k, v in x.attrs)
                for o in (*x.reads, *(x.writes[:1] if adds else ())):
                    if o.arg >= 0:
                        at = elements(b, die, o, args)
                        read[at] |= ~written[at]
                for o in x.writes:
                    if o.arg >= 0:
                        written[elements(b, die, o, args)] = True
            for parts in (read, written):
                parts[: b.costs.wafer.die.sram // UNIT] = False
            reads.append(read)
            writes.append(written)
        host = np.zeros(size, np.bool_)
        host[[address // UNIT for address in kept]] = True
        return Unrolled(reads, writes, host)

    def live(self) -> list[Bytes]:
        """After each call, the bytes that are read before they are written again, in the next step if need be."""
        now = np.zeros_like(self.kept)
        after: list[Bytes] = []
        for _ in range(2):
            after = []
            now = now | self.kept
            for read, written in zip(reversed(self.reads), reversed(self.writes), strict=True):
                after.append(now)
                now = read | (now & ~written)
        return after[::-1]

    def best(self, sram: int) -> int:
        """The largest sum of what windows need beyond the SRAM, of any division into windows."""
        live, room = self.live(), sram // UNIT
        return UNIT * best_division(self.reads, self.writes, lambda w, unread, end: w & live[end], room)


def best_division(
    reads: list[Bytes], writes: list[Bytes], left: Callable[[Bytes, Bytes, int], Bytes], sram: int
) -> int:
    """The largest sum of what windows need beyond the SRAM. `left` is what one leaves, by what it has written, what
    it has not read since, and its last call."""
    count = len(reads)
    best = [0] * (count + 1)
    for first in range(count):
        needs, written, unread = (np.zeros_like(reads[0]) for _ in range(3))
        for end in range(first, count):
            needs |= reads[end] & ~written
            written |= writes[end]
            unread = unread & ~reads[end] | writes[end]
            parts = needs, left(written, unread, end)
            bound = sum(max(0, int(part.sum()) - sram) for part in parts)
            best[end + 1] = max(best[end + 1], best[first] + bound)
    return best[count]


def elements(b: Builder, die: int, o: Operand, args: tuple[int, ...]) -> NDArray[np.int64]:
    """The places of an operand's bytes, by `UNIT`."""
    at = np.array(args[o.arg] + b.integer(die, o.offset), np.int64)
    for n, stride in zip(o.shape, o.strides, strict=True):
        at = at[..., None] + np.arange(n) * stride * o.dtype.size
    return np.unique((at[..., None] + np.arange(o.dtype.size)) // UNIT)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_division_of_the_unrolled_step_needs_less(name: str) -> None:
    artifact, module = compiled(*PROGRAMS[name])
    b = builder((artifact, module), CUT_THROUGH)
    sram = b.costs.wafer.die.sram
    account = simulate(artifact).account
    kept = [p.address for t in artifact.manifest.tensors if t.kind is Kind.SCALAR for p in t.parts]
    for stage in sorted(set(b.stages)):
        die = b.stages.index(stage)
        best, least = Unrolled.of(b, die, kept).best(sram), least_hbm_bytes(b, die)
        assert 0.85 * best < least <= best <= account.dies[die].hbm_bytes


# -- any step: arguments of a few bytes anywhere, in loops that move them, apart, onto one another, or around


@st.composite
def addresses(draw: st.DrawFn, counts: dict[str, int], lowest: int) -> Address:
    terms = []
    for variable in draw(st.lists(st.sampled_from(sorted(counts)), unique=True)) if counts else ():
        wraps = draw(st.sampled_from((0, 0, 2, 3)))
        c = draw(st.sampled_from((1, 1, -1, 2)))
        index = Affine(draw(st.integers(0, 2)), ((variable, c),), wraps)
        terms.append((index, draw(st.sampled_from((2, 3, 4, 8)))))
    if len(counts) > 1 and draw(st.booleans()):
        both = Affine(0, tuple((v, 1) for v in sorted(counts)), draw(st.sampled_from((0, 3))))
        terms.append((both, 4))
    return Address(draw(st.integers(lowest, lowest + 16)), tuple(terms))


@st.composite
def steps(draw: st.DrawFn, counts: dict[str, int], depth: int, lowest: int) -> ProgramStep:
    body: list[ProgramCall | ProgramLoop] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            variable, count = f"v{len(counts)}", draw(st.integers(1, 5))
            inner = draw(steps({**counts, variable: count}, depth - 1, lowest))
            body.append(ProgramLoop(variable, count, inner))
        else:
            name = draw(st.sampled_from(sorted(BODIES)))
            args = {n for n, *_ in BODIES[name]}
            body.append(ProgramCall(name, tuple(draw(addresses(counts, lowest)) for _ in args)))
    return tuple(body)


# What procedures do one after the other: number of an argument, bytes from its address on, whether they are written.
BODIES: dict[str, list[tuple[int, int, int, bool]]] = {
    "read": [(0, 0, 3, False)],
    "write": [(0, 0, 3, True)],
    "add": [(0, 0, 4, False), (0, 0, 4, True)],
    "copy": [(0, 0, 3, False), (1, 0, 3, True)],
    "tiles": [(0, 0, 2, False), (1, 0, 2, True), (0, 2, 4, False), (1, 2, 4, True)],
    "back": [(0, 1, 4, True), (1, 0, 3, False), (0, 0, 1, False)],
}


def access(read: Bytes, written: Bytes, low: int, high: int, writes: bool) -> None:
    low, high = max(0, low), max(0, high)
    if writes:
        written[low:high] = True
    else:
        read[low:high] |= ~written[low:high]


class Drawn:
    """The arguments of `BODIES`."""

    def reaches(self, procedure: str) -> dict[int, tuple[int, int]]:
        body = BODIES[procedure]
        return {
            n: (min(a for m, a, _, _ in body if m == n), max(b for m, _, b, _ in body if m == n))
            for n in {m for m, *_ in body}
        }

    def touched(self, procedure: str, together: tuple[int, ...]) -> Touched:
        body = [(a, b, w) for n, a, b, w in BODIES[procedure] if n in together]
        low, high = min(a for a, _, _ in body), max(b for _, b, _ in body)
        read, written = np.zeros(high, np.bool_), np.zeros(high, np.bool_)
        for a, b, w in body:
            access(read, written, a, b, w)
        reads, writes = not all(w for *_, w in body), any(w for *_, w in body)
        return Touched(low, high, reads, int(read.sum()), writes, int(written.sum()))


@st.composite
def steps_and_sram(draw: st.DrawFn) -> tuple[ProgramStep, int]:
    """Arguments all in HBM, or some of them in SRAM, or in both."""
    sram = draw(st.integers(0, 6))
    return draw(steps({}, 2, draw(st.sampled_from((24, sram - 2))))), sram


@settings(max_examples=150)
@given(steps_and_sram())
def test_no_division_of_any_step_needs_less(drawn: tuple[ProgramStep, int]) -> None:
    step, sram = drawn
    calls = list(dynamic_calls(step))
    size = 8 + max(0, *(address for _, args in calls for address in args), sram)
    reads, writes = [], []
    for name, args in calls:
        read, written = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        for n, a, b, w in BODIES[name]:
            access(read, written, args[n] + a, args[n] + b, w)
        read[:sram] = written[:sram] = False
        reads.append(read)
        writes.append(written)
    best = best_division(reads, writes, lambda written, unread, end: unread, sram)
    assert least_bytes(step, Drawn(), sram) <= best


def test_rough_figures_of_large_arguments_need_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    b = builder(compiled(*PROGRAMS["tatp=2 48"]), CUT_THROUGH)
    exact = least_hbm_bytes(b, 0)
    monkeypatch.setattr(arguments, "_MOST_CELLS", 0)
    assert 0 < least_hbm_bytes(b, 0) <= exact


def test_the_command_says_how_far_a_program_is_from_the_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, _ = compiled(*PROGRAMS["tatp=2 48"])
    write_artifact(str(tmp_path / "program"), artifact)
    assert main(["simulate", str(tmp_path / "program"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert main(["simulate", str(tmp_path / "program")]) == 0
    least = said["least_hbm_bytes"]
    assert (
        f"at least {format_bytes(least)}, of which it is {said['hbm_bytes'] / least:.3f}"
        in capsys.readouterr().out
    )
