"""How near to the roof programs come: `python -m tests.bench.roof [WORD ...] [--only NAME] [--all] [--try STRATEGY]`.

A row for each model, wafer and strategy of `roof_cases`: the simulated step, its share of the peak (MFU), the bound of
these instructions by the fullest resource and the step over it (`x`), how long dies are busy, the bytes from and to HBM
of the die with most over the least that its calls need (`HBM x`), and what is in the way: the largest entries of the
account of time, the op whose instructions HBM makes longest, and the op whose messages are waited for most, as shares
of the time of all dies.

A row takes 30 to 150 s of a core, more on 128 and 144 dies, and needs up to 2 GB. Words select cases: all of them must
be in its name. Under each name stands the strategy that was the fastest; `--all` measures the others that competed,
and `--try` another one in their place, so that a better one is found by hand. The step has the batch that one would
train with: loops are composed, so it takes no longer to simulate than a short one, in which a pipeline would mostly
fill and drain.

`--only searched` has, in place of what was found by hand, what `wscc search` finds by itself, with no strategy given:
of all plans, and of those of each rival (`RIVALS`, of which `--rival` selects some), with the same budget. A row takes
30 to 120 CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.roof_cases import CASES, RIVALS, Case
from tests.bench.searched import show_searched
from wscc.backends.simulator.account import account
from wscc.backends.simulator.compose import Composer, Wait
from wscc.backends.simulator.drafts import PORT, Draft
from wscc.backends.simulator.result import HbmTraffic, Result
from wscc.diagnostics import CompileError
from wscc.driver.compile import load, program_of
from wscc.driver.simulate import Simulated, builder_of
from wscc.frontend.overrides import Overrides
from wscc.ir.streams.profile import Profile
from wscc.machine.links import CUT_THROUGH

ROOT: Final = Path(__file__).parents[2]
_TRIED: Final = "tried"
_SEARCHED: Final = "searched"


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a program, and shares of the time of its dies by what waits: HBM by op, messages by op."""

    figures: Result
    hbm: dict[str, float]
    messages: dict[str, float]
    traffic: HbmTraffic
    seconds: float


def show_roof(
    words: list[str], only: str = "", *, every: bool = False, tried: tuple[str, ...] = (), rivals: tuple[str, ...] = ()
) -> None:  # fmt: skip
    print("programs beside their roof, simulated; + reaches the goal")
    head = f"{'strategy':<62}{'step s':>9}{'MFU %':>7} {'goal':>6}{'bound s':>9} {'by':<8}"
    print(f"{head}{'x':>5}{'busy %':>8}{'HBM x':>7}  in the way")
    for case in CASES:
        if not all(word in case.name for word in words):
            continue
        print(f"{case.name}, {case.batch} sequences a step")
        if only == _SEARCHED:
            show_searched(case, rivals)
            continue
        competing = {_TRIED: tried} if tried else case.strategies
        for name, strategies in competing.items():
            for strategy in strategies if every or tried else strategies[:1]:
                if only in ("", name):
                    print(f"{f'  {name:<9}{strategy}':<62}{_row(case, strategy)}", flush=True)
    print()


def _row(case: Case, strategy: str) -> str:
    try:
        return _figures(measure(case, strategy), case.goal)
    except CompileError as error:
        return f"refused: {error.diagnostics[0].code} {error.diagnostics[0].message}"


def _figures(m: Measured, goal: float) -> str:
    r = m.figures
    by = max(r.bound_seconds, key=r.bound_seconds.__getitem__)
    reached = "+" if r.mfu >= goal else " "
    numbers = f"{r.step_seconds:>9.4g}{100 * r.mfu:>7.1f}{reached}{100 * goal:>6.0f}{r.bound:>9.4g} {by:<8}"
    ratio = f"{r.step_seconds / r.bound:>5.2f}{100 * r.die_util['mean']:>8.1f}{m.traffic.ratio:>7.2f}"
    losses = ", ".join(f"{name} {share:.0%}" for name, share in _losses(r)[:3])
    ops = [_largest("HBM", m.hbm), _largest("messages", m.messages)]
    return f"{numbers}{ratio}  {losses}; {', '.join(filter(None, ops))} ({m.seconds:.0f} s)"


