"""The published optima beside what the search finds: `python -m tests.bench.seeds [WORD ...]`.

TEMP (arXiv 2512.14256) has optima of two models: GPT-3 6.7B on 4x8 with `dp=2, tp=2, tatp=8`, GPT-3 175B on 8x16 with
`sp=2, tp=4, tatp=16`. Of each there is a row for its degrees with the settings that the search finds for them, one for
the best plan of all, and how many times as long the published one takes. Both are simulated: the step, the MFU, the
fullest die, and what the time of all dies goes to.

What is printed needs 1 to 2 CPU minutes for 32 dies, and 3 to 6 for 128.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.roof_cases import CASES, OURS, SEED, Case, pins_of_degrees
from tests.bench.searched import found
from wscc.search.outcome import Candidate

ROOT: Final = Path(__file__).parents[2]
_SHARES: Final = ("compute", "hbm", "links", "bubble", "unused_dies")


@dataclass(frozen=True, slots=True)
class Row:
    """What the search found under some pins, and the CPU seconds that it took."""

    name: str
    best: Candidate
    cpu: float

    def __str__(self) -> str:
        c = self.best
        assert c.figures is not None, "the best was simulated"
        shares = "".join(f"{c.figures.shares[name]:>9.1%}" for name in _SHARES)
        memory = (c.peak_bytes_per_die_max or 0) / 1e9
        numbers = f"{c.least:>9.4g}{c.figures.mfu:>8.1%}{c.estimate:>11.4g}{memory:>8.1f}"
        return f"  {self.name:<10}{c.plan!s:<70}{numbers}{shares}{self.cpu:>8.0f}"


def show_seeds(words: Sequence[str]) -> None:
    """Print the rows of each case whose name has all words."""
    columns = "".join(f"{name:>9}" for name in ("compute", "hbm", "links", "bubble", "unused"))
    print(f"{'':<12}{'plan':<70}{'step s':>9}{'MFU':>8}{'estimate s':>11}{'GB':>8}{columns}{'CPU s':>8}")
    for case in CASES:
        if OURS in case.strategies and SEED in case.strategies and all(w in case.name for w in words):
            print(f"{case.name}, {case.batch} sequences a step")
            rows = [
                _row(case, "published", pins_of_degrees(case.strategies[SEED][0])),
                _row(case, "found", ()),
            ]
            print(f"  published / found: {rows[0].best.least / rows[1].best.least:.3f}", flush=True)


def _row(case: Case, name: str, pins: tuple[str, ...]) -> Row:
    begun = time.process_time()
    row = Row(name, found(case, pins).best, time.process_time() - begun)
    print(row, flush=True)
    return row


if __name__ == "__main__":
    os.chdir(ROOT)
    show_seeds(sys.argv[1:])
