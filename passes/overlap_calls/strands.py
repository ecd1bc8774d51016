"""Strands of a scheduled procedure: sets of statements that have no memory and no message in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from networkx.utils import UnionFind

from wscc.analysis.statement_accesses import accessed, buffers_of
from wscc.analysis.statement_times import Seconds
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt

# Positions of statements, each strand in the order of the body.
Strands = list[list[int]]


def strands(procedure: Procedure, aliases: dict[str, str]) -> Strands:
    """All statements, in the order of the strands' first ones. `aliases` gives arguments that may be the same memory a
    common name (`wscc.analysis.aliases`)."""
    together: UnionFind[str | int] = UnionFind()
    places: list[str | int] = []
    for stmt, views in zip(procedure.body, accessed(procedure.body), strict=True):
        assert not isinstance(stmt, GraphStmt | Transfer), "only scheduled procedures have strands"
        names: list[str | int] = [aliases.get(v.buffer, v.buffer) for v, _ in views]
        if not isinstance(stmt, Kernel):
            names.append(stmt.channel)
        together.union(*names)
        places.append(names[0] if names else "")
    found: dict[str | int, list[int]] = {}
    for i, name in enumerate(places):
        found.setdefault(together[name], []).append(i)
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
    """The procedure with some of its strands only, and which of its arguments that has."""
    body = tuple(procedure.body[i] for i in sorted(positions))
    used = buffers_of(body)
    kept = [i for i, v in enumerate(procedure.arguments) if v.name in used]
    made = replace(
        procedure,
        name=name,
        inputs=tuple(v for v in procedure.inputs if v.name in used),
        outputs=tuple(o for o in procedure.outputs if o.value.name in used),
        buffers=tuple(b for b in procedure.buffers if b.name in used),
        body=body,
    )
    return made, kept
