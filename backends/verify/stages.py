"""Whether the stages get through the step: they make the calls in which they meet in one order.

A call whose messages stay inside a stage ends when all dies of the stage make it, which they do in the order of
their one step. A call with messages between stages is over when all of these make it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wscc.backends.verify.findings import Finding
from wscc.ir.streams.program import ProgramCall, ProgramStep


def meeting_calls(step: ProgramStep, meets: Mapping[str, frozenset[int]]) -> Iterator[str]:
    """The procedures in which a stage meets others, call by call."""
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            if stmt.procedure in meets:
                yield stmt.procedure
        elif inner := tuple(meeting_calls(stmt.body, meets)):
            for _ in range(stmt.count):
                yield from inner


def check_stages(steps: tuple[ProgramStep, ...], meets: Mapping[str, frozenset[int]]) -> Iterator[Finding]:
    """`meets` has the stages of each procedure that has messages between stages."""
    to_come = [iter(meeting_calls(step, meets)) for step in steps]
    at = [next(calls, None) for calls in to_come]
    moved = True
    while moved:
        moved = False
        for stage, procedure in enumerate(at):
            if procedure is None or stage not in meets[procedure]:
                moved = moved or procedure is not None
                at[stage] = next(to_come[stage], None) if procedure is not None else None
            elif all(at[other] == procedure for other in meets[procedure]):
                for other in meets[procedure]:
                    at[other] = next(to_come[other], None)
                moved = True
    blocked = {stage: name for stage, name in enumerate(at) if name is not None}
    if blocked:
        words = "; ".join(
            f"stage {stage} in `{name}` waits for {_others(stage, meets[name])}"
            for stage, name in blocked.items()
        )
        yield Finding("waits", f"stages never meet: {words}")


def _others(stage: int, stages: frozenset[int]) -> str:
    return " and ".join(f"stage {s}" for s in sorted(stages - {stage}))
