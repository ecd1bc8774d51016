"""Spreading of the pieces of kernels that read arguments among the products before them, so that these hide copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from wscc.analysis.cost import DieRates
from wscc.analysis.flops import gemm_flops
from wscc.analysis.memory.access_cost import cumulative_work
from wscc.analysis.statement_accesses import views_of
from wscc.ir.fabric import FabricStmt, Kernel
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.machine.wafer import Die

# The work over which pieces are spread, in multiples of the time of copies of what they read.
_OVER: Final = 1.5


def spread_pieces(procedure: Procedure, die: Die, aliases: dict[str, str]) -> Procedure:
    """The procedure with the pieces of each kernel as far apart as copies of the arguments that they read take.

    Pieces move up as long as they pass no statement that accesses a buffer that they write, or writes one that they
    read. Kernels of several results stay: these would take more memory meanwhile than the operands give back.
    """
    work, arguments = cumulative_work(procedure, die), {v.name for v in procedure.arguments}
    before: dict[int, list[int]] = {}
    for first, end in _runs(procedure):
        pieces = [k for k in procedure.body[first:end] if isinstance(k, Kernel)]
        bytes_ = sum(v.bytes for k in pieces for v in k.reads if v.buffer in arguments)
        if not bytes_ or len(pieces[0].writes) > 1:
            continue
        earliest, now = _earliest_position(procedure, first, pieces, aliases), float(work.seconds[first])
        span = min(now - float(work.seconds[earliest]), DieRates.of(die).hbm(_OVER * bytes_))
        for i in range(first, end):
            position = work.first_after(now - span * (end - 1 - i) / len(pieces))
            before.setdefault(max(earliest, min(first, position)), []).append(i)
    if not before:
        return procedure
    moved = {i for pieces_ in before.values() for i in pieces_}
    body: list[FabricStmt | GraphStmt] = []
    for i, stmt in enumerate(procedure.body):
        body += [procedure.body[k] for k in before.get(i, ())]
        if i not in moved:
            body.append(stmt)
    return replace(procedure, body=tuple(body))


def _runs(procedure: Procedure) -> Iterator[tuple[int, int]]:
    """First and end position of each run of at least two pieces of one kernel."""
    end = 0
    for origin, run in groupby(procedure.body, key=_origin):
        first, end = end, end + len(list(run))
        if origin and end - first > 1:
            yield first, end


def _origin(stmt: object) -> tuple[str, str, Ints] | None:
    """The key that pieces of one kernel share; None for other statements and products."""
    if not isinstance(stmt, Kernel) or gemm_flops(stmt):
        return None
    return stmt.opcode, stmt.source, stmt.where


def _earliest_position(
    procedure: Procedure, first: int, pieces: list[Kernel], aliases: dict[str, str]
) -> int:
    """The earliest position that the pieces may move to: between it and `first`, no statement accesses a buffer that
    they write, or writes one that they read."""
    written = {aliases.get(v.buffer, v.buffer) for k in pieces for v in k.writes}
    read = {aliases.get(v.buffer, v.buffer) for k in pieces for v in k.reads}
    accessed, name = written | read, aliases.get
    for i in range(first - 1, -1, -1):
        writes, reads = views_of(procedure.body[i])
        for v in writes:
            if name(v.buffer, v.buffer) in accessed:
                return i + 1
        for v in reads:
            if name(v.buffer, v.buffer) in written:
                return i + 1
    return 0
