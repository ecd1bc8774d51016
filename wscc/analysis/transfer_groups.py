"""Spans of the groups of transfers of a procedure, and the default number of transfers that a message may outlast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.fabric import Transfer
from wscc.ir.module import Procedure


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """Positions in the body of the transfers of groups that interleave (mostly one group), `first` to `last`."""

    first: int
    last: int
    transfers: frozenset[int]


def group_spans(procedure: Procedure) -> list[GroupSpan]:
    """Disjoint spans in program order; a transfer without a group is a span by itself, a local one is in none."""
    groups: dict[str | int, list[int]] = {}
    for i, stmt in enumerate(procedure.body):
        if isinstance(stmt, Transfer) and not stmt.is_local:
            groups.setdefault(stmt.group or i, []).append(i)
    spans: list[GroupSpan] = []
    for positions in groups.values():
        span = GroupSpan(positions[0], positions[-1], frozenset(positions))
        while spans and spans[-1].last > span.first:
            previous = spans.pop()
            span = GroupSpan(
                min(previous.first, span.first),
                max(previous.last, span.last),
                previous.transfers | span.transfers,
            )
        spans.append(span)
    return spans


# The default of how many other transfers a message may begin before or end behind.
WINDOW: Final = 2
