"""Producers and users of the values of a procedure of the graph or sharded level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from wscc.ir.op import GraphStmt

S = TypeVar("S", bound=GraphStmt)


def producers(ops: Iterable[S]) -> dict[str, S]:
    """The statement that each value is a result of, by name of the value."""
    return {v.name: op for op in ops for v in op.results}


def users(ops: Iterable[S]) -> dict[str, list[S]]:
    """The statements that read each value, in program order, one entry for each operand; by name of the value."""
    readers: dict[str, list[S]] = {}
    for op in ops:
        for v in op.operands:
            readers.setdefault(v.name, []).append(op)
    return readers
