"""How the verifier says where it found what."""

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
        return Diagnostic(Code.BAD_IR, f"{self.words}: {message}", Label(self.span), help=help)


def in_procedure(procedure: Procedure) -> Place:
    return Place(f"procedure `@{procedure.name}`")


def at_op(procedure: Procedure, op: GraphStmt) -> Place:
    result = f"%{op.results[0].name} = " if op.results else ""
    return Place(f"`{result}{op.kind}` in `@{procedure.name}`", op.span)


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names) or "none"
