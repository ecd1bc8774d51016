"""Checks of single arguments of the API; what does not fit is a named error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from wscc.diagnostics import Code, Diagnostic, UsageError


def refuse(message: str, help: str = "") -> NoReturn:
    """Raise `UsageError` W006 for an argument that cannot be taken."""
    raise UsageError(Diagnostic(Code.OPTION, message, help=help))


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `UsageError` W006 for a value that is not allowed."""
    if value not in allowed:
        words = ", ".join(repr(k) for k in allowed if k)
        refuse(f"`{name}` is {value!r}, and can be {words}")


def each(name: str, value: Any) -> tuple[Any, ...]:
    """The elements of a list or any other iterable. Raises `UsageError` W006 for what is none, or a string."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        refuse(f"`{name}` is {value!r}, and must be a list or a tuple")
    return tuple(value)


def fields_of(name: str, value: Any) -> dict[Any, Any]:
    """The items of a dict or any other mapping. Raises `UsageError` W006 for what is none."""
    if not isinstance(value, Mapping):
        refuse(f"`{name}` is {value!r}, and must be a dict")
    return dict(value)


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an integer. Raises `UsageError` W006 for none, or one beyond its limits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse(f"`{name}` is {value!r}, and must be an integer")
    number: int = value.__index__()
    if number < least or (most is not None and number > most):
        refuse(
            f"`{name}` is {number}, and must be {f'at least {least}' if most is None else f'{least} to {most}'}"
        )
    return number
