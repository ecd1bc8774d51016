"""Diagnostics are data: a code, a message, labelled spans and help. Rendering lives in `render`.

Every mistake of a user ends as a `CompileError` carrying one or more `Diagnostic`s; any other exception
that reaches the command line is a bug of wscc.
"""

from __future__ import annotations

from dataclasses import dataclass

from wscc.diagnostics.codes import CODES, Code

__all__ = ["CODES", "NO_SPAN", "Code", "CompileError", "Diagnostic", "Label", "Source", "Span"]


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is shown under (a path as the user typed it, or `<command line>`)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of one source; `line` and `column` count from 1."""

    source: Source | None
    start: int
    end: int
    line: int
    column: int

    @property
    def file(self) -> str:
        return self.source.name if self.source else ""


NO_SPAN = Span(None, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Label:
    """A span with words about it; the primary label says *what*, secondary ones say *why*."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. `message` stands alone on one line: lowercase, no full stop, names in backticks."""

    code: Code
    message: str
    label: Label = Label(NO_SPAN)
    others: tuple[Label, ...] = ()
    help: str = ""


class CompileError(Exception):
    """The program (not wscc) is wrong, for the reasons in `diagnostics` (at least one)."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        assert diagnostics
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[type[CompileError], tuple[Diagnostic, ...]]:
        """For errors that cross from one process to another: made again from its diagnostics."""
        return type(self), self.diagnostics


def fail(code: Code, message: str, span: Span = NO_SPAN, *, label: str = "", help: str = "") -> CompileError:
    """A `CompileError` of one diagnostic, for `raise fail(...)`."""
    return CompileError(Diagnostic(code, message, Label(span, label), help=help))
