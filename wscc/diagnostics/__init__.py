"""Diagnostics, as data (a code, a message, labelled spans, help), and the error that carries them.

Every mistake of a user ends as a `CompileError` carrying one or more `Diagnostic`s; any other exception
that reaches the command line is a bug of wscc.
"""

from __future__ import annotations

from collections.abc import Iterable

from wscc.diagnostics.codes import CODES, Code
from wscc.diagnostics.data import NO_SPAN, Diagnostic, Edit, Label, Proposal, Source, Span
from wscc.diagnostics.render import render

__all__ = [
    "CODES",
    "NO_SPAN",
    "Code",
    "CompileError",
    "Diagnostic",
    "Edit",
    "Label",
    "Proposal",
    "Source",
    "Span",
    "UsageError",
]


class CompileError(Exception):
    """The program (not wscc) is wrong, for the reasons in `diagnostics` (at least one); `str` renders them all."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        assert diagnostics
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return render(self)

    def __reduce__(self) -> tuple[type[CompileError], tuple[Diagnostic, ...]]:
        """For errors that cross from one process to another: made again from its diagnostics."""
        return type(self), self.diagnostics


class UsageError(CompileError):
    """The command line is wrong: an option is malformed or names nothing that exists (exit status 2)."""


def fail(
    code: Code, message: str, span: Span = NO_SPAN, *, label: str = "", help: str = "",
    candidates: Iterable[Proposal] = (),
) -> CompileError:  # fmt: skip
    """A `CompileError` of one diagnostic, for `raise fail(...)`."""
    return CompileError(Diagnostic(code, message, Label(span, label), (), help, tuple(candidates)))
