"""Expressions of a model that is built in Python: sizes and tensors, with the operators of the language.

An expression is a piece of syntax tree. Nothing is computed and no shape is checked here: the printed text goes through
the front end like any other, and mistakes are shown in its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite

from wscc.diagnostics import Code, fail
from wscc.frontend import ast
from wscc.frontend.fmt import expression

Number = int | float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """A size or a tensor of a model. `+ - * /` work on sizes, and element by element on tensors, where the smaller one
    repeats along leading dimensions; `@` is a matrix product with a matrix `[k, n]` on its right."""

    node: ast.Expr
    # Blocks that the expression calls, so that the model can print them.
    blocks: tuple[ast.Block, ...] = field(default=())

    def __add__(self, other: Operand) -> Expression:
        return _binary("+", self, other)

    def __radd__(self, other: Operand) -> Expression:
        return _binary("+", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return _binary("-", self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return _binary("-", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return _binary("*", self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return _binary("*", other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return _binary("/", self, other)

    __floordiv__ = __truediv__  # sizes: the language divides exactly or refuses

    def __rtruediv__(self, other: Operand) -> Expression:
        return _binary("/", other, self)

    def __matmul__(self, other: Operand) -> Expression:
        return _binary("@", self, other)

    def __neg__(self) -> Expression:
        return Expression(ast.Negative(self.node), self.blocks)

    def __bool__(self) -> bool:
        raise fail(Code.STRUCTURE, f"`{expression(self.node)}` has no value while a model is built")

    def __iter__(self) -> Iterator[Expression]:
        raise fail(
            Code.STRUCTURE, f"`{expression(self.node)}` cannot be taken apart",
            help="name the parts: `q, k, v = m.parts(\"q k v\", nn.split(...))`",
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<{expression(self.node)}>"


Operand = Expression | int | float | str


def wrapped(value: Operand) -> Expression:
    """The operand as an expression: a number as a literal, a string as a name. Raises `CompileError` W005 for what is
    neither, W001 for a string that is no name."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Expression(ast.Name(name(value)))
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise fail(Code.NUMBER, f"{value!r} is no number, name or expression of a model")
    literal = ast.Number(repr(abs(value)))
    return Expression(ast.Negative(literal) if value < 0 else literal)


def name(word: str) -> str:
    """The word, if it can be a name of the language. Raises `CompileError` W001 if not."""
    if not isinstance(word, str) or not (word.isascii() and word.isidentifier()):
        raise fail(
            Code.SYNTAX, f"{word!r} is not a name", help="write letters, digits and `_`, no digit first"
        )
    return word


def _binary(op: str, left: Operand, right: Operand) -> Expression:
    a, b = wrapped(left), wrapped(right)
    return Expression(ast.Binary(op, a.node, b.node), (*a.blocks, *b.blocks))


def called(function: str, *args: Operand, **options: Operand) -> Expression:
    """The call of an operation, or of what the language calls like one."""
    operands = [wrapped(a) for a in args]
    named = {key: wrapped(value) for key, value in options.items()}
    keywords = tuple(ast.Keyword(ast.Name(key), value.node) for key, value in named.items())
    call = ast.Call(ast.Name(name(function)), tuple(a.node for a in operands), keywords)
    return Expression(call, tuple(b for e in (*operands, *named.values()) for b in e.blocks))


def operation(function: str) -> Callable[..., Expression]:
    """A function that calls an operation of this name."""

    def call(*args: Operand, **options: Operand) -> Expression:
        return called(function, *args, **options)

    call.__name__ = call.__qualname__ = function
    call.__doc__ = f"The operation `{function}` of the language, with its arguments and options by name."
    return call
