"""`python -m tests.fuzz SECONDS [SEED]`: random programs; each is equal to one device, or refused by name.

A refusal that `predicate` does not foresee is a failure, as is a program that it says cannot be, and a refusal that
proposes what does not compile. Each failure is
printed as a small `.wsl` text with the command that shows it; at the end, a count by outcome. Exit status 1 if any
failed.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fuzz.draw import Draw, drawn
from tests.fuzz.shrink import shrunk
from tests.oracles.predicate import expected
from tests.support.verdict import EQUAL, verdict
from wscc.diagnostics import CompileError, Proposal, Source
from wscc.driver.compile import program_of
from wscc.driver.proposals import changed
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve

# A program of this size compiles and runs in a second; one that takes this long hangs.
HANG = 120
UNTRUE = "untrue hint"


@dataclass(slots=True)
class Summary:
    """Outcomes by name, and the report of each failure."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def draws(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        accepted = self.counts[EQUAL]
        others = ", ".join(f"{n} {what}" for what, n in self.counts.most_common() if what != EQUAL)
        share = f"{accepted / max(self.draws, 1):.0%}"
        return f"{self.draws} draws: {accepted} equal ({share}), {others or 'no other'}; {len(self.failures)} failed"


def outcome(draw: Draw, folder: Path) -> tuple[str, str]:
    """`equal`, `different`, the code of a refusal, or the type of an exception; and more about it."""
    try:
        found = verdict(draw.text, folder, mask=draw.mask, level=draw.level)
    except Exception as fault:  # whatever escapes is what the fuzzer looks for
        return type(fault).__name__, "".join(traceback.format_exception(fault)[-3:])
    untrue = next(untrue_proposals(draw.text, found.proposals, draw.level), "")
    return (UNTRUE, untrue) if untrue else (found.what, found.why)


def untrue_proposals(text: str, proposals: Iterable[Proposal], level: int) -> Iterator[str]:
    """Of each change that a refusal proposes and that is refused itself, both, in words."""
    for change in proposals:
        try:
            source = change.edit.edited() if change.edit else Source("m.wsl", text)
            program_of(elaborate(resolve(parse(source), changed(NO_OVERRIDES, change))), level)
        except CompileError as refused:
            yield f"{change.words} was proposed, and is refused: {refused}"


def fails_as(what: str, folder: Path, draw: Draw) -> bool:
    """Whether the program breaks the contract with this outcome."""
    return not expected(draw).allows(what) and outcome(draw, folder)[0] == what


def any_draw(rng: random.Random) -> Draw:
    """Four of five programs are drawn until one should be accepted; the others as they come."""
    draw = drawn(rng)
    if rng.random() < 0.8:
        while expected(draw).codes:
            draw = drawn(rng)
    return draw


def hunt(
    seed: int, *, draws: int = sys.maxsize, seconds: float = float("inf"), shrink: bool = True
) -> Summary:
    """Programs of the seeds from `seed` on, until there are enough of them or the time is over."""
    summary, until = Summary(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while summary.draws < draws and time.monotonic() < until:
            draw = any_draw(random.Random(seed))
            what, why = outcome(draw, folder)
            summary.counts[what] += 1
            if not expected(draw).allows(what):
                small = shrunk(draw, partial(fails_as, what, folder)) if shrink else draw
                summary.failures.append(_report(seed, small, what, why, folder))
                print(summary.failures[-1], flush=True)
            seed += 1
    return summary


def _report(seed: int, draw: Draw, what: str, why: str, folder: Path) -> str:
    lines = [
        f"python -m tests.fuzz 1 {seed}",
        f"{what}, where {', '.join(sorted(expected(draw).codes)) or EQUAL} was foreseen",
        outcome(draw, folder)[1] or why,
        f"labels ignored: {draw.mask}; wscc compile m.wsl -O{draw.level} -o out && wscc run out --check --steps 2",
    ]
    return "".join(f"# {line}\n" for text in lines for line in text.splitlines()) + draw.text
