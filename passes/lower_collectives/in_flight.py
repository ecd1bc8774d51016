"""Reshards of a procedure that may be in flight at the same time: none of them needs what another one gives."""

from __future__ import annotations

from wscc.ir.module import Procedure
from wscc.ir.op import Reshard


def in_flight(procedure: Procedure) -> dict[str, int]:
    """By name of its result, for each reshard: how many along its axis, with itself, neither need it nor are needed by
    it."""
    needs: list[int] = []  # of each statement, a bit for each one that it needs, and its own
    made: dict[str, int] = {}
    reshards: dict[str, list[int]] = {}
    statements = procedure.statements
    for number, stmt in enumerate(statements):
        needed = 1 << number
        for value in stmt.operands:
            needed |= needs[made[value.name]] if value.name in made else 0
        needs.append(needed)
        made.update((value.name, number) for value in stmt.results)
        if isinstance(stmt, Reshard) and stmt.kind not in ("slice", "mask"):
            reshards.setdefault(stmt.axis, []).append(number)
    return {
        statements[n].results[0].name: 1 + sum(_are_apart(needs, n, m) for m in along)
        for along in reshards.values()
        for n in along
    }


def _are_apart(needs: list[int], a: int, b: int) -> bool:
    return not (needs[a] >> b & 1 or needs[b] >> a & 1)
