"""Whether the search finds the best plan: `python -m tests.bench.search_optimum [WORD ...] [--found | --print]`.

Twenty small pairs of a model and a wafer, odd meshes, dead dies and links, and little memory among them. Of each, every
plan of the space is compiled and simulated by itself, in the order of the table of settings and with no part of the
search but its list of plans before any filter; then the search answers, with its own budget. `off` is how much longer
the step of its answer takes than the best: 0, or at most 1 %, is found. A pair takes 10 to 100 CPU seconds.

What was enumerated and found is kept in `search_optimum.json`, so that pairs may run one by one: `--found` takes the
best from there and runs the search alone (2 to 10 CPU seconds a pair), `--print` runs nothing. A kept best is that of
the compiler of its day: where the search finds less, enumerate again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_file
from wscc.driver.simulate import simulate
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.machine.topology import mesh_topology
from wscc.search import search
from wscc.search.candidates import Problem
from wscc.search.outcome import SearchResult
from wscc.search.space import CHOICES, Plan, Scale, plan_of, spell, strategies

ROOT: Final = Path(__file__).parents[2]
MLP, GPT = "tests/cases/search.wsl", "samples/gpt-tiny.wsl"
KEPT: Final = Path(__file__).with_suffix(".json")
_NEAR: Final = 0.01


@dataclass(frozen=True, slots=True)
class Pair:
    """A model and a wafer: what is set of a file, what is dead, and the settings that are not varied."""

    name: str
    model: str
    sets: tuple[str, ...]
    dead: tuple[str, ...] = ()
    pins: tuple[str, ...] = ("recompute=none", "zero=0", "interleave=1")

    @property
    def overrides(self) -> Overrides:
        return Overrides(sets=self.sets, parallel="auto", dead=self.dead, pins=self.pins)


# Large enough that more than one die is worth it.
_WIDE: Final = ("model.d=512", "model.ffn=2048", "model.seq=128")
_FIVE: Final = ("die:1,1", "die:0,2", "die:2,0", "die:2,2", "die:1,2")
_ZERO: Final = ("recompute=none", "microbatch=2", "interleave=1")
_RECOMPUTED: Final = ("zero=0", "interleave=1")

PAIRS: Final = (
    Pair("mlp 1x3", MLP, ("wafer.mesh=1x3", "train.batch=12", *_WIDE)),
    Pair("mlp 1x5", MLP, ("wafer.mesh=1x5", "train.batch=10", *_WIDE)),
    Pair("mlp 2x2", MLP, ("wafer.mesh=2x2", *_WIDE)),
    Pair("mlp 2x3", MLP, ("wafer.mesh=2x3", "train.batch=12", *_WIDE)),
    Pair("mlp 2x3, die dead", MLP, ("wafer.mesh=2x3", *_WIDE), ("die:0,1",)),
    Pair("mlp 2x2, link dead", MLP, ("wafer.mesh=2x2", *_WIDE), ("link:0,0-0,1",)),
    Pair("mlp 3x3, five dead", MLP, ("wafer.mesh=3x3", *_WIDE), _FIVE),
    Pair("mlp 2x2, zero", MLP, ("wafer.mesh=2x2", *_WIDE), pins=_ZERO),
    Pair("mlp 2x2, recompute", MLP, ("wafer.mesh=2x2", *_WIDE), pins=_RECOMPUTED),
    Pair("mlp 2x2, small SRAM", MLP, ("wafer.mesh=2x2", "wafer.die.sram=256 kB", *_WIDE)),
    Pair("mlp 1x3, small SRAM", MLP, ("wafer.mesh=1x3", "train.batch=6", "wafer.die.sram=512 kB", *_WIDE)),
    Pair("mlp 2x2, small HBM", MLP, ("wafer.mesh=2x2", "wafer.die.sram=1 MB", "wafer.die.hbm=12 MB", *_WIDE)),
    Pair("mlp 1x4, slow links", MLP, ("wafer.mesh=1x4", "wafer.link.bandwidth=100 GB/s", *_WIDE)),
    Pair("mlp 1x3, slow dies", MLP, ("wafer.mesh=1x3", "wafer.die.peak=10 TFLOP/s", *_WIDE)),
    Pair("mlp tiny 2x3, die dead", MLP, ("wafer.mesh=2x3",), ("die:0,1",)),
    Pair("gpt-tiny 1x3", GPT, ("wafer.mesh=1x3", "train.batch=12")),
    Pair("gpt-tiny 2x2", GPT, ("wafer.mesh=2x2", "train.batch=8")),
    Pair("gpt-tiny 2x2, slow dies", GPT, ("wafer.mesh=2x2", "train.batch=8", "wafer.die.peak=10 TFLOP/s")),
    Pair("gpt-tiny 2x2, small SRAM", GPT, ("wafer.mesh=2x2", "train.batch=8", "wafer.die.sram=256 kB")),
    Pair("gpt-tiny 3x2, die dead, slow links", GPT,
         ("wafer.mesh=3x2", "train.batch=10", "train.microbatch=1", "wafer.link.bandwidth=100 GB/s"), ("die:2,1",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Enumerated:
    """All plans of a pair: how many there are and how many fit, and the best."""

    plans: int
    fit: int
    seconds: float
    best: str
    cpu: float


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of the search: its step, its plan, how many it simulated, and the rank of the best by estimate."""

    seconds: float
    plan: str
    simulated: int
    rank: str
    cpu: float


