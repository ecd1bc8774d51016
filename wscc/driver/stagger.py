"""Choice of the delays of the pass `stagger` that stay in a program: those with which its simulated step is shorter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.compose import Composer
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.whole import length, whole
from wscc.driver.simulate import builder_of

# Delays that are tried, the first of a step: each is a simulation or two.
MOST_TRIED: Final = 8
# Steps of up to so many instructions are simulated whole. Others are composed from their calls, which is near enough
# to tell how long a step takes, not to tell two that differ by less than `NOISE`.
MOST_INSTRUCTIONS: Final = 100_000
NOISE: Final = Fraction(5, 100)

Delayed = Callable[[tuple[int, ...]], Artifact]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Ticks of a simulated step with all clusters starting at once (`plain`), and with the delays that do best.

    `candidates` counts the delays that the load of links suggests; `chosen` are the numbers of those that stay.
    Simulated `whole`, or composed from calls; not at all where there are no candidates.
    """

    link_model: str
    candidates: int
    chosen: tuple[int, ...]
    plain: int
    best: int
    whole: bool

    def report(self) -> dict[str, Any]:
        return {
            "words": self.words(),
            "link_model": self.link_model,
            "simulated_whole": self.whole,
            "delays_found": self.candidates,
            "delays_kept": len(self.chosen),
            "step_seconds_before": _seconds(self.plain) if self.candidates else None,
            "step_seconds": _seconds(self.best if self.chosen else self.plain) if self.candidates else None,
        }

    def words(self) -> str:
        before, best = (f"{_seconds(n):.6g} s" for n in (self.plain, self.best))
        how = (
            f"{self.link_model}, simulated whole" if self.whole else f"{self.link_model}, composed from calls"
        )
        if not self.candidates:
            return "no two clusters of dies that may start apart share a hot link"
        if self.chosen:
            return f"{before} -> {best} with {len(self.chosen)} of {self.candidates} delays ({how})"
        least = "" if self.best >= self.plain else f", less than {float(NOISE):.0%} of difference"
        return f"do not help here: {before}, with delays {best} at best{least} ({how})"


def choose(plain: Artifact, link_model: str, candidates: int, delayed: Delayed) -> Outcome:
    """The delays, of so many candidates, with which the simulated step is shortest; none if none helps.

    Each is tried alone; those that help are added, the best first, as long as the step becomes shorter; and all of
    them at once. `delayed` compiles with the delays of these numbers.
    """
    if not candidates:
        return Outcome(link_model, 0, (), 0, 0, False)
    exact = length(builder_of(plain, link_model)) <= MOST_INSTRUCTIONS

    def ticks(artifact: Artifact) -> int:
        builder = builder_of(artifact, link_model)
        return max(whole(builder).leave.values()) if exact else max(Composer(builder).run().now)

    before = ticks(plain)
    best, chosen = _best(min(candidates, MOST_TRIED), before, lambda keep: ticks(delayed(keep)))
    helps = best < before if exact else best < before * (1 - NOISE)
    return Outcome(link_model, candidates, chosen if helps else (), before, best, exact)


def _best(count: int, before: int, ticks: Callable[[tuple[int, ...]], int]) -> tuple[int, tuple[int, ...]]:
    """Ticks of the shortest step of those tried, and the delays that it has."""
    alone = sorted((ticks((n,)), n) for n in range(count))
    best = alone[0][0]
    chosen: tuple[int, ...] = (alone[0][1],)
    for after, n in alone[1:]:
        more = tuple(sorted((*chosen, n)))
        if after < before and (now := ticks(more)) < best:
            best, chosen = now, more
    everything = tuple(range(count))
    if chosen != everything and (now := ticks(everything)) < best:
        best, chosen = now, everything
    return best, chosen


def _seconds(ticks: int) -> float:
    return float(Fraction(ticks, SECOND))
