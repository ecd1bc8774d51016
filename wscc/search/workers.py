"""The evaluation of many plans of one problem by worker processes, with results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

from wscc.search.candidates import Compiled, Problem, compiled, estimated, simulated
from wscc.search.space import Plan
from wscc.workers import Answers, Workers, can_fork

S = TypeVar("S", Plan, Compiled)
T = TypeVar("T")

# What may be done with a plan or its program, and the words for it.
WORK: Final[dict[str, tuple[Callable[..., Any], str]]] = {
    "estimated": (estimated, "estimating"),
    "compiled": (compiled, "compiling"),
    "simulated": (simulated, "simulating"),
}


class Evaluators:
    """Up to `jobs` worker processes; with one, all is done in this one. Results do not depend on their number."""

    def __init__(self, problem: Problem, jobs: int) -> None:
        self._answers: Answers = {name: partial(work, problem) for name, (work, _) in WORK.items()}
        self._pool = (
            Workers(jobs, lambda me: self._answers, alone="--jobs 1") if jobs > 1 and can_fork() else None
        )

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.close()

    def results(self, work: Callable[[Problem, S], T], items: Sequence[S]) -> Iterator[T]:
        """The result of one of `WORK` for each item in turn. `CompileError` W506 if a process ends or fails."""
        name = work.__name__
        if self._pool is None:
            return map(self._answers[name], items)
        return self._pool.each(name, items, lambda item: f"{WORK[name][1]} `{_spelled(item)}`")


def _spelled(item: Plan | Compiled) -> str:
    return str(item.plan if isinstance(item, Compiled) else item)
