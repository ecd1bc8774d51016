"""Producers and users of the values of a procedure of the graph or sharded level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from wscc.ir.op import GraphStmt

S = TypeVar("S", bound=GraphStmt)


def producers(ops: Iterable[S]) -> dict[str, S]:
    """By value, the statement whose result it is."""
    return {v.name: op for op in ops for v in op.results}


def users(ops: Iterable[S]) -> dict[str, list[S]]:
    """By value, the statements that read it, in order; one that reads it as two operands is there twice."""
    reading: dict[str, list[S]] = {}
    for op in ops:
        for v in op.operands:
            reading.setdefault(v.name, []).append(op)
    return reading
