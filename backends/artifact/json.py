"""Encoding of frozen dataclasses as canonical JSON and decoding, by their annotations.

Invariant: `decode(type(x), json.loads(canonical(encode(x)))) == x`, and equal values give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from wscc.backends.artifact.limits import DECLARED, LIMITS, MOST_TEXT, NO_NUMBERS, Limit
from wscc.diagnostics.limits import beyond_limits, limits_of

Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

T = TypeVar("T")
_NAMES: Final[dict[type, str]] = {
    bool: "true or false", int: "an integer", float: "a number", str: "a text"
}  # fmt: skip


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def canonical(value: Json) -> bytes:
    """The one spelling of a JSON value: sorted keys, one entry a line (but a list of plain values on one), a
    newline at the end. `ValueError` for NaN, infinities and halves of surrogate pairs."""
    pieces: list[str] = []
    _spell(value, "\n", pieces)
    return ("".join(pieces) + "\n").encode()


def _spell(value: Json, newline: str, pieces: list[str]) -> None:
    kind = type(value)
    if kind is str or kind is int or not value or not isinstance(value, dict | list | tuple):
        pieces.append(int.__repr__(value) if kind is int else _ENCODER.encode(value))
        return
    inner = newline + " "
    if isinstance(value, dict):
        start = "{"
        for key in sorted(value):
            pieces.append(f"{start}{inner}{_ENCODER.encode(key)}: ")
            _spell(value[key], inner, pieces)
            start = ","
        pieces.append(newline + "}")
    elif any(isinstance(v, dict | list | tuple) for v in value):
        start = "["
        for item in value:
            pieces.append(start + inner)
            _spell(item, inner, pieces)
            start = ","
        pieces.append(newline + "]")
    else:
        pieces.append(_ENCODER.encode(value))


def encode(value: Any) -> Json:
    """The JSON value of a dataclass: dataclasses become objects, tuples lists, enums their values."""
    if is_dataclass(value) and not isinstance(value, type):
        left_out = _left_out(type(value))
        held = {name: getattr(value, name) for name in _names(type(value))}
        return {k: encode(v) for k, v in held.items() if k not in left_out or v != left_out[k]}
    if isinstance(value, tuple):
        # Paths of routes are most of what there is.
        return [v if type(v) is int else encode(v) for v in value]
    if isinstance(value, Enum):
        return encode(value.value)
    assert value is None or isinstance(value, bool | int | float | str), f"{value!r} has no JSON form"
    return value


def decode(kind: type[T], value: Json, where: str = "") -> T:
    """The inverse of `encode` for annotation `kind`. `ValueError`, with the place of the value below `where`, where it
    does not fit the annotation or the limits of its field (`LIMITS`)."""
    return _decode(kind, value, where, NO_NUMBERS)  # type: ignore[no-any-return]


def _decode(kind: Any, value: Any, where: str, limit: Limit) -> Any:
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _decode_fields(kind, value, where)
    if get_origin(kind) is tuple:
        return _decode_tuple(get_args(kind), value, where, limit)
    if get_origin(kind) in (Union, UnionType):
        (inner,) = (a for a in get_args(kind) if a is not type(None))
        return None if value is None else _decode(inner, value, where, limit)
    if isinstance(kind, type) and issubclass(kind, Enum):
        if value not in tuple(kind):
            raise ValueError(f"{_at(where)} is {_shown(value)}, not {' or '.join(map(str, kind))}")
        return kind(value)
    return _scalar_of(kind, value, where, limit)


def _scalar_of(kind: Any, value: Any, where: str, limit: Limit) -> Any:
    """A number or text; JSON has one kind of number, and Python's bool is an int."""
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{_at(where)} is {_shown(value)}, not {_NAMES[kind]}")
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            raise ValueError(f"{_at(where)} is a text of {len(value):,} characters: {MOST_TEXT:,} at most")
    elif kind in (int, float) and not limit.low <= value <= limit.high:
        raise ValueError(f"{_at(where)} is {_shown(value)}: it must be {limit.words}")
    return kind(value)


def _decode_fields(kind: type, value: Json, where: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, Mapping):
        raise ValueError(f"{_at(where)} is {_shown(value)}, not an object")
    missing = sorted(hints.keys() - value.keys() - _left_out(kind).keys())
    surplus = sorted(value.keys() - hints.keys())
    if missing or surplus:
        words = [f"has no field `{missing[0]}`"] if missing else []
        words += [f"has a field {_shown(surplus[0])}, which is none"] if surplus else []
        raise ValueError(f"{_at(where)} {' and '.join(words)}")
    made = kind(
        **{
            name: _decode(hint, value[name], f"{where}.{name}" if where else name, limit)
            for name, (hint, limit) in hints.items()
            if name in value
        }
    )
    for name, problem in beyond_limits(made):
        raise ValueError(f"{_at(f'{where}.{name}' if where else name)} {problem}")
    return made


def _names(kind: Any) -> list[str]:
    """The fields that make two values equal or not: places in a text, for one, do not."""
    return [f.name for f in fields(kind) if f.compare]


@cache
def _left_out(kind: type) -> Mapping[str, Any]:
    """The fields that are left out where they have their default, with that."""
    return {f.name: f.default for f in fields(kind) if f.metadata.get("left_out")}


@cache
def _hints(kind: type) -> dict[str, tuple[Any, Limit]]:
    """The annotation and the limit of each field."""
    hints, declared = get_type_hints(kind), limits_of(kind)

    def limit(name: str) -> Limit:
        return LIMITS.get(f"{kind.__name__}.{name}", DECLARED if name in declared else NO_NUMBERS)

    return {name: (hints[name], limit(name)) for name in _names(kind)}


def _decode_tuple(kinds: tuple[Any, ...], value: Json, where: str, limit: Limit) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{_at(where)} is {_shown(value)}, not a list")
    if kinds[-1] is Ellipsis:
        if len(value) > limit.entries:
            raise ValueError(f"{_at(where)} has {len(value):,} entries: {limit.entries:,} at most")
        if kinds[0] is int and all(type(v) is int and limit.low <= v <= limit.high for v in value):
            return tuple(value)
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{_at(where)} has {len(value)} entries, not {len(kinds)}")
    return tuple(
        _decode(k, v, f"{where}[{i}]", limit) for i, (k, v) in enumerate(zip(kinds, value, strict=True))
    )


def _at(where: str) -> str:
    return f"`{where}`" if where else "it"


def _shown(value: Json) -> str:
    """A value in an error message: short, and whatever it is."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