def show(words: list[str], *, search_only: bool, print_only: bool) -> None:
    """Print the table of the pairs whose names have all words, each after it has run."""
    print(
        f"{'pair':<38}{'plans':>6}{'fit':>5}{'best s':>11}{'found s':>11}{'off %':>7}  sim.  rank  CPU s  the best"
    )
    offs = []
    for pair in PAIRS:
        if not all(word in pair.name for word in words):
            continue
        kept = _kept().get(pair.name)
        if not print_only:
            kept = _run(pair, kept if search_only else None)
            KEPT.write_text(json.dumps(_kept() | {pair.name: kept}, indent=1) + "\n")
        if kept is not None:
            offs.append(_row(pair.name, Enumerated(**kept["enumerated"]), Found(**kept["found"])))
    print(f"found, or within {_NEAR:.0%}: {sum(off <= _NEAR for off in offs)} of {len(offs)}")


def _kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def _run(pair: Pair, kept: dict[str, Any] | None) -> dict[str, Any]:
    enumerated = Enumerated(**kept["enumerated"]) if kept else _enumerated(pair)
    return {"enumerated": asdict(enumerated), "found": asdict(_found(pair, enumerated.best))}


def _enumerated(pair: Pair) -> Enumerated:
    begun = time.process_time()
    plans = list(_plans(Problem(parse(read_source(pair.model)), pair.overrides)))
    steps = dict(_steps(pair, plans))
    seconds, best = min((s, p) for p, s in steps.items())
    return Enumerated(len(plans), len(steps), seconds, str(best), time.process_time() - begun)


def _found(pair: Pair, best: str) -> Found:
    begun = time.process_time()
    result = search(Problem(parse(read_source(pair.model)), pair.overrides))
    spent = time.process_time() - begun
    return Found(result.seconds, str(result.best.plan), len(result.simulated), _place(result, best), spent)


def _row(name: str, e: Enumerated, f: Found) -> float:
    off = f.seconds / e.seconds - 1
    cpu, counts = f"{e.cpu:>5.0f} + {f.cpu:.0f}", f"{f.simulated:>6}{f.rank:>6}"
    print(
        f"{name:<38}{e.plans:>6}{e.fit:>5}{e.seconds:>11.4g}{f.seconds:>11.4g}{off:>7.1%}{counts}{cpu}"
        f"  {e.best}" + (f"; found {f.plan}" if off > 0 else ""),
        flush=True,
    )
    return off


def _place(result: SearchResult, best: str) -> str:
    """The rank of a plan among all by their first estimate, from 1."""
    candidates = (*result.simulated, *result.slower, *result.others)
    order = sorted(candidates, key=lambda c: (c.estimate, c.plan))
    return next((str(i) for i, c in enumerate(order, 1) if str(c.plan) == best), "-")


def _plans(problem: Problem) -> Iterator[Plan]:
    """All plans that the pins admit, whether they fit or not."""
    graph = problem.one_die()
    batch, live = graph.train.batch, len(mesh_topology(graph.machine).islands[0])
    layers = max(a.count for a in graph.arrays)
    for dies in range(1, live + 1):
        for strategy in strategies(dies):
            values = problem.pins.values(Scale(batch, layers), strategy)
            yield from (plan_of(strategy, v) for v in product(*values))


def _steps(pair: Pair, plans: list[Plan]) -> Iterator[tuple[Plan, float]]:
    """The simulated step of each plan that compiles."""
    assert all(len(p.settings) == len(CHOICES) for p in plans)
    for plan in plans:
        overrides = Overrides((*pair.sets, *plan.sets), spell(plan.strategy), dead=pair.dead)
        try:
            program = compile_file(pair.model, overrides)
            yield plan, simulate(program.artifact, wafer=program.graph.machine).figures().step_seconds
        except CompileError:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.search_optimum", description=__doc__)
    parser.add_argument("words", nargs="*", help="pairs whose names have all of these words; none: all")
    parser.add_argument("--found", action="store_true", help="search alone: the best is the kept one")
    parser.add_argument("--print", dest="kept", action="store_true", help="only print what is kept")
    given = parser.parse_args()
    os.chdir(ROOT)
    show(given.words, search_only=given.found, print_only=given.kept)


if __name__ == "__main__":
    main()
