"""The result of a search: strategies with their figures, a lower bound of all, and the reasons of refusals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final

from wscc.analysis.memory.report import format_bytes
from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.machine.wafer import Die
from wscc.passes.plan_memory.capacity import larger_dies
from wscc.search.candidates import Compiled, Figures, Refused
from wscc.search.closed_forms import Bound
from wscc.search.space import Strategy, spell
from wscc.strategy import dies_of

_MAX_REASONS: Final = 3  # reasons in a message
_QUARTERS: Final = (5, 6, 8, 16)  # of what rests on a die: memory that may hold what a step needs besides
# Of a message: names, lists, numbers with their unit, and what explains them.
_DETAIL: Final = re.compile(r"`[^`]*`|\[[^]]*\]|\d[\d.,]*( [kMGT]?B\b)?|[(:].*")


class End(StrEnum):
    """The reason why the search stopped."""

    SIMULATED = "all that compile were simulated"
    BOUND = "bounds rule out all others"
    BUDGET = "budget used up"


@dataclass(slots=True, eq=False)
class Candidate:
    """A strategy that the closed forms allow. `estimate` is the seconds estimated from its sharded module, if it was
    partitioned; `program` is compiled, and kept until it is simulated; `least` is the seconds of a step, or a lower
    bound before it is simulated; `is_given`: it is the program's own strategy."""

    strategy: Strategy
    bound: Bound
    is_given: bool = False
    estimate: float | None = None
    program: Compiled | None = None
    figures: Figures | None = None
    peak_bytes_per_die_max: int | None = None
    least: float = field(init=False)

    def __post_init__(self) -> None:
        self.least = self.bound.seconds

    @property
    def dies(self) -> int:
        return dies_of(self.strategy)


@dataclass(slots=True)
class SearchResult:
    """The result. `dies` are the numbers of dies that were considered, `live` how many can reach each other. Of the
    strategies, `simulated` come in order of time, `slower` were compiled and are slower by the bound of their
    program, `others` were estimated, in order, or not even that; `refused` are all the rest. `compiled` counts those
    that were tried, refused or not."""

    live: int
    dies: list[int] = field(default_factory=list)
    simulated: list[Candidate] = field(default_factory=list)
    slower: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    refused: list[tuple[Strategy, Refused]] = field(default_factory=list)
    estimated: int = 0
    compiled: int = 0
    end: End = End.SIMULATED

    @property
    def best(self) -> Candidate:
        """The strategy of the shortest simulated step. Raises IndexError if none was simulated."""
        return self.simulated[0]

    @property
    def seconds(self) -> float:
        """The seconds of the best simulated step; infinite if there is none."""
        return self.best.least if self.simulated else inf

    @property
    def bound(self) -> float:
        """A lower bound, in seconds, of the steps of all strategies considered."""
        return min([self.seconds, *(c.bound.seconds for c in self.others)])

    @property
    def strategies(self) -> int:
        """The number of strategies considered."""
        fitting = len(self.simulated) + len(self.slower) + len(self.others)
        return fitting + len(self.refused)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Strategies refused with one code and the same words, but for numbers and names; and the first of them."""

    code: Code
    count: int
    example: str
    message: str


def refusals(result: SearchResult) -> list[Refusals]:
    """The refusals grouped by reason, the most frequent first."""
    alike: dict[tuple[Code, str], list[tuple[Strategy, Refused]]] = {}
    for strategy, r in result.refused:
        alike.setdefault((r.code, _DETAIL.sub("", r.message)), []).append((strategy, r))
    rows = [Refusals(code, len(of), spell(of[0][0]), of[0][1].message) for (code, _), of in alike.items()]
    return sorted(rows, key=lambda r: (-r.count, r.code, r.example))


def none_fits(result: SearchResult, die: Die) -> CompileError:
    """A W206 with the counts of refusals by reason, and the strategy that is nearest to fitting."""
    rows = refusals(result)[:_MAX_REASONS]
    words = "; ".join(f"{r.count} {r.code}, such as `{r.example}`: {r.message}" for r in rows)
    help, changes = "", list[Proposal]()
    if short := [(r.bytes, s) for s, r in result.refused if r.bytes]:
        needed, strategy = min(short)
        help = f"`{spell(strategy)}` is nearest: what rests on each die needs {format_bytes(needed)}"
        larger = [larger_dies(die, needed * n // 4) for n in _QUARTERS]
        changes = [Proposal(strategy).then(change) for change in larger]
    return fail(
        Code.NO_STRATEGY,
        f"none of {result.strategies} strategies of {spoken(result.dies)} fits: {words}",
        help=help,
        candidates=changes,
    )


def spoken(dies: Sequence[int]) -> str:
    """Numbers of dies in words: `48 dies`, `8 to 4 dies`."""
    most = f"{dies[0]} die{'s' * (dies[0] > 1)}"
    return most if len(dies) == 1 else f"{dies[0]} to {dies[-1]} dies"


def summary(result: SearchResult) -> dict[str, Any]:
    """The counts, the end and the best of a search, for reports in JSON: not the strategies one by one."""
    return {
        "live_dies": result.live,
        "dies": result.dies,
        "strategies": result.strategies,
        "estimated": result.estimated,
        "compiled": result.compiled,
        "simulated": len(result.simulated),
        "refused": dict(sorted(Counter(str(r.code) for _, r in result.refused).items())),
        "ended": str(result.end),
        "best": spell(result.best.strategy),
        "step_seconds": result.seconds,
        "bound_seconds": result.bound,
    }
