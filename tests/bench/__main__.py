"""Prints the tables; `--quick` takes fewer samples. Numbers are of this machine at this moment; ratios travel."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median

from tests.bench.baseline import SIZES
from tests.bench.collectives import show_collectives
from tests.bench.compiling import compile_seconds
from tests.bench.damage import show_damage
from tests.bench.placing import show_places
from tests.bench.reshards import show_reshards
from tests.bench.roof import show_roof
from tests.bench.routing import cases, measure
from tests.bench.scaling import show_scaling
from tests.bench.searching import show_searches
from tests.bench.staggering import show_staggering
from tests.bench.steps import Contender, Times, race
from tests.bench.systems import show_systems

ROOT = Path(__file__).parents[2]
SAMPLES = ("gpt-tiny", "gpt2-small")
STRATEGIES = ("dp=4,tp=4", "dp=4,tatp=4", "dp=4,tp=2,tatp=2")
# Tables that are long to make: of all sizes, or with `--quick` of fewer.
ONLY_SO = {"damage": show_damage, "reshards": show_reshards, "systems": show_systems}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument(
        "--only",
        choices=(
            "compile",
            "sizes",
            "interpreter",
            "place",
            "route",
            "collectives",
            "damage",
            "stagger",
            "search",
            "roof",
            "reshards",
            "systems",
        ),
        help="one of the tables; `damage`, `stagger`, `roof`, `reshards` and `systems` only so",
    )
    parser.add_argument(
        "--against",
        type=lambda path: str(Path(path).resolve()),
        metavar="PATH",
        help="another program whose steps `interpreter` times too (`another` in worker.py)",
    )
    given = parser.parse_args()
    os.chdir(ROOT)
    if given.only in (None, "compile"):
        show_compile(1 if given.quick else 5)
    if given.only in (None, "sizes"):
        show_scaling(1 if given.quick else 3)
    if given.only in (None, "place"):
        show_places()
    if given.only in (None, "route"):
        show_routes(1 if given.quick else 5)
    if given.only in (None, "collectives"):
        show_collectives()
    if given.only in ONLY_SO:
        ONLY_SO[given.only](given.quick)
    if given.only == "stagger":
        show_staggering(given.quick)
    if given.only == "roof":
        show_roof(["llama2-7b"] if given.quick else [])
    if given.only in (None, "search"):
        show_searches(given.quick)
    if given.only in (None, "interpreter"):
        show_steps(5 if given.quick else 11, given.against)


def show_compile(times: int) -> None:
    columns = [compile_seconds(f"samples/{name}.wsl", times) for name in SAMPLES]
    print(f"compile, cold: median seconds of {times}")
    print(f"{'':<22}" + "".join(f"{name:>14}" for name in SAMPLES))
    for row in columns[0]:
        print(f"{row:<22}" + "".join(f"{column[row]:>14.3f}" for column in columns))
    print()


def show_routes(seeds: int) -> None:
    print(f"router: largest load of a link in MB, the worst gap of {seeds} seeds, median seconds")
    head = f"{'mesh':<8}{'traffic':<26}{'flows':>7}{'XY':>9}{'TCME':>9}{'bound':>9}{'gap %':>8}"
    print(f"{head}{'seconds':>9}{'bound s':>9}")
    for case in cases():
        rows = [measure(case, seed) for seed in range(seeds)]
        worst = max(rows, key=lambda row: row.gap)
        loads = "".join(f"{n / (1 << 20):>9.2f}" for n in (worst.xy, worst.tcme, worst.bound))
        times = f"{median(r.seconds for r in rows):>9.2f}{median(r.bound_seconds for r in rows):>9.2f}"
        print(f"{case.mesh:<8}{case.traffic:<26}{worst.flows:>7}{loads}{worst.gap:>8.2f}{times}", flush=True)
    print()


def show_steps(rounds: int, against: str | None) -> None:
    """NumPy in one process uses all cores through BLAS, the interpreter through its workers; ratios are to the
    first row."""
    threads = str(os.cpu_count() or 1)
    print(f"training step, {threads} cores: seconds of {rounds} rounds, and CPU seconds")
    print(f"{'':<28}{'median':>10}{'least':>10}{'CPU':>10}{'ratio':>10}")
    for name, size in SIZES.items():
        print(f"shape {name}")
        strategies = [
            Contender(f"16 dies, {s}", ("tests/bench/gpt.wsl", s, threads, *size.settings))
            for s in STRATEGIES
        ]
        by_hand = [
            Contender("one process, NumPy", ("baseline", name)),
            Contender("the same, tuned", ("tuned", name)),
        ]
        if against:
            by_hand.append(Contender(Path(against).name, ("against", against, name)))
        for times in race([*by_hand, *strategies], rounds):
            _show(times, f"{times.ratio:.2f}")
    print("gpt-tiny")
    (tiny,) = race([Contender("8 dies", ("samples/gpt-tiny.wsl", "", threads))], rounds)
    _show(tiny, "")


def _show(times: Times, ratio: str) -> None:
    figures = (times.median, times.least, median(times.busy))
    print(f"  {times.name:<26}{''.join(f'{n:>10.3f}' for n in figures)}{ratio:>10}", flush=True)


if __name__ == "__main__":
    main()
