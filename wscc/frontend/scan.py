"""The checks of raw text that protect the parser.

A text that passes `check_text` is small, has no NUL, and nests brackets at most `MAX_NESTING` deep, so that the
rest of the front end may recurse over it.
"""

from __future__ import annotations

import re
from typing import Final

from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Source, Span, fail
from wscc.files.kinds import MAX_CHARACTERS, WSL

MAX_NESTING: Final = 40

# Comments, strings (perhaps unclosed), words, numbers, single characters: enough to look around in a text
# that does not parse.
WORDS: Final = re.compile(
    r'#[^\r\n]*|"[^"\x00-\x1f]*"?|[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\S'
)
_CLOSER: Final = {"(": ")", "[": "]", "{": "}"}
_ITEM: Final = re.compile(r"(?:wafer|system|model|block|train)[ \t]+[A-Za-z_]")


def span_at(source: Source, start: int, end: int) -> Span:
    """The span of a range of characters."""
    line = source.text.count("\n", 0, start) + 1
    return Span(source, start, end, line, start - source.text.rfind("\n", 0, start))


def check_text(source: Source) -> None:
    """Raise W002 for NUL, W003 for a text that is too long or nests too deep, W001 for unbalanced brackets."""
    text = source.text
    if len(text) > MAX_CHARACTERS:
        message = f"`{source.name}` is too large: {len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
        raise fail(Code.LIMIT, message, help=WSL.advice)
    if (nul := text.find("\0")) >= 0:
        span = span_at(source, nul, nul + 1)
        raise fail(Code.UNREADABLE, "the text holds a NUL character", span, label="not text")
    _check_brackets(source)


def _check_brackets(source: Source) -> None:
    stack: list[int] = []
    for word in WORDS.finditer(source.text):
        c, start = word.group(), word.start()
        if c in _CLOSER:
            stack.append(start)
            if len(stack) > MAX_NESTING:
                raise fail(
                    Code.LIMIT,
                    f"brackets are nested more than {MAX_NESTING} deep",
                    span_at(source, start, start + 1),
                    label=f"level {len(stack)}",
                    help="give the inner parts names of their own",
                )
        elif c in _CLOSER.values() and (not stack or _CLOSER[source.text[stack.pop()]] != c):
            raise _mismatch(source, start, word)
    if stack:
        raise _unclosed(source, stack)


def _mismatch(source: Source, start: int, word: re.Match[str]) -> CompileError:
    """The error of a closing bracket `word` that closes nothing, or another kind of bracket."""
    stack: list[int] = []
    for before in WORDS.finditer(source.text, 0, start):
        if before.group() in _CLOSER:
            stack.append(before.start())
        elif before.group() in _CLOSER.values():
            stack.pop()
    span = span_at(source, start, start + 1)
    if not stack:
        message = f"`{word.group()}` closes nothing"
        return fail(Code.SYNTAX, message, span, help="remove it, or open it before")
    opened = stack[-1]
    c = source.text[opened]
    return CompileError(
        Diagnostic(
            Code.SYNTAX,
            f"expected `{_CLOSER[c]}` before `{word.group()}`",
            Label(span, f"`{_CLOSER[c]}` is missing before this"),
            (Label(span_at(source, opened, opened + 1), "opened here"),),
        )
    )


def _unclosed(source: Source, stack: list[int]) -> CompileError:
    """The error of the bracket inside which a section begins at the start of a line, else of the innermost one."""
    opened, end = stack[-1], len(source.text)
    words = "the file ends"
    for item in _ITEM.finditer(source.text):
        line = source.text.rfind("\n", 0, item.start()) + 1
        inside = [start for start in stack if start < item.start()]
        if inside and item.start() == line:
            opened, end = inside[-1], item.start()
            words = f"`{item.group()[:-1].strip()}` begins"
            break
    c = source.text[opened]
    return fail(
        Code.SYNTAX,
        f"this `{c}` is never closed",
        span_at(source, opened, opened + 1),
        label="opened here",
        help=f"write `{_CLOSER[c]}` before {words} (line {source.text.count(chr(10), 0, end) + 1})",
    )
