"""The distinct calls of a step without unrolling it: each procedure with the addresses of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from wscc.backends.verify.places import LOCAL, Sharing
from wscc.ir.streams.program import ProgramCall, ProgramLoop, ProgramStep

DynamicCall = tuple[str, tuple[int, ...]]
Variables = dict[str, int]


def distinct_calls(step: ProgramStep) -> Iterator[DynamicCall]:
    """Every (procedure, addresses) of a step, in the order of first occurrence; some twice.

    Of a loop the first two turns are whole (the second reads memory that the first has left), of the later ones only
    calls whose addresses depend on the loop's variable: the others have occurred.
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
            dependences = needed if i < 2 else (*needed, stmt.variable)
            if i == 2 and not any(_depends(inner, stmt.variable) for inner in stmt.body):
                break
            yield from _walk(stmt.body, {**variables, stmt.variable: i}, dependences)


def _depends(stmt: ProgramCall | ProgramLoop, variable: str) -> bool:
    if isinstance(stmt, ProgramLoop):
        return any(_depends(inner, variable) for inner in stmt.body)
    return any(v == variable for a in stmt.args for index, _ in a.terms for v, _ in index.terms)


@lru_cache(maxsize=1 << 14)
def sharing(
    addresses: tuple[int, ...], extents: tuple[tuple[int, int], ...], local: tuple[int, int] = (0, 0)
) -> tuple[Sharing, tuple[int, ...]]:
    """The sharing of arguments and the address of each space. `extents` are the bytes (low, high) that each argument
    covers from its address; arguments that overlap are in one space, at their distance in memory. One that overlaps the
    bytes of locals is among these: it is handed from call to call there."""
    spans = sorted(
        (a + low, a + high, n) for n, (a, (low, high)) in enumerate(zip(addresses, extents, strict=True))
    )
    near = {n for low, high, n in spans if low < local[1] and local[0] < high}
    placed = [(LOCAL, address) for address in addresses]
    spaces: list[int] = []
    end = -1
    for low, high, n in spans:
        if n in near:
            continue
        if not spaces or low >= end:
            spaces.append(addresses[n])
        placed[n] = len(spaces) - 1, addresses[n] - spaces[-1]
        end = max(end, high)
    return _numbered(placed, spaces)


def _numbered(placed: list[tuple[int, int]], spaces: list[int]) -> tuple[Sharing, tuple[int, ...]]:
    """The same with spaces numbered in the order of the arguments, so that equal sharing has equal numbers."""
    order: dict[int, int] = {}
    for space, _ in placed:
        if space != LOCAL:
            order.setdefault(space, len(order))
    return tuple((order.get(s, LOCAL), offset) for s, offset in placed), tuple(spaces[s] for s in order)
