"""The bytes that each statement of a fabric body reads and writes, one by one, by code of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.op import Op
from wscc.ir.per_die import NOBODY, at
from wscc.ir.views import View

Bytes = set[tuple[int, str, int]]  # die, buffer, byte


def reads_and_writes(body: Sequence[FabricStmt | Op], dies: int) -> list[tuple[Bytes, Bytes]]:
    """The bytes that each statement reads, and those that it writes; a wait accesses those of its message."""
    accesses: list[tuple[Bytes, Bytes]] = []
    for stmt in body:
        reads: Bytes = set()
        writes: Bytes = set()
        for die in range(dies):
            if isinstance(stmt, Kernel) and at(stmt.where, die):
                for view in stmt.reads:
                    reads |= _bytes(view, die)
                for view in stmt.writes:
                    writes |= _bytes(view, die)
            elif isinstance(stmt, Transfer) and at(stmt.to, die) != NOBODY:
                reads |= _bytes(stmt.read, die)
                writes |= _bytes(stmt.write, at(stmt.to, die))
            elif isinstance(stmt, Post) and at(stmt.sender, die) != NOBODY:
                writes |= _bytes(stmt.write, die)
            elif isinstance(stmt, Send) and at(stmt.to, die) != NOBODY:
                reads |= _bytes(stmt.read, die)
            elif isinstance(stmt, Wait):
                for n, start in enumerate(body[: len(accesses)]):
                    kind = Send if stmt.sent else Post
                    if isinstance(start, kind) and start.channel == stmt.channel:
                        reads, writes = accesses[n]
        accesses.append((reads, writes))
    return accesses


def _bytes(view: View, die: int) -> Bytes:
    size = view.dtype.size
    elements = (
        at(view.offset, die) + sum(i * s for i, s in zip(index, view.strides, strict=True))
        for index in product(*map(range, view.shape))
    )
    return {(die, view.buffer, size * e + b) for e in elements for b in range(size)}
