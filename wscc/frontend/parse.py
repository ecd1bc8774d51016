"""The parser: the syntax tree of a text. No other file of the front end imports lark.

Everything is iterative: the parser is a table (LALR), and the tree is built bottom-up over an explicit stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import lark
from lark.exceptions import UnexpectedInput
from lark.lexer import PatternStr

from wscc import grammar
from wscc.diagnostics import CompileError, Diagnostic, Source, Span
from wscc.frontend import ast, build
from wscc.frontend.builtins import OLDER_SPELLINGS
from wscc.frontend.comments import Attached, Extent, attach
from wscc.frontend.mistakes import Stop, diagnose
from wscc.frontend.scan import WORDS, check_text

_MAX_ERRORS: Final = 8
_ITEM: Final = re.compile(r"(?:wafer|system|model|block|train)\s+[A-Za-z_]")
_STARTS: Final = (
    "start",
    "setting",
    "group",
    "wafer_entry",
    "field",
    "argument",
    "parameter",
    "role",
    "axis",
    "pin",
)


class _AnyWord:
    """A hook of lark that makes every state of the lexer read whole words: `batch64` is one name."""

    always_accept = ("NAME",)

    def process(self, stream: Iterator[lark.Token]) -> Iterator[lark.Token]:
        return stream


@cache
def _parser() -> lark.Lark:
    return lark.Lark(
        grammar.text("wsl"),
        parser="lalr",
        start=list(_STARTS),
        propagate_positions=True,
        maybe_placeholders=False,
        postlex=_AnyWord(),
    )


def parse(source: Source) -> ast.File:
    """The tree of a whole file.

    Raises `CompileError` with the mistakes of all sections: after one, reading goes on at the next section.
    """
    check_text(source)
    tree, mistakes = _read(source.text, source, "start")
    if tree is not None:
        extents = [Extent(-1, len(source.text) + 1, is_body=True), *_extents(tree)]
        builder = build.Builder(attach(source.text, extents))
        file = _build(tree, source, builder)
        assert isinstance(file, ast.File)
        mistakes = builder.mistakes
        if not mistakes:
            return file
    raise CompileError(*mistakes)


def parse_fragment(source: Source, start: int, rule: str, text: str = "") -> Any:
    """The tree of one grammar rule of `_STARTS`, for options of the command line.

    The fragment is the source from `start` on, or `text`, which must be as long as the source. Raises
    `CompileError`.
    """
    check_text(source)
    text = text or " " * start + source.text[start:]
    tree, mistakes = _read(text, source, rule)
    builder = build.Builder(Attached())
    node = None if mistakes else _build(tree, source, builder)
    if mistakes or builder.mistakes:
        raise CompileError(*mistakes, *builder.mistakes)
    return node


def _read(text: str, source: Source, rule: str) -> tuple[lark.Tree[lark.Token] | None, list[Diagnostic]]:
    mistakes: list[Diagnostic] = []
    while len(mistakes) < _MAX_ERRORS:
        try:
            tree = _parser().parse(text, start=rule)
        except UnexpectedInput as problem:
            position = _position(problem, text)
            mistakes.append(diagnose(Stop(source, position, _expected(text[:position], rule))))
            # A mistake may stand at the very word that begins the next section, which is then worth reading.
            resume = _next_item(text, position) if rule == "start" else None
            if resume is None:
                return None, mistakes
            text = re.sub(r"[^\n]", " ", text[:resume]) + text[resume:]
        else:
            return (None if mistakes else tree), mistakes
    return None, mistakes


def _position(problem: UnexpectedInput, text: str) -> int:
    token = getattr(problem, "token", None)
    at_end = token is not None and token.type == "$END"
    return len(text) if at_end or problem.pos_in_stream is None else problem.pos_in_stream


def _expected(before: str, rule: str) -> frozenset[str]:
    """The words that may follow `before`, in the spelling of `mistakes`."""
    parser = _parser()
    state = parser.parse_interactive(before, start=rule)
    state.exhaust_lexer()
    accepts: set[str] = state.accepts()  # type: ignore[no-untyped-call]  # lark leaves it untyped
    literal = {t.name: t.pattern.value for t in parser.terminals if isinstance(t.pattern, PatternStr)}
    words = {literal.get(name, name.replace("$END", "END")) for name in accepts}
    return frozenset(words - OLDER_SPELLINGS.keys())


def _next_item(text: str, after: int) -> int | None:
    """The start of the first section that begins behind `after`; brackets balance (`check_text`).

    Any word behind the `}` of a section begins one: it may be a keyword with a slip in it.
    """
    depth, follows_item = 0, False
    for word in WORDS.finditer(text):
        w, start = word.group(), word.start()
        if depth == 0 and start > after and ((follows_item and w.isidentifier()) or _ITEM.match(text, start)):
            return start
        depth += (w in "([{") - (w in ")]}")
        follows_item = w == "}" or (follows_item and w.startswith("#"))
    return None


def _extents(tree: lark.Tree[lark.Token]) -> Iterator[Extent]:
    for node in tree.iter_subtrees():
        rule, meta = str(node.data), node.meta
        if rule in build.BODIES or rule in build.LINES:
            blanks = rule not in build.WITHOUT_BLANKS
            yield Extent(meta.start_pos, meta.end_pos, rule in build.BODIES, blanks)


def _build(tree: Any, source: Source, builder: build.Builder) -> object:
    """The tree that `build.RULES` make, applied bottom-up, children before parents, from left to right."""
    root: build.Children = []
    work: list[tuple[Any, build.Children, build.Children | None]] = [(tree, root, None)]
    while work:
        node, siblings, children = work.pop()
        if isinstance(node, lark.Token):
            siblings.append(_token(node, source, builder))
        elif children is None:
            children = []
            work.append((node, siblings, children))
            work.extend((child, children, None) for child in reversed(node.children))
        else:
            siblings.append(build.RULES[str(node.data)](builder, children, _span(node.meta, source)))
    return root[0]


def _token(token: lark.Token, source: Source, builder: build.Builder) -> object:
    text, span = str(token), _span(token, source)
    match token.type:
        case "NAME":
            return build.name(builder, text, span)
        case "NUMBER":
            return build.number(builder, text, span)
        case "STRING":
            return build.string(builder, text, span)
        case _:
            return text


def _span(positions: Any, source: Source) -> Span:
    """The span of a token or of the `meta` of a tree, which is empty where the tree has no words."""
    if getattr(positions, "empty", False):
        return Span(source, 0, 0, 1, 1)
    return Span(source, positions.start_pos, positions.end_pos, positions.line, positions.column)
