"""The rendering of diagnostics as text, in the manner of rustc: message, place with a caret, reasons, and help.

error[W004]: `sram` needs a unit
 --> w.wsl:3:15
  |
3 |   die { sram 80, tile 128 }
  |              ^^ bytes are wanted
  |
  = help: write `80 MB`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from unicodedata import combining, east_asian_width

from rich.text import Text

from wscc.diagnostics.data import Diagnostic, Label, Span

_TAB = 4
_WIDTH = 100  # columns of source shown; longer lines are cut around the caret
_ELLIPSIS = "..."


class Mistakes(Protocol):
    """Anything that carries diagnostics, such as a `CompileError`."""

    diagnostics: tuple[Diagnostic, ...]


def render(error: Mistakes) -> str:
    """All diagnostics of the error as plain text, blank lines between them, no final newline."""
    return render_rich(error).plain


def render_rich(error: Mistakes) -> Text:
    """The same text, styled for a terminal."""
    return Text("\n\n").join(_diagnostic(d) for d in error.diagnostics)


def one_line(diagnostic: Diagnostic) -> str:
    """`file:line:column: error[CODE]: message`, for logs and the last line of stderr."""
    span = diagnostic.label.span
    where = f"{visible(span.file)}:{span.line}:{span.column}: " if span.source else ""
    return f"{where}error[{diagnostic.code}]: {visible(diagnostic.message)}"


def _diagnostic(d: Diagnostic) -> Text:
    out = Text()
    out.append(f"error[{d.code}]", "bold red").append(f": {visible(d.message)}", "bold")
    labels = [label for label in (d.label, *d.others) if label.span.source is not None]
    gutter = max((len(str(label.span.line)) for label in labels), default=1)
    for label in labels:
        _snippet(out, label, gutter, primary=label is d.label)
    for i, line in enumerate(d.help.splitlines()):
        if i == 0 and labels:
            out.append(f"\n{' ' * gutter} |", "blue")
        out.append(f"\n{' ' * gutter} = " if i == 0 else f"\n{' ' * gutter}   ", "blue")
        out.append("help: " if i == 0 else "      ", "bold cyan").append(visible(line))
    return out


def _snippet(out: Text, label: Label, gutter: int, *, primary: bool) -> None:
    span, margin = label.span, " " * gutter
    out.append(f"\n{margin}{'-->' if primary else ':::'} ", "blue")
    out.append(f"{visible(span.file)}:{span.line}:{span.column}")
    line, indent, width = _window(span)
    out.append(f"\n{margin} |\n{span.line:>{gutter}} | ", "blue").append(line.rstrip())
    mark, style = ("^", "bold red") if primary else ("-", "blue")
    out.append(f"\n{margin} | ", "blue").append(" " * indent)
    out.append(f"{mark * width} {visible(label.text)}".rstrip(), style)


def _window(span: Span) -> tuple[str, int, int]:
    """The line of the span as shown, the columns before the mark, and the columns under it."""
    assert span.source is not None
    text = span.source.text
    start = min(span.start, len(text))
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    # Only a neighbourhood of the mark is ever shown, so only that is laid out, however long the line.
    left = max(first, start - _WIDTH)
    right = min(last, start + 2 * _WIDTH)
    before = _cells(text[left:start])
    marked = _cells(text[start : min(span.end, right)])
    after = _cells(text[max(start, min(span.end, right)) : right])
    return _cut(before, marked, after, left > first, right < last)


def _cut(
    before: list[str], marked: list[str], after: list[str], cut_left: bool, cut_right: bool
) -> tuple[str, int, int]:
    """The line as `_window` returns it, at most `_WIDTH` columns of its cells, with ellipses where it is cut."""
    fits = not cut_left and _width(before) + _width(marked) + _width(after) <= _WIDTH
    room = 2 * _WIDTH if fits else _WIDTH - min(_width(marked), _WIDTH // 2)
    while _width(before) > room * 2 // 3:
        before, cut_left = before[1:], True
    while _width(marked) > _WIDTH - _width(before):
        marked, after, cut_right = marked[:-1], [], True
    while after and _width(before) + _width(marked) + _width(after) > _WIDTH:
        after, cut_right = after[:-1], True
    prefix = _ELLIPSIS if cut_left else ""
    line = prefix + "".join(before + marked + after) + (_ELLIPSIS if cut_right else "")
    return line, len(prefix) + _width(before), max(1, _width(marked))


def _cells(text: str) -> list[str]:
    return [_shown(c) for c in text]


def _shown(c: str) -> str:
    """The character as printed: tabs are `_TAB` blanks, and nothing can steer the terminal."""
    if c == "\t":
        return " " * _TAB
    if c == "\r":
        return ""
    if ord(c) < 32 or c == "\x7f":
        return chr(0x2421 if c == "\x7f" else 0x2400 + ord(c))
    return c if c.isprintable() else "\ufffd"


def visible(text: Iterable[str]) -> str:
    return "".join(" " if c == "\t" else _shown(c) for c in text)


def _width(cells: list[str]) -> int:
    """The columns of cells on a terminal."""
    return sum(2 if east_asian_width(c) in "WF" else 0 if combining(c) else 1 for cell in cells for c in cell)
