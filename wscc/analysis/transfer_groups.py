"""Groups of transfers of a procedure: the stretch of the body that each one spans, and how many may be in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.fabric import Transfer
from wscc.ir.module import Procedure


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """The transfers, by position in the body, of groups that interleave (mostly one group)."""

    first: int
    last: int
    transfers: frozenset[int]


def group_spans(procedure: Procedure) -> list[GroupSpan]:
    """Disjoint spans in program order; a transfer without a group is one by itself, a local one in none."""
    groups: dict[str | int, list[int]] = {}
    for i, stmt in enumerate(procedure.body):
        if isinstance(stmt, Transfer) and not stmt.is_local:
            groups.setdefault(stmt.group or i, []).append(i)
    spans: list[GroupSpan] = []
    for positions in groups.values():
        span = GroupSpan(positions[0], positions[-1], frozenset(positions))
        while spans and spans[-1].last > span.first:
            last = spans.pop()
            span = GroupSpan(
                min(last.first, span.first), max(last.last, span.last), last.transfers | span.transfers
            )
        spans.append(span)
    return spans


# Unless told otherwise, messages begin and end over at most so many other transfers.
WINDOW: Final = 2
