"""Exact arithmetic on the integers and numbers of the language: values of expressions, never rounded."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from wscc.diagnostics import Code, fail
from wscc.frontend.ast import Binary, Call, Expr, Name, Negative, Number
from wscc.frontend.fmt import expression
from wscc.frontend.report import hint

_MAX_INTEGER: Final = 2**63 - 1
_MAX_NUMBER: Final = 10**308
_MIN_NUMBER: Final = Fraction(1, 10**300)


def integer(expr: Expr, names: Mapping[str, int]) -> int:
    """The value where every step is an integer; W005 if a division leaves a remainder or a value is too
    large, W008 for a name that is not in `names`."""
    return int(_value(expr, names, integral=True))


def positive(expr: Expr, names: Mapping[str, int], what: str) -> int:
    """An integer of at least 1, or W005 saying that `what` is not one."""
    value = integer(expr, names)
    if value < 1:
        shown = expression(expr)
        stands = f"`{shown}` = {value}" if shown != str(value) else f"{value}"
        raise fail(Code.NUMBER, f"{what} must be at least 1, not {stands}", expr.span)
    return value


def number(expr: Expr, names: Mapping[str, int]) -> Fraction:
    """The exact value, fractions allowed; W005 where no float could hold it."""
    return _value(expr, names, integral=False)


def _value(expr: Expr, names: Mapping[str, int], *, integral: bool) -> Fraction:
    match expr:
        case Number():
            value = expr.value
            if integral and value.denominator != 1:
                raise fail(Code.NUMBER, f"`{expr.text}` is not an integer", expr.span)
        case Name():
            if expr.id not in names:
                help = hint(expr.id, names, "sizes come from the parameters in parentheses")
                raise fail(Code.UNKNOWN_NAME, f"unknown name `{expr.id}`", expr.span, help=help)
            value = Fraction(names[expr.id])
        case Negative():
            value = -_value(expr.operand, names, integral=integral)
        case Binary():
            left = _value(expr.left, names, integral=integral)
            value = _combine(expr, left, _value(expr.right, names, integral=integral), integral=integral)
        case Call():
            raise fail(Code.NUMBER, f"`{expr.function.id}(...)` is not a number", expr.span)
    if abs(value) > (_MAX_INTEGER if integral else _MAX_NUMBER):
        help = "sizes are below 2^63" if integral else ""
        raise fail(Code.NUMBER, f"`{expression(expr)}` is too large", expr.span, help=help)
    if 0 < abs(value) < _MIN_NUMBER:
        raise fail(Code.NUMBER, f"`{expression(expr)}` is too close to zero", expr.span)
    return value


def _combine(expr: Binary, a: Fraction, b: Fraction, *, integral: bool) -> Fraction:
    match expr.op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "@":
            raise fail(Code.NUMBER, "`@` multiplies tensors, not numbers", expr.span)
    if b == 0:
        raise fail(Code.NUMBER, f"`{expression(expr)}` divides by zero", expr.span)
    if integral and a % b != 0:
        raise fail(
            Code.NUMBER,
            f"`{expression(expr)}` is not an integer: {a} / {b} leaves {a % b}",
            expr.span,
            help=_nearest_divisors(int(a), int(b)),
        )
    return a / b


def _nearest_divisors(a: int, b: int) -> str:
    """A line of help with the divisors of `a` next to `b`, searched among small numbers only."""
    if not (0 < b <= 10_000 and a > 0):
        return "sizes are exact: a division may leave no remainder"
    below = next(d for d in range(b, 0, -1) if a % d == 0)
    above = next((d for d in range(b, min(a, 2 * b + 1000) + 1) if a % d == 0), None)
    return f"{a} is divisible by {below}" + (f" and {above}" if above else "")