def _largest(what: str, shares: dict[str, float]) -> str:
    return next((f"{what} of {op} {share:.0%}" for op, share in shares.items() if share >= 0.005), "")


def _losses(r: Result) -> list[tuple[str, float]]:
    """What the time of all dies goes to besides the model, the most first."""
    time_by: dict[str, Any] = {k: v for k, v in r.time.items() if k not in ("model", "exposed")}
    shares = {**time_by, **{f"exposed {kind}": share for kind, share in r.time["exposed"].items()}}
    return sorted(((k, v) for k, v in shares.items() if v >= 0.005), key=lambda row: -row[1])


def measure(case: Case, strategy: str) -> Measured:
    """The program of a case with a strategy. Raises `CompileError` where it is refused."""
    started = time.perf_counter()
    artifact, _ = program_of(load(case.sample, overrides(case, strategy)))
    profile = artifact.profile
    assert profile is not None, "made just now"
    builder = builder_of(artifact, CUT_THROUGH)
    composer = Composer(builder, None).run()
    made = account(composer, profile)
    simulated = Simulated(builder, profile, made, None)
    whole = made.end * builder.costs.wafer.live_dies
    hbm, messages = (_shares(ticks, whole) for ticks in _waits(composer, profile))
    return Measured(
        simulated.figures(), hbm, messages, simulated.hbm_traffic(), time.perf_counter() - started
    )


def _shares(ticks: Counter[str], whole: int) -> dict[str, float]:
    """The largest first."""
    return {op: n / whole for op, n in ticks.most_common()}


def overrides(case: Case, strategy: str) -> Overrides:
    """The options of a strategy: degrees, then settings of the training."""
    degrees, *settings = strategy.split()
    return Overrides((*case.sets, f"train.batch={case.batch}", *(f"train.{s}" for s in settings)), degrees)


def _waits(composer: Composer, profile: Profile) -> tuple[Counter[str], Counter[str]]:
    """Ticks of all dies by op: those by which HBM makes its instructions longer, each by itself, and those in which
    its messages are waited for. The first die of a cluster stands for all of it."""
    hbm: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for entry, times in composer.tally.items():
        if isinstance(entry, Wait):
            continue
        procedure, die = entry.variant[0], entry.cluster.dies[0]
        many = times * len(entry.cluster.dies)
        for op, ticks in _hbm_of(composer, profile, procedure, die, entry.cluster.calls[0].draft):
            hbm[f"{procedure}/{op}"] += many * ticks
        channels = profile.channels(procedure)
        for channel, ticks in next(entry.dies())[2].exposed.items():
            messages[f"{procedure}/{channels[channel].op}"] += many * ticks
    return hbm, messages


def _hbm_of(
    composer: Composer, profile: Profile, procedure: str, die: int, draft: Draft
) -> Iterator[tuple[str, int]]:
    builder = composer.builder
    origins = profile.instructions(builder.streams.roles[die], builder.code(die, procedure))
    for step in draft.steps:
        if step.kind == PORT and step.hbm > step.ticks:
            yield origins[step.position].op, step.hbm - step.ticks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.roof", description=__doc__)
    parser.add_argument("words", nargs="*", help="cases whose names have all of these words; none: all cases")
    parser.add_argument(
        "--only", default="", help="strategies of this name: ours, megatron, mesp, fsdp, seed; or searched"
    )
    parser.add_argument(
        "--try", dest="tried", action="append", default=[], metavar="STRATEGY",
        help="another strategy in place of those listed; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--all", dest="every", action="store_true", help="all strategies, not the fastest of a name"
    )
    parser.add_argument(
        "--rival", dest="rivals", action="append", default=[], choices=RIVALS,
        help="of `--only searched`, these alone; may be repeated",
    )  # fmt: skip
    given = parser.parse_args()
    os.chdir(ROOT)
    show_roof(
        given.words, given.only, every=given.every, tried=tuple(given.tried), rivals=tuple(given.rivals)
    )


if __name__ == "__main__":
    main()
