"""The parser of textual IR (`.wir`): `parse` returns the module that a text spells.

It reads the text that `wscc.ir.text.print` writes; `wscc.ir.verify` checks the module.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from wscc import grammar
from wscc.diagnostics import Code, CompileError, Source, Span, fail
from wscc.ir.module import Module
from wscc.ir.text.read import read_module

_WORDS: Final = {
    "NL": "the end of the line", "VALUE": "a `%name`", "PROC": "an `@name`", "NAME": "a name",
    "STRING": "a string", "NUMBER": "a number",
    "KEY": "an attribute `name=`", "RULE": "an index rule `{..}`",
    "TYPE": "a type such as `f32[8,64]`", "INTS": "integers `<..>`", "VIEW": "a view such as `%x[8,64]`",
    "MODE": "`write` or `add`", "SIDE": "`sent` or `received`",
    "ROLE": "what it is of another array, as `gradient_of=`", "_COMMA": "`,`", "$END": "end of file",
}  # fmt: skip
_MAX_EXPECTED: Final = 6
_MAX_LINE: Final = 1 << 18


@cache
def _parser() -> lark.Lark:
    return lark.Lark(grammar.text("wir"), parser="lalr", maybe_placeholders=False, propagate_positions=False)


def parse(source: Source) -> Module:
    """The module that the text spells; its ops, arrays and kernels have spans of the source.

    Raises `CompileError` (W601, with a span) for any mistake of the text.
    """
    _refuse_long_lines(source)
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as problem:
        raise _syntax(problem, source) from None
    return read_module(tree, source)


def _refuse_long_lines(source: Source) -> None:
    """Raise W601 for a line that no printed module has, and that would take minutes to read."""
    start = 0
    for number, line in enumerate(source.text.split("\n"), 1):
        if len(line) > _MAX_LINE:
            span = Span(source, start, start + 1, number, 1)
            message = f"a line has {len(line):,} characters"
            raise fail(
                Code.BAD_IR, message, span, help=f"the limit is {_MAX_LINE:,}; a line may break after a comma"
            )
        start += len(line) + 1


def _syntax(problem: UnexpectedInput, source: Source) -> CompileError:
    start = problem.pos_in_stream
    if start is None or (isinstance(problem, UnexpectedToken) and problem.token.type == "$END"):
        start = len(source.text)
    word = _word_at(source.text, start)
    line = source.text.count("\n", 0, start) + 1
    column = start - source.text.rfind("\n", 0, start)
    span = Span(source, start, start + len(word), line, column)
    shown = (
        f"`{word}`"
        if word.strip()
        else "the end of the line"
        if start < len(source.text)
        else "the end of the file"
    )
    return fail(Code.BAD_IR, f"{shown} cannot stand here", span, help=_expectation(problem))


def _word_at(text: str, start: int) -> str:
    word = re.compile(r"[%@]?[A-Za-z0-9_.]+|[^\n]", re.ASCII).match(text, start)
    return word.group() if word else ""


def _expectation(problem: UnexpectedInput) -> str:
    names: set[str] = set(getattr(problem, "accepts", None) or getattr(problem, "allowed", None) or ())
    literal = {t.name: t.pattern.value for t in _parser().terminals}
    words = sorted(_WORDS.get(n) or f"`{literal.get(n, n)}`" for n in names)
    if not words or len(words) > _MAX_EXPECTED:
        return ""
    return f"expected {' or '.join(filter(None, (', '.join(words[:-1]), words[-1])))}"
