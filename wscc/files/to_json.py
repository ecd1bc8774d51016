"""The one writer of JSON for others to read, and the one decision what a number becomes that JSON does not have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def to_json(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """The JSON of plain values: with `indent`, or `compact`, names in order and not as given. A float that is NaN or
    infinite becomes `null`."""
    settings: dict[str, Any] = {
        "indent": indent, "sort_keys": compact or indent is not None, "allow_nan": False,
        "separators": (",", ":") if compact else None,
    }  # fmt: skip
    try:
        return json.dumps(value, **settings)
    except ValueError:
        return json.dumps(_finite(value), **settings)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {k: _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
        case _:
            return value
