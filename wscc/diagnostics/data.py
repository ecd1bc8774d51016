"""A diagnostic as data: its code, its message, and labels at places of the source."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.diagnostics.codes import Code


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
