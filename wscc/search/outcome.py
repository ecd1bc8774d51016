"""The result of a search: plans with their figures, a lower bound of all, and the reasons of refusals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from wscc.search.coarse import Open
from wscc.search.space import Plan, Strategy, spell

_MAX_REASONS: Final = 3  # reasons in a message
_QUARTERS: Final = (5, 6, 8, 16)  # of what rests on a die: memory that may hold what a step needs besides
# Of a message: names, lists, numbers with their unit, and what explains them.
_DETAIL: Final = re.compile(r"`[^`]*`|\[[^]]*\]|\d[\d.,]*( [kMGT]?B\b)?|[(:].*")


class End(StrEnum):
    """The reason why the search stopped."""

    SIMULATED = "all that compile were simulated"
    BOUND = "bounds rule out all others"
    ESTIMATES = "no other is near by its estimate"
    BUDGET = "budget used up"


@dataclass(slots=True, eq=False)
class Candidate:
    """A plan that is possible. `estimate` is the seconds estimated from its sharded module; `program` is compiled, and
    kept until it is simulated; `least` is the seconds of a step, or a lower bound before it is simulated; `is_given`:
    it is the program's own plan."""

    plan: Plan
    bound: Bound
    is_given: bool
    estimate: float
    program: Compiled | None = None
    figures: Figures | None = None
    peak_bytes_per_die_max: int | None = None
    least: float = field(init=False)

    def __post_init__(self) -> None:
        self.least = self.bound.seconds

    @property
    def strategy(self) -> Strategy:
        return self.plan.strategy

    @property
    def dies(self) -> int:
        return self.plan.dies


@dataclass(slots=True)
class SearchResult:
    """The result. `live` is how many dies can reach each other; `open` are the strategies that the coarse filter let
    pass. Of the plans that were estimated, `simulated` come in order of time, `slower` were compiled and are slower by
    the bound of their program, `others` are in the order of estimates. `refused` are single plans, and whole strategies
    (plans without settings). `compiled` counts plans that were tried, refused or not."""

    live: int
    open: Mapping[Strategy, Open]
    refused: list[tuple[Plan, Refused]]
    simulated: list[Candidate] = field(default_factory=list)
    slower: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    estimated: int = 0
    compiled: int = 0
    left_out: Counter[Code] = field(
        default_factory=Counter
    )  # single plans that were refused without an estimate
    end: End = End.SIMULATED

    @property
    def best(self) -> Candidate:
        """The plan of the shortest simulated step. Raises IndexError if none was simulated."""
        return self.simulated[0]

    @property
    def seconds(self) -> float:
        """The seconds of the best simulated step; infinite if there is none."""
        return self.best.least if self.simulated else inf

    @property
    def bound(self) -> float:
        """A lower bound, in seconds, of the steps of all plans of the space, whether they were looked at or not."""
        estimated = (*self.simulated, *self.slower, *self.others)
        looked = Counter(p.strategy for p in (*(c.plan for c in estimated), *self._refused_plans))
        unseen = [o.bound.seconds for s, o in self.open.items() if looked[s] < o.plans]
        return min([self.seconds, *unseen, *(c.bound.seconds for c in self.others)])

    @property
    def removed(self) -> dict[str, int]:
        """How much each rule of the coarse filter removed: strategies that cannot be split, or do not fit at rest, or
        whose work or reads from HBM alone take as long as the best step; and plans of the others."""
        refused = Counter(r.code for p, r in self.refused if not p.settings)
        slow = [o.bound for o in self.open.values() if o.bound.seconds >= self.seconds]
        by_work = sum(bound.compute >= self.seconds for bound in slow)
        return {
            "divisibility": refused[Code.DEGREE],
            "memory": refused[Code.OUT_OF_MEMORY],
            "work": by_work,
            "hbm": len(slow) - by_work,
            "plans_divisibility": self.left_out[Code.DEGREE],
            "plans_memory": self.left_out[Code.OUT_OF_MEMORY],
        }

    @property
    def front(self) -> list[Candidate]:
        """The simulated plans that none of the others beats in time, memory of a die and dies at once (Pareto)."""
        return [c for c in self.simulated if not any(_beats(k, c) for k in self.simulated)]

    @property
    def _refused_plans(self) -> list[Plan]:
        return [p for p, _ in self.refused if p.settings]

    @property
    def strategies(self) -> int:
        """The number of strategies considered."""
        return len(self.open) + len(self.refused) - len(self._refused_plans)

    @property
    def plans(self) -> int:
        """The number of plans of the strategies that are open."""
        return sum(o.plans for o in self.open.values())

    @property
    def dies(self) -> list[int]:
        """The numbers of dies that strategies were considered of, the largest first."""
        return sorted({p.dies for p, _ in self.refused} | {Plan(s).dies for s in self.open}, reverse=True)


def _beats(a: Candidate, b: Candidate) -> bool:
    """Whether `a` needs no more of anything than `b`, and less of something."""
    first, second = ((c.least, c.peak_bytes_per_die_max or 0, c.dies) for c in (a, b))
    return first != second and all(x <= y for x, y in zip(first, second, strict=True))


@dataclass(frozen=True, slots=True)
class Refusals:
    """Strategies or plans refused with one code and the same words, but for numbers and names; the first of them is the
    example."""

    code: Code
    count: int
    example: str
    message: str


def refusals(result: SearchResult) -> list[Refusals]:
    """The refusals grouped by reason, the most frequent first."""
    alike: dict[tuple[Code, str], list[tuple[Plan, Refused]]] = {}
    for plan, r in result.refused:
        alike.setdefault((r.code, _DETAIL.sub("", r.message)), []).append((plan, r))
    rows = [Refusals(code, len(of), str(of[0][0]), of[0][1].message) for (code, _), of in alike.items()]
    return sorted(rows, key=lambda r: (-r.count, r.code, r.example))


def none_fits(result: SearchResult, die: Die, wishes: Iterable[Proposal] = ()) -> CompileError:
    """A W206 with the counts of refusals by reason, and the strategy that is nearest to fitting; candidates are changes
    of pins, then larger memories for that strategy."""
    if not result.strategies:
        message = f"no strategy of up to {result.live} dies has the degrees that are pinned"
        return fail(Code.NO_STRATEGY, message, candidates=list(wishes))
    rows = refusals(result)[:_MAX_REASONS]
    words = "; ".join(f"{r.count} {r.code}, such as `{r.example}`: {r.message}" for r in rows)
    help, changes = "", list(wishes)
    if short := [(r.bytes, p) for p, r in result.refused if r.bytes]:
        needed, plan = min(short)
        help = f"`{plan}` is nearest: what rests on each die needs {format_bytes(needed)}"
        larger = [larger_dies(die, needed * n // 4) for n in _QUARTERS]
        nearest = Proposal(plan.strategy, tuple((f"train.{key}", value) for key, value in plan.settings))
        changes += [nearest.then(change) for change in larger]
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
        "plans": result.plans,
        "estimated": result.estimated,
        "compiled": result.compiled,
        "simulated": len(result.simulated),
        "refused": dict(sorted(Counter(str(r.code) for _, r in result.refused).items())),
        "ended": str(result.end),
        "removed": result.removed,
        "shares": result.best.figures.shares if result.best.figures else {},
        "best": spell(result.best.strategy),
        "settings": dict(result.best.plan.settings),
        "step_seconds": result.seconds,
        "bound_seconds": result.bound,
    }
