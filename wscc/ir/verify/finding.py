"""Findings of the verifier, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wscc.diagnostics import NO_SPAN, Code, Diagnostic, Label, Span
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt

Findings = Iterator[Diagnostic]


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a module in words, and its span if the module was read from text."""

    words: str
    span: Span = NO_SPAN

    def wrong(self, message: str, help: str = "") -> Diagnostic:
        """A mistake in this place."""
        return Diagnostic(Code.BAD_IR, f"{self.words}: {message}", Label(self.span), help=help)


def in_procedure(procedure: Procedure) -> Place:
    """The place of a procedure as a whole."""
    return Place(f"procedure `@{procedure.name}`", procedure.span)


def at_op(procedure: Procedure, op: GraphStmt) -> Place:
    """The place of an op or reshard, named by its first result."""
    result = f"%{op.results[0].name} = " if op.results else ""
    return Place(f"`{result}{op.kind}` in `@{procedure.name}`", op.span)


def listed(names: Iterable[str]) -> str:
    """The names in backticks, or `none`."""
    return ", ".join(f"`{n}`" for n in names) or "none"
