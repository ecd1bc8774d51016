"""Strands of a scheduled procedure: sets of statements that have no memory and no message in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wscc.analysis.statement_times import Seconds
from wscc.ir.fabric import FabricStmt, Kernel, Transfer, views_of
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt

# Positions of statements, each strand in the order of the body.
Strands = list[list[int]]


def strands(procedure: Procedure, aliases: dict[str, str]) -> Strands:
    """All statements, in the order of the strands' first ones. `aliases` gives formals that may be the same memory a
    common name (`wscc.analysis.aliases`)."""
    root: dict[str | int, str | int] = {}

    def find(x: str | int) -> str | int:
        while root.setdefault(x, x) != x:
            root[x] = root[root[x]]
            x = root[x]
        return x

    touched = [[aliases.get(x, x) if isinstance(x, str) else x for x in _touched(s)] for s in procedure.body]
    for names in touched:
        for x in names[1:]:
            root[find(x)] = find(names[0])
    found: dict[str | int, list[int]] = {}
    for i, names in enumerate(touched):
        found.setdefault(find(names[0]) if names else "", []).append(i)
    return list(found.values())


def rows(some: Strands, times: Seconds) -> list[Strands]:
    """The strands, in order, in rows: the messages of a row do not fill a link when they are on their way together."""
    found: list[Strands] = []
    full = 0.0
    for strand in some:
        whole = sum(times.messages[i] for i in strand)
        share = sum(times.busy[i] for i in strand) / whole if whole else 0.0
        if not found or full + share > 1:
            found.append([])
            full = 0.0
        found[-1].append(strand)
        full += share
    return found


def waiting(some: Strands, times: Seconds) -> float:
    """Seconds that messages of the strands take, row by row."""
    return sum(max(sum(times.messages[i] for i in strand) for strand in row) for row in rows(some, times))


def part(procedure: Procedure, name: str, positions: Iterable[int]) -> tuple[Procedure, list[int]]:
    """The procedure with some of its strands only, and which of its formals that has."""
    body = tuple(procedure.body[i] for i in sorted(positions))
    used = {x for s in body for x in _touched(s)}
    kept = [i for i, v in enumerate(procedure.formals) if v.name in used]
    made = replace(
        procedure,
        name=name,
        inputs=tuple(v for v in procedure.inputs if v.name in used),
        outputs=tuple(o for o in procedure.outputs if o.value.name in used),
        buffers=tuple(b for b in procedure.buffers if b.name in used),
        body=body,
    )
    return made, kept


def _touched(stmt: GraphStmt | FabricStmt) -> list[str | int]:
    """Buffers, and the channel of a message."""
    assert not isinstance(stmt, GraphStmt | Transfer), "only scheduled procedures have strands"
    channel = [] if isinstance(stmt, Kernel) else [stmt.channel]
    return [*channel, *(view.buffer for view, _ in views_of(stmt))]
