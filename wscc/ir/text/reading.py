"""Words, spans and mistakes of a textual IR that is being read; all readers of its parts share them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Protocol, TypeVar, get_type_hints, runtime_checkable

from lark import Token, Tree

from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Source, Span, fail
from wscc.diagnostics.limits import limits_of, shown
from wscc.ir.per_die import Ints, PerDie
from wscc.ir.text.die_text import read_ints
from wscc.ir.text.words import Misspelt, read_int, read_name, read_scalar, read_type, read_word
from wscc.ir.types import DType, TensorType

T = TypeVar("T")
Node = Tree[Token]
Scalar = bool | int | float | str
_MAX_MISTAKES: Final = 8
_STRING_OR_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|;.*')


@runtime_checkable
class _Agreeing(Protocol):
    """A dataclass whose fields must agree with one another."""

    def disagreements(self) -> Iterator[tuple[str, str]]: ...


@dataclass(slots=True)
class Reading:
    """The source being read and the mistakes in it; `has_layout` is set at levels whose types have layouts."""

    source: Source
    has_layout: bool = False
    mistakes: list[Diagnostic] = field(default_factory=list)
    _types: dict[str, TensorType] = field(default_factory=dict)
    _per_die: dict[str, PerDie] = field(default_factory=dict)

    def span(self, first: Token, until: Token | None = None) -> Span:
        """From the first token to before `until`, or that of the one token."""
        start, end = first.start_pos or 0, first.end_pos or 0
        if until is not None and until.start_pos is not None:
            text = self.source.text[start : until.start_pos].rstrip()
            end = start + len(text)
        return Span(self.source, start, end, first.line or 1, first.column or 1)

    def line(self, token: Token) -> Span:
        """The line of the token, without white space at its ends and without a comment."""
        text, at = self.source.text, token.start_pos or 0
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        line = text[start : end if end >= 0 else len(text)]
        words = _STRING_OR_COMMENT.sub(lambda m: "" if m[0].startswith(";") else m[0], line)
        first = len(line) - len(line.lstrip())
        return Span(
            self.source, start + first, start + max(first, len(words.rstrip())), token.line or 1, first + 1
        )

    def at(self, token: Token, make: Callable[[], T]) -> T:
        """What `make` makes; W601 at the token, with its message, for its error."""
        try:
            return make()
        except CompileError as error:
            d = error.diagnostics[0]
            raise self.wrong(token, d.message, help=d.help) from None

    def wrong(self, token: Token, message: str, *, help: str = "") -> CompileError:
        """W601 at the token, to raise."""
        return fail(Code.BAD_IR, message, self.span(token), help=help)

    def note(self, token: Token, message: str) -> None:
        """Report a mistake at the end and read on; raises all if they are too many."""
        self.mistakes.append(Diagnostic(Code.BAD_IR, message, Label(self.span(token))))
        if len(self.mistakes) >= _MAX_MISTAKES:
            raise CompileError(*self.mistakes)

    def read(self, token: Token, convert: Callable[[str], T]) -> T:
        """`convert` of the token's text; W601 at the token if it raises `Misspelt`."""
        try:
            return convert(str(token))
        except Misspelt as mistake:
            raise self.wrong(token, str(mistake)) from None

    # -- words ------------------------------------------------------------------------------------------

    def word(self, token: Token) -> str:
        """The bare or quoted name."""
        return self.read(token, read_word)

    def name(self, token: Token) -> str:
        """The name behind the sigil."""
        return self.read(token, read_name)

    def integer(self, token: Token) -> int:
        """The integer that the token spells."""
        return self.read(token, read_int)

    def tensor_type(self, token: Token) -> TensorType:
        """The type that the token spells; equal texts are read once."""
        kind = self._types.get(token)
        if kind is None:
            kind = self.read(token, lambda text: read_type(text, has_layout=self.has_layout))
            self._types[str(token)] = kind
        return kind

    def ints(self, token: Token) -> Ints:
        """A plain integer, or one for each die in angle brackets."""
        return self.per_die(token) if token.startswith("<") else self.integer(token)

    def per_die(self, token: Token) -> PerDie:
        """The integers in angle brackets; equal texts are read once."""
        values = self._per_die.get(token)
        if values is None:
            values = self._per_die[str(token)] = PerDie(self.read(token, read_ints))
        return values

    def choice(self, token: Token, kind: Callable[[str], T], what: str, choices: Iterable[str]) -> T:
        """The member of a `StrEnum` that the token spells; `what` names the kind in the error."""
        text = self.word(token)
        if text not in choices:
            raise self.wrong(token, f"`{text}` is no {what}", help=f"one of {', '.join(choices)}")
        return kind(text)

    # -- attributes -------------------------------------------------------------------------------------

    def attr(self, node: Node) -> tuple[str, Scalar | PerDie]:
        """Name and value of an attribute."""
        key, value = tokens(node)
        name = self.read(key, lambda text: read_word(text.removesuffix("=")))
        if value.startswith("<"):
            return name, self.per_die(value)
        return name, self.read(value, read_scalar)

    def scalar_attr(self, node: Node) -> tuple[str, Scalar]:
        """An attribute that is the same on all dies."""
        name, value = self.attr(node)
        if isinstance(value, PerDie):
            raise self.wrong(tokens(node)[1], f"`{name}` is one number, not one for each die")
        return name, value

    def record(self, kind: type[T], nodes: list[Node], end: Token, **preset: object) -> T:
        """A dataclass with the fields of `preset` and the others from attributes; W601 at `end` if one is missing, but
        for those whose default is nothing (0, or no file)."""
        hints: dict[str, Any] = get_type_hints(kind)
        values = dict(preset)
        places: dict[str, Token] = {}
        for node in nodes:
            key, token = tokens(node)
            name, value = self.scalar_attr(node)
            if name not in hints or name in preset:
                raise self.wrong(key, f"`{name}` is not a field here")
            if name in values:
                raise self.wrong(key, f"`{name}` is given twice")
            values[name] = self._converted(token, name, value, hints[name])
            places[name] = token
            limits = limits_of(kind).get(name)  # type: ignore[arg-type]  # a type is hashable
            if limits is not None and not limits.admit(values[name]):
                raise self.wrong(token, f"`{name}` must be {limits}, not {shown(value)}")
        for f in fields(kind):  # type: ignore[arg-type]  # the callers give dataclasses
            if f.name not in values and (f.default is MISSING or f.default):
                raise self.wrong(end, f"`{f.name}` is missing before the end of the line")
        made = self.at(next(iter(places.values()), end), lambda: kind(**values))
        for name, words in made.disagreements() if isinstance(made, _Agreeing) else ():
            raise self.wrong(places.get(name, end), f"`{name}`: {words}")
        return made

    def _converted(self, token: Token, name: str, value: Scalar, hint: Any) -> object:
        if hint is DType:
            return self.choice(token, DType, "element type", list(DType))
        if hint is float and type(value) is int:
            return float(value)
        if type(value) is not hint:
            raise self.wrong(token, f"`{name}` is {_KINDS.get(hint, 'something else')}, not `{token}`")
        return value


_KINDS: Final[dict[Any, str]] = {int: "an integer", float: "a number", bool: "true or false", str: "a word"}


def tokens(node: Node) -> list[Token]:
    """The direct tokens of a node."""
    return [c for c in node.children if isinstance(c, Token)]


def nodes(node: Node, rule: str = "") -> list[Node]:
    """The direct nodes, or those of one grammar rule."""
    return [c for c in node.children if isinstance(c, Tree) and (not rule or c.data == rule)]
