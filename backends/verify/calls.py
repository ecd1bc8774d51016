"""The calls of a step without unrolling it: what is called with which addresses, each once or twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from wscc.backends.verify.procedure import Where
from wscc.ir.streams.program import ProgramCall, ProgramLoop, ProgramStep

DynamicCall = tuple[str, tuple[int, ...]]
Variables = dict[str, int]


def distinct_calls(step: ProgramStep) -> Iterator[DynamicCall]:
    """Every (procedure, addresses) of a step, in the order in which it first comes.

    Of a loop the first two turns are whole (the second meets what the first has left), of the later ones only
    calls whose addresses depend on the loop's variable: the others were there.
    """
    return _walk(step, {}, ())


def _walk(step: ProgramStep, variables: Variables, needed: tuple[str, ...]) -> Iterator[DynamicCall]:
    for stmt in step:
        if not all(_depends(stmt, v) for v in needed):
            continue
        if isinstance(stmt, ProgramCall):
            yield stmt.procedure, tuple(a.at(variables) for a in stmt.args)
            continue
        for i in range(stmt.count):
            more = needed if i < 2 else (*needed, stmt.variable)
            if i == 2 and not any(_depends(inner, stmt.variable) for inner in stmt.body):
                break
            yield from _walk(stmt.body, {**variables, stmt.variable: i}, more)


def _depends(stmt: ProgramCall | ProgramLoop, variable: str) -> bool:
    if isinstance(stmt, ProgramLoop):
        return any(_depends(inner, variable) for inner in stmt.body)
    return any(v == variable for a in stmt.args for index, _ in a.terms for v, _ in index.terms)


def calls_by_name(step: ProgramStep, times: int = 1) -> dict[str, int]:
    """How often a step calls each procedure."""
    found: dict[str, int] = {}
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            inner = calls_by_name(stmt.body, times * stmt.count)
        else:
            inner = {stmt.procedure: times}
        for name, n in inner.items():
            found[name] = found.get(name, 0) + n
    return found


@lru_cache(maxsize=1 << 14)
def sharing(
    addresses: tuple[int, ...], extents: tuple[tuple[int, int], ...]
) -> tuple[Where, tuple[int, ...]]:
    """Which arguments share memory, given the bytes that each reaches from its address; and the address of each
    space. Arguments of one space have their distance in memory."""
    reach = sorted(
        (a + low, a + high, n) for n, (a, (low, high)) in enumerate(zip(addresses, extents, strict=True))
    )
    where = [(0, 0)] * len(reach)
    spaces: list[int] = []
    end = -1
    for low, high, n in reach:
        if not spaces or low >= end:
            spaces.append(addresses[n])
        where[n] = len(spaces) - 1, addresses[n] - spaces[-1]
        end = max(end, high)
    return _numbered(where, spaces)


def _numbered(where: list[tuple[int, int]], spaces: list[int]) -> tuple[Where, tuple[int, ...]]:
    """Spaces in the order of the arguments, so that equal ways of sharing are equal."""
    order: dict[int, int] = {}
    for space, _ in where:
        order.setdefault(space, len(order))
    return tuple((order[s], more) for s, more in where), tuple(spaces[s] for s in order)
