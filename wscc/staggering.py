"""Which delays of the pass `stagger` stay in a program: those with which its simulated step is shorter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from wscc.backends.emit_files import Artifact
from wscc.simulation import simulate

# Delays that are tried, the first of a step: each is a simulation or two.
MOST_TRIED: Final = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a simulated step with all clusters starting at once, and with the delays that were kept.

    `found` counts the delays that the load of links suggests. `slower` is the best step with other starts where none
    helps (None where nothing was suggested).
    """

    link_model: str
    found: int
    kept: tuple[int, ...]
    plain_seconds: float
    seconds: float
    slower: float | None = None

    def report(self) -> dict[str, Any]:
        return {
            "words": self.words(),
            "link_model": self.link_model,
            "delays_found": self.found,
            "delays_kept": len(self.kept),
            "step_seconds_before": self.plain_seconds,
            "step_seconds": self.seconds,
        }

    def words(self) -> str:
        if not self.found:
            return "no two clusters of dies that may start apart share a hot link"
        if not self.kept:
            return f"do not help here: {self.plain_seconds:.6g} s, with them at best {self.slower:.6g} s"
        kept = f"{len(self.kept)} of {self.found} delays" if self.found > 1 else "1 delay"
        return f"{self.plain_seconds:.6g} s -> {self.seconds:.6g} s with {kept} ({self.link_model})"


def choose(
    plain: Artifact, link_model: str, found: int, delayed: Callable[[tuple[int, ...]], Artifact]
) -> Outcome:
    """Try each delay alone, then add those that help, the best first, as long as the step becomes shorter; and all of
    them at once. `delayed` compiles with the delays of these numbers."""

    def seconds(keep: tuple[int, ...]) -> float:
        return simulate(delayed(keep), link_model).account.seconds

    before = simulate(plain, link_model).account.seconds
    if not found:
        return Outcome(link_model, 0, (), before, before)
    tried = range(min(found, MOST_TRIED))
    alone = sorted((seconds((n,)), n) for n in tried)
    best = alone[0][0]
    kept: tuple[int, ...] = (alone[0][1],)
    for after, n in alone[1:]:
        more = tuple(sorted((*kept, n)))
        if after < before and (now := seconds(more)) < best:
            best, kept = now, more
    if len(tried) > len(kept) and (now := seconds(tuple(tried))) < best:
        best, kept = now, tuple(tried)
    if best < before:
        return Outcome(link_model, found, kept, before, best)
    return Outcome(link_model, found, (), before, before, best)
