"""Steps composed from calls beside the same steps simulated whole: `python -m tests.bench.composing [WORD ...]`.

The cases of `roof` with the fastest strategy of each name, cut to few layers and micro-batches, as a whole simulation
takes each instruction of each die of each call. A row takes 5 to 100 s of a core; the last line is the largest
difference.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import replace

from tests.bench.roof import ROOT, overrides
from tests.bench.roof_cases import CASES, Case
from wscc.backends.simulator.compose import Composer
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.whole import whole
from wscc.diagnostics import CompileError
from wscc.driver.compile import load, program_of
from wscc.driver.simulate import builder_of
from wscc.machine.links import CUT_THROUGH

# Micro-batches of a replica, and layers of a stage: enough for loops to be left early.
_TURNS = 5
_LAYERS = 2


def _cut(case: Case, strategy: str) -> Case:
    """The case with few layers and micro-batches."""

    def given(name: str) -> int:
        found = re.search(rf"\b{name}=(\d+)", strategy)
        return int(found[1]) if found else 1

    layers = _LAYERS * given("pp")
    sets = (*(s for s in case.sets if not s.startswith("model.layers")), f"model.layers={layers}")
    return replace(case, sets=sets, batch=given("dp") * given("microbatch") * _TURNS)


def _seconds(case: Case, strategy: str) -> tuple[float, float]:
    """Seconds of the step, composed and whole. Raises `CompileError` where the strategy is refused."""
    artifact, _ = program_of(load(case.sample, overrides(case, strategy)))
    builder = builder_of(artifact, CUT_THROUGH)
    composed, run = Composer(builder, None).run(), whole(builder)
    return max(composed.now) / SECOND, max(run.leave.values()) / SECOND


def show_composing(words: list[str]) -> None:
    print(f"{'case':<28}{'strategy':<66}{'composed':>11}{'whole':>11}{'ratio':>9}")
    worst = 0.0
    for case in CASES:
        if not all(word in case.name for word in words):
            continue
        for strategy in sorted({s for competing in case.strategies.values() for s in competing[:1]}):
            began = time.process_time()
            try:
                composed, whole_seconds = _seconds(_cut(case, strategy), strategy)
            except CompileError as error:
                print(f"{case.name:<28}{strategy:<66}refused: {error.diagnostics[0].code}", flush=True)
                continue
            worst = max(worst, abs(composed / whole_seconds - 1))
            figures = f"{composed:>11.4g}{whole_seconds:>11.4g}{composed / whole_seconds:>9.4f}"
            print(
                f"{case.name:<28}{strategy:<66}{figures}  ({time.process_time() - began:.0f} CPU s)",
                flush=True,
            )
    print(f"largest difference: {worst:.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.composing", description=__doc__)
    parser.add_argument("words", nargs="*", help="cases whose names have all of these words; none: all cases")
    given = parser.parse_args()
    os.chdir(ROOT)
    show_composing(given.words)


if __name__ == "__main__":
    main()
