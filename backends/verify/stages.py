"""A check that the stages get through the step: they make the calls that have messages between them in one order.

A call whose messages stay inside a stage ends when all dies of the stage make it, which they do in the order of
their one step. A call with messages between stages is over when all of these make it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wscc.backends.verify.findings import Finding
from wscc.ir.streams.program import ProgramCall, ProgramStep


def joint_calls(step: ProgramStep, stages_of: Mapping[str, frozenset[int]]) -> Iterator[str]:
    """The procedures of a stage's step that have messages between stages, call by call."""
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            if stmt.procedure in stages_of:
                yield stmt.procedure
        elif inner := tuple(joint_calls(stmt.body, stages_of)):
            for _ in range(stmt.count):
                yield from inner


def check_stages(
    steps: tuple[ProgramStep, ...], stages_of: Mapping[str, frozenset[int]]
) -> Iterator[Finding]:
    """A finding if stages wait for one another; `stages_of` has the stages of each procedure with messages between
    stages."""
    calls = [iter(joint_calls(step, stages_of)) for step in steps]
    current = [next(c, None) for c in calls]
    progress = True
    while progress:
        progress = False
        for stage, procedure in enumerate(current):
            if procedure is None or stage not in stages_of[procedure]:
                progress = progress or procedure is not None
                current[stage] = next(calls[stage], None) if procedure is not None else None
            elif all(current[other] == procedure for other in stages_of[procedure]):
                for other in stages_of[procedure]:
                    current[other] = next(calls[other], None)
                progress = True
    blocked = {stage: name for stage, name in enumerate(current) if name is not None}
    if blocked:
        words = "; ".join(
            f"stage {stage} in `{name}` waits for {_others(stage, stages_of[name])}"
            for stage, name in blocked.items()
        )
        yield Finding("waits", f"stages never meet: {words}")


def _others(stage: int, stages: frozenset[int]) -> str:
    return " and ".join(f"stage {s}" for s in sorted(stages - {stage}))
