"""`python -m tests.fuzz.searched SECONDS [SEED]`: what the search proposes for random programs.

Each program is searched with few estimates and two plans to compile. Every plan that was simulated has to compile as
the search says it is given to `compile`, verify, and equal one device. A search that ends by a refusal is counted.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.draw import Draw
from tests.fuzz.hunt import any_draw
from tests.support.verdict import EQUAL, verdict
from wscc.backends.verify import verify_program
from wscc.diagnostics import CompileError, Source
from wscc.driver.compile import compile_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.search import search
from wscc.search.candidates import Problem
from wscc.search.space import Plan

_ESTIMATES, _COMPILED = 16, 2


@dataclass(slots=True)
class Proposed:
    """How many plans of how many programs were proposed, refusals by code, and each fault with the command that shows
    it."""

    programs: int = 0
    plans: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        refused = ", ".join(f"{n} {code}" for code, n in self.refused.most_common()) or "none"
        return f"{self.programs} programs, {self.plans} plans proposed, {len(self.faults)} faults; refused: {refused}"


def proposed(seed: int, *, draws: int = sys.maxsize, seconds: float = float("inf")) -> Proposed:
    """The plans that are proposed for the programs of the seeds from `seed` on, until there are enough of them."""
    found, until = Proposed(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while found.programs < draws and time.monotonic() < until:
            draw = any_draw(random.Random(seed))
            found.programs += 1
            try:
                plans = list(_simulated(draw))
                found.plans += len(plans)
                faults = [
                    f"{plan}: {fault}" for plan in plans if (fault := fault_of(draw, plan, Path(folder)))
                ]
            except CompileError as refused:
                found.refused[str(refused.diagnostics[0].code)] += 1
                faults = []
            except Exception as error:  # whatever escapes is what the fuzzer looks for
                faults = ["".join(traceback.format_exception(error)[-3:])]
            for fault in faults:
                found.faults.append(f"# python -m tests.fuzz.searched 1 {seed}\n# {fault}\n{draw.text}")
                print(found.faults[-1], flush=True)
            seed += 1
    return found


def _simulated(draw: Draw) -> Iterator[Plan]:
    problem = Problem(parse(Source("m.wsl", draw.text)), Overrides(parallel="auto"))
    result = search(problem, budget=_COMPILED, limit=_ESTIMATES)
    yield from (c.plan for c in result.simulated)


def fault_of(draw: Draw, plan: Plan, folder: Path) -> str:
    """What is wrong with a plan that was simulated, in words: nothing, as it should be."""
    problem = Problem(parse(Source("m.wsl", draw.text)))
    overrides = problem.settled(plan)
    try:
        program = compile_source(Source("m.wsl", draw.text), overrides, 2).artifact
    except CompileError as refused:
        return f"refused: {refused}"
    if findings := verify_program(program).findings:
        return f"not verified: {findings[0]}"
    found = verdict(draw.text, folder, overrides, mask=draw.mask)
    return "" if found.what == EQUAL else f"{found.what}: {found.why}"


if __name__ == "__main__":
    result = proposed(int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()), seconds=float(sys.argv[1]))
    print(result)
    sys.exit(bool(result.faults))
