"""Independent components of a scheduled procedure: sets of statements that have no message in common, nor any memory
that one of them writes.

They are the connected components of the graph in which two statements are adjacent if they access one buffer that is
written or belong to one message. Statements of different components may be interleaved in any way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wscc.analysis.statement_accesses import accessed, buffers_of
from wscc.analysis.statement_times import StatementTimes
from wscc.disjoint_sets import DisjointSets
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt

# Positions of statements, in each component ascending.
Components = list[list[int]]


def components(procedure: Procedure, aliases: dict[str, str]) -> Components:
    """The components of all statements, in the order of their first ones.

    `aliases` gives arguments that may be the same memory a common name (`wscc.analysis.aliases`).
    """
    classes: DisjointSets[str | int] = DisjointSets()
    keys: list[str | int] = []
    seen: set[tuple[str | int, ...]] = set()
    accesses = list(accessed(procedure.body))
    written = {aliases.get(v.buffer, v.buffer) for writes, _ in accesses for v in writes}
    for stmt, views in zip(procedure.body, accesses, strict=True):
        assert not isinstance(stmt, GraphStmt | Transfer), "only scheduled procedures have components"
        buffers = (aliases.get(v.buffer, v.buffer) for vs in views for v in vs)
        names: list[str | int] = [name for name in buffers if name in written]
        if not isinstance(stmt, Kernel):
            names.append(stmt.channel)
        if (joined := tuple(names)) not in seen:
            seen.add(joined)
            classes.union(*joined)
        keys.append(names[0] if names else "")
    groups: dict[str | int, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(classes[key], []).append(i)
    return list(groups.values())


def rows(components: Components, times: StatementTimes) -> list[Components]:
    """The components, in order, in rows whose messages together do not fill a link: a greedy packing by utilization."""
    packed: list[Components] = []
    load = 0.0
    for component in components:
        total = sum(times.messages[i] for i in component)
        share = sum(times.busy[i] for i in component) / total if total else 0.0
        if not packed or load + share > 1:
            packed.append([])
            load = 0.0
        packed[-1].append(component)
        load += share
    return packed


def message_seconds(components: Components, times: StatementTimes) -> float:
    """Seconds that the messages of the components take, row after row."""
    return sum(
        max(sum(times.messages[i] for i in component) for component in row) for row in rows(components, times)
    )


def restricted(procedure: Procedure, name: str, positions: Iterable[int]) -> tuple[Procedure, list[int]]:
    """The procedure with the statements at these positions only, and the numbers of the arguments that it keeps."""
    body = tuple(procedure.body[i] for i in sorted(positions))
    used = buffers_of(body)
    numbers = [i for i, v in enumerate(procedure.arguments) if v.name in used]
    restriction = replace(
        procedure,
        name=name,
        inputs=tuple(v for v in procedure.inputs if v.name in used),
        outputs=tuple(o for o in procedure.outputs if o.value.name in used),
        buffers=tuple(b for b in procedure.buffers if b.name in used),
        body=body,
    )
    return restriction, numbers
