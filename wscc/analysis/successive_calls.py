"""Calls of a step that run one right after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from wscc.ir.step import Affine, Call, Loop, Ref, substituted

Body = tuple[Call | Loop, ...]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A call as it stands in the step, and what its arguments are bound to at one time."""

    call: Call
    args: tuple[Ref, ...]

    def at(self, variables: dict[str, Affine]) -> Occurrence:
        """The occurrence with loop variables replaced."""
        args = (replace(r, index=tuple(substituted(i, variables) for i in r.index)) for r in self.args)
        return replace(self, args=tuple(args))


def successive(body: Body) -> Iterator[tuple[Occurrence | None, Occurrence | None]]:
    """All pairs of a call and the one that runs right after it, with arguments as functions of the same loop variables.

    What comes before the first call, and after the last, is None.
    """
    body = _without_empty_loops(body)
    yield None, _end(body, last=False)
    yield from _inner(body)
    yield _end(body, last=True), None


def _without_empty_loops(body: Body) -> Body:
    kept: list[Call | Loop] = []
    for s in body:
        if isinstance(s, Call):
            kept.append(s)
        elif inner := _without_empty_loops(s.body):
            kept.append(replace(s, body=inner))
    return tuple(kept)


def _inner(body: Body) -> Iterator[tuple[Occurrence | None, Occurrence | None]]:
    for a, b in pairwise(body):
        yield _end((a,), last=True), _end((b,), last=False)
    for stmt in body:
        if isinstance(stmt, Loop):
            yield from _inner(stmt.body)
            if stmt.count > 1:
                following = {stmt.variable: Affine(1, ((stmt.variable, 1),))}
                after = _end(stmt.body, last=False)
                yield _end(stmt.body, last=True), after and after.at(following)


def _end(body: Body, *, last: bool) -> Occurrence | None:
    """The first or the last call of statements."""
    if not body:
        return None
    stmt = body[-1 if last else 0]
    if isinstance(stmt, Call):
        return Occurrence(stmt, stmt.args)
    inner, turn = _end(stmt.body, last=last), stmt.count - 1 if last else 0
    return inner and inner.at({stmt.variable: Affine(turn)})
