"""Producers and users of the values of a procedure of ops."""

from __future__ import annotations

from collections.abc import Iterable

from wscc.ir.op import Op


def producers(ops: Iterable[Op]) -> dict[str, Op]:
    """By value, the op whose result it is."""
    return {v.name: op for op in ops for v in op.results}


def users(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """By value, the ops that read it, in order; one that reads it as two operands is there twice."""
    reading: dict[str, list[Op]] = {}
    for op in ops:
        for v in op.operands:
            reading.setdefault(v.name, []).append(op)
    return reading
