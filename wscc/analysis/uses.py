"""Producers and users of the values of a procedure of the graph or sharded level; what of a module nothing reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.step import calls

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


def unread_parameters(module: Module) -> tuple[Array, ...]:
    """The parameters that no op reads but to convert them, and no procedure hands on, in the order of the arrays."""
    read = {p.name: _read(p) for p in module.procedures}
    used = {
        ref.array
        for call, _ in calls(module.step)
        for v, ref in zip(module.procedure(call.procedure).inputs, call.args, strict=False)
        if v.name in read[call.procedure]
    }
    return tuple(a for a in module.arrays if a.kind is Kind.PARAM and a.name not in used)


def _read(procedure: Procedure) -> set[str]:
    """What is handed on, or read by an op, but for conversions that nothing reads."""
    read = {o.value.name for o in procedure.outputs}
    for op in reversed(procedure.ops):
        if op.kind != "cast" or any(v.name in read for v in op.results):
            read.update(v.name for v in op.operands)
    return read
