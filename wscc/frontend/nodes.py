"""The base of the syntax tree (`wscc.frontend.ast` has the other nodes): comments, places, lines and words."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

from wscc.diagnostics import NO_SPAN, Span

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Trivia:
    """Comments of a node (`#` included): `before` on the lines above, `after` behind it on its line. `blank`: a blank
    line separates it from the sibling before."""

    before: tuple[str, ...] = ()
    after: str = ""
    blank: bool = False


NO_TRIVIA = Trivia()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the tree, with its place in the text."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Node):
    """A node that the printer gives a line of its own."""

    trivia: Trivia = NO_TRIVIA


@dataclass(frozen=True, slots=True)
class Body(Node, Generic[T]):
    """The lines between `{` and `}`; `opening` is a comment behind `{`, `tail` are those before `}`."""

    lines: tuple[T, ...] = ()
    opening: str = ""
    tail: tuple[str, ...] = ()


# ---- words


@dataclass(frozen=True, slots=True)
class Name(Node):
    id: str


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A literal, exact, in the user's spelling."""

    text: str

    @property
    def value(self) -> Fraction:
        return Fraction(self.text)


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A string literal, without its quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A number and its unit as written; no unit is the empty string. `10 %` and `32 rows` are quantities, too."""

    number: Number
    unit: str = ""
