"""A strict reader of JSON: what readers of JSON understand differently, or not at all, is a mistake."""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any, Final, NoReturn

_MOST_DIGITS: Final = 1_000


class JsonMistake(ValueError):
    """Text that is no strict JSON; `position` is a character of the text, -1 if none is known."""

    def __init__(self, words: str, position: int = -1) -> None:
        super().__init__(words)
        self.position = position


class RepeatedName(JsonMistake):
    """An object that has a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"field `{name[:60]}` is given twice")
        self.name = name


class NumberMistake(JsonMistake):
    """A number that is not finite, or an integer of more than a thousand digits."""


class TooDeep(JsonMistake):
    """Objects and lists in one another, hundreds deep."""


def parse_json(text: str) -> Any:
    """The value of a JSON text. `JsonMistake` where it is not JSON, an object has a name twice, a number is NaN, no
    finite double, or an integer of more than a thousand digits, or values nest hundreds deep."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_not_finite,
            parse_int=_integer,
            parse_float=_float,
        )
    except json.JSONDecodeError as problem:
        words = f"{problem.msg[:1].lower()}{problem.msg[1:]}"
        raise JsonMistake(words, min(problem.pos, len(text))) from None
    except RecursionError:
        raise TooDeep("it is nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise RepeatedName(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return out


def _not_finite(name: str) -> NoReturn:
    raise NumberMistake(f"{name} is no finite number")


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise NumberMistake(f"{text[:20]}... is too long for an integer")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise NumberMistake(f"{text[:40]} is no finite number")
    return value
