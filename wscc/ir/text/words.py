"""The words of textual IR, to text and back: names, numbers, types.

Invariant: `read_x(spell_x(v)) == v`, and `read_x` raises only `Misspelt`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

from wscc.ir.types import DType, Layout, Reduction, TensorType

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./]*")
_MARKED: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./]*")
_AXIS: Final = re.compile(r"[A-Za-z0-9_:]+")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_FLOAT: Final = re.compile(r"-?([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|inf)|nan")
_PART: Final = re.compile(r"(sum|max)\(([^)]*)\)")
_VALUES: Final[dict[str, bool | float]] = {
    "true": True, "false": False, "inf": float("inf"), "nan": float("nan")
}  # fmt: skip
# Words that begin a statement, or stand for a value: as names they are quoted.
_RESERVED: Final = frozenset({"buffer", "transfer", "post", "send", "wait", *_VALUES})
# Longer ones are no sizes or addresses of anything, and Python refuses to read them at some length.
_MAX_DIGITS: Final = 40


class Misspelt(ValueError):
    """The text is not a word of its kind; the message says so in words for the user."""


def spell_word(text: str) -> str:
    """A bare name, quoted only when it has to be."""
    return text if _WORD.fullmatch(text) and text not in _RESERVED else json.dumps(text)


def read_word(text: str) -> str:
    """The name that a bare or quoted word spells."""
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        raise Misspelt("this is not a quoted string; a backslash is written `\\\\`") from None


def spell_name(name: str) -> str:
    """A name behind its sigil."""
    return name if _MARKED.fullmatch(name) else json.dumps(name)


def read_name(text: str) -> str:
    """The name in `%name` or `@name`."""
    return read_word(text[1:])


def spell_scalar(value: bool | int | float | str) -> str:
    """The exact text of a value: a float is the shortest text that reads as the same number."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(float(value))
        case _:
            return spell_word(value)


def read_scalar(text: str) -> bool | int | float | str:
    """The truth value, number or word that the text spells."""
    if text in _VALUES:
        return _VALUES[text]
    if _INTEGER.fullmatch(text):
        return read_int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return read_word(text)


def read_int(text: str) -> int:
    """The integer that the text spells, of at most 40 characters."""
    if not _INTEGER.fullmatch(text):
        raise Misspelt(f"`{text}` is not an integer")
    if len(text) > _MAX_DIGITS:
        raise Misspelt(f"a number of {len(text)} digits is too long")
    return int(text)


@lru_cache(maxsize=4096)
def spell_type(kind: TensorType) -> str:
    """`f32[8/dp,64] sum(tp)`: element type, dimensions with the axes that split them, pending reductions."""
    return str(kind)


def read_type(text: str, *, has_layout: bool) -> TensorType:
    """The type that the text spells; with `has_layout`, one without axes has the layout of replicas."""
    dtype, _, rest = text.partition("[")
    inside, _, after = rest.partition("]")
    dims = [d.strip().split("/") for d in inside.split(",")] if inside.strip() else []
    shape = tuple(read_int(d[0].strip()) for d in dims)
    split = tuple(tuple(a.strip() for a in d[1:]) for d in dims)
    partial = tuple((axis, Reduction(kind)) for kind, axis in _PART.findall(after))
    if not all(_AXIS.fullmatch(a) for axes in split for a in axes):
        raise Misspelt(f"`{text}` has an axis without a name")
    if not has_layout and (partial or any(split)):
        raise Misspelt("a type has no axes at the graph level")
    return TensorType(shape, DType(dtype), Layout(split, partial) if has_layout else None)
