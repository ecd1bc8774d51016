"""The calls of a simulated step by pipeline stage, each with its begin and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.compose import Composer, Entry, Observer
from wscc.backends.simulator.costs import SECOND
from wscc.driver.simulate import builder_of
from wscc.machine.links import CUT_THROUGH


@dataclass(frozen=True, slots=True, order=True)
class StageCall:
    """A call of a procedure on the dies of one stage, from its first die that enters to the last that leaves.

    Times are in seconds from the begin of the step. `shared`: dies of other stages take part in it; `begin` is then
    when the first die of the last of the stages has come.
    """

    stage: int
    begin: float
    end: float
    procedure: str
    shared: bool


def stage_calls(artifact: Artifact, link_model: str = CUT_THROUGH) -> tuple[StageCall, ...]:
    """All calls of a step, every turn of every loop among them, sorted. Raises as `simulate` does."""
    builder = builder_of(artifact, link_model)
    calls: list[StageCall] = []

    def called(entry: Entry, begin: int) -> None:
        calls.extend(_by_stage(entry, begin, builder.stages))

    observer = Observer(called, lambda dies, begin, end, periods: None)
    Composer(builder, observer, unrolled=True).run()
    return tuple(sorted(calls))


def _by_stage(entry: Entry, begin: int, stages: Sequence[int]) -> Iterator[StageCall]:
    dies = entry.cluster.dies
    present = sorted({stages[d] for d in dies})
    own = {s: [i for i, d in enumerate(dies) if stages[d] == s] for s in present}
    first = begin + max(min(entry.state[i] for i in part) for part in own.values())
    for stage, part in own.items():
        last = max(first, begin + max(entry.leave[i] for i in part))
        yield StageCall(stage, _seconds(first), _seconds(last), entry.variant[0], len(present) > 1)


def _seconds(ticks: int) -> float:
    return float(Fraction(ticks, SECOND))
