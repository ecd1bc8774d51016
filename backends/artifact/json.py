"""Encoding of frozen dataclasses as canonical JSON and decoding, by their annotations.

Invariant: `decode(type(x), json.loads(canonical(encode(x)))) == x`, and equal values give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

T = TypeVar("T")


def canonical(value: Json) -> bytes:
    """The one spelling of a JSON value: sorted keys, one entry a line (but a list of plain values on one), a
    newline at the end. `ValueError` for NaN, infinities and halves of surrogate pairs."""
    return ("".join(_spelled(value, "\n")) + "\n").encode()


def _spelled(value: Json, newline: str) -> Iterator[str]:
    inner = newline + " "
    if isinstance(value, Mapping) and value:
        for i, key in enumerate(sorted(value)):
            yield f"{',' if i else '{'}{inner}{_scalar(key)}: "
            yield from _spelled(value[key], inner)
        yield newline + "}"
    elif isinstance(value, list | tuple) and any(isinstance(v, Mapping | list | tuple) for v in value):
        for i, item in enumerate(value):
            yield f"{',' if i else '['}{inner}"
            yield from _spelled(item, inner)
        yield newline + "]"
    else:
        yield _scalar(value)


def _scalar(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def encode(value: Any) -> Json:
    """The JSON value of a dataclass: dataclasses become objects, tuples lists, enums their values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, Enum):
        return encode(value.value)
    assert value is None or isinstance(value, bool | int | float | str), f"{value!r} has no JSON form"
    return value


def decode(kind: type[T], value: Json) -> T:
    """The inverse of `encode` for annotation `kind`. `ValueError` where the value does not fit it."""
    return _decode(kind, value, kind.__name__)  # type: ignore[no-any-return]


def _decode(kind: Any, value: Json, where: str) -> Any:
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _decode_fields(kind, value, where)
    if get_origin(kind) is tuple:
        return _decode_tuple(get_args(kind), value, where)
    if get_origin(kind) in (Union, UnionType):
        (inner,) = (a for a in get_args(kind) if a is not type(None))
        return None if value is None else _decode(inner, value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    # JSON has one kind of number, and Python's bool is an int.
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, not {kind}")
    return value


def _decode_fields(kind: type, value: Json, where: str) -> Any:
    hints, names = get_type_hints(kind), _names(kind)
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise ValueError(f"{where} does not have the fields of {kind.__name__}")
    return kind(**{name: _decode(hints[name], value[name], f"{where}.{name}") for name in names})


def _names(kind: Any) -> list[str]:
    """The fields that make two values equal or not: places in a text, for one, do not."""
    return [f.name for f in fields(kind) if f.compare]


def _decode_tuple(kinds: tuple[Any, ...], value: Json, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} is {value!r}, not a list")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{where} has {len(value)} entries, not {len(kinds)}")
    return tuple(_decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
