"""Pieces of kernels that read what a call binds stand among the products before them, so that copies hide there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from wscc.analysis.cost import DieRates
from wscc.analysis.flops import gemm_flops
from wscc.analysis.memory.access_cost import pace
from wscc.analysis.statement_accesses import views_of
from wscc.ir.fabric import FabricStmt, Kernel
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.machine.wafer import Die

# Over how much work pieces are spread, in times that copies of what they read take.
_OVER: Final = 1.5


def spread_pieces(procedure: Procedure, die: Die, aliases: dict[str, str]) -> Procedure:
    """The procedure with the pieces of each kernel that has one result as far apart as copies of what they read take,
    as long as nothing between touches a buffer that they write, or writes one that they read. Several results
    would take more memory meanwhile than the operands give back."""
    rhythm, arguments = pace(procedure, die), {v.name for v in procedure.arguments}
    before: dict[int, list[int]] = {}
    for first, end in _runs(procedure):
        pieces = [k for k in procedure.body[first:end] if isinstance(k, Kernel)]
        bytes_ = sum(v.bytes for k in pieces for v in k.reads if v.buffer in arguments)
        if not bytes_ or len(pieces[0].writes) > 1:
            continue
        lowest, now = _independent(procedure, first, pieces, aliases), float(rhythm.seconds[first])
        over = min(now - float(rhythm.seconds[lowest]), DieRates.of(die).hbm(_OVER * bytes_))
        for i in range(first, end):
            at = rhythm.from_(now - over * (end - 1 - i) / len(pieces))
            before.setdefault(max(lowest, min(first, at)), []).append(i)
    if not before:
        return procedure
    moved = {i for some in before.values() for i in some}
    body: list[FabricStmt | GraphStmt] = []
    for i, stmt in enumerate(procedure.body):
        body += [procedure.body[k] for k in before.get(i, ())]
        if i not in moved:
            body.append(stmt)
    return replace(procedure, body=tuple(body))


def _runs(procedure: Procedure) -> Iterator[tuple[int, int]]:
    """First and end of each run of pieces of one kernel, two at least."""
    end = 0
    for origin, run in groupby(procedure.body, key=_origin):
        first, end = end, end + len(list(run))
        if origin and end - first > 1:
            yield first, end


def _origin(stmt: object) -> tuple[str, str, Ints] | None:
    """What pieces of one kernel have in common."""
    if not isinstance(stmt, Kernel) or gemm_flops(stmt):
        return None
    return stmt.opcode, stmt.source, stmt.where


def _independent(procedure: Procedure, first: int, pieces: list[Kernel], aliases: dict[str, str]) -> int:
    """The first statement from which on to `first` none touches a buffer that the pieces write, or writes one that they
    read."""
    written = {aliases.get(v.buffer, v.buffer) for k in pieces for v in k.writes}
    read = {aliases.get(v.buffer, v.buffer) for k in pieces for v in k.reads}
    for i in range(first - 1, -1, -1):
        for view, writes in views_of(procedure.body[i]):
            name = aliases.get(view.buffer, view.buffer)
            if name in written or (writes and name in read):
                return i + 1
    return 0
