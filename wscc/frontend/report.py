"""A report of mistakes, which collects them, so that one run shows as many as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from wscc.diagnostics import NO_SPAN, Code, CompileError, Diagnostic, Label, Span
from wscc.diagnostics.spelling import did_you_mean

T = TypeVar("T")
_MAX_SHOWN: Final = 20  # then the checks end


def hint(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    """`did you mean ...?` if the word is a slip of a choice, else `otherwise`, else a list of the choices."""
    words = sorted(set(choices))
    known = f"known here: {', '.join(words[:12])}{', ...' if len(words) > 12 else ''}" if words else ""
    return did_you_mean(word, words, otherwise or known)


class Report:
    """The mistakes so far, in the order of the checks. Adding the last of `_MAX_SHOWN` raises them all."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def add(
        self, code: Code, message: str, span: Span, label: str = "", help: str = "", first: Span = NO_SPAN
    ) -> None:
        """Note one mistake; `first` is the place that it conflicts with."""
        others = (Label(first, "first here"),) if first is not NO_SPAN else ()
        self.extend((Diagnostic(code, message, Label(span, label), others, help),))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Note several mistakes."""
        self.diagnostics += diagnostics
        if len(self.diagnostics) >= _MAX_SHOWN:
            self.finish()

    def attempt(self, compute: Callable[[], T], otherwise: T) -> T:
        """The result, or `otherwise` with the mistakes noted."""
        try:
            return compute()
        except CompileError as error:
            self.extend(error.diagnostics)
            return otherwise

    def unique(self, names: Iterable[tuple[str, Span]], what: str) -> None:
        """Note each name that came before (W007)."""
        seen: dict[str, Span] = {}
        for name, span in names:
            if name in seen:
                self.add(Code.DUPLICATE, f"{what} `{name}` is given twice", span, "again", first=seen[name])
            seen.setdefault(name, span)

    def finish(self) -> None:
        """Raise the mistakes, if there are any, in the order of the text; of the same words, the first."""
        if self.diagnostics:
            ordered = sorted(self.diagnostics, key=lambda d: (d.label.span.file, d.label.span.start))
            by_words = {(d.code, d.message): d for d in reversed(ordered)}
            raise CompileError(*list(by_words.values())[: -_MAX_SHOWN - 1 : -1])
