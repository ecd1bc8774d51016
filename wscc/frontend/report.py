"""Collecting mistakes, so that one run shows as many as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final, TypeVar

from wscc.diagnostics import NO_SPAN, Code, CompileError, Diagnostic, Label, Span

T = TypeVar("T")
_MAX_SHOWN: Final = 20  # then nothing more is looked for
_MAX_WORD: Final = 64  # longer words are not compared: the time grows with the square


def hint(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean ...?` if something known is close, else `otherwise`, else the list of what is known."""
    if len(word) > _MAX_WORD:
        return otherwise
    words = sorted(set(known))
    folded = {w.lower(): w for w in reversed(words)}
    if close := get_close_matches(word.lower(), folded, n=1, cutoff=0.6):
        return f"did you mean `{folded[close[0]]}`?"
    if otherwise or not words:
        return otherwise
    return f"known here: {', '.join(words[:12])}{', ...' if len(words) > 12 else ''}"


class Report:
    """The mistakes found so far, in the order found. Adding the last of `_MAX_SHOWN` raises them all."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def add(
        self, code: Code, message: str, span: Span, label: str = "", help: str = "", first: Span = NO_SPAN
    ) -> None:
        """`first` is the place that the mistake conflicts with."""
        others = (Label(first, "first here"),) if first is not NO_SPAN else ()
        self.extend((Diagnostic(code, message, Label(span, label), others, help),))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.found += diagnostics
        if len(self.found) >= _MAX_SHOWN:
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
        """Raise what was found, if anything, in the order of the text; of the same words, the first."""
        if self.found:
            ordered = sorted(self.found, key=lambda d: (d.label.span.file, d.label.span.start))
            by_words = {(d.code, d.message): d for d in reversed(ordered)}
            raise CompileError(*list(by_words.values())[: -_MAX_SHOWN - 1 : -1])
