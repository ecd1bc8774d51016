"""Limits of numbers, declared once on the fields of a dataclass; every reader of a number asks here.

@dataclass
class Optimizer:
    lr: float = limited(1e-3, least=0, most=1e6)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import inf, isfinite
from typing import Any, Final, get_args, get_origin, get_type_hints

# Of counts, degrees and seeds.
MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """`least <= value <= most`; `above`: not `least` itself; `below`: not `most` itself; or one of `choices`.

    `whole`: an integer. No value is infinite or NaN.
    """

    least: float = -inf
    most: float = inf
    above: bool = False
    below: bool = False
    choices: tuple[int | str, ...] = ()
    whole: bool = False

    def admit(self, value: Any) -> bool:
        """Whether the value may stand there."""
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float | Fraction) or isinstance(value, bool):
            return False
        if not isfinite(value) or (self.whole and value != int(value)):
            return False
        return (self.least < value if self.above else self.least <= value) and (
            value < self.most if self.below else value <= self.most
        )

    def __str__(self) -> str:
        if self.choices:
            *first, last = map(str, self.choices)
            return f"{', '.join(first)} or {last}" if first else last
        kind = "an integer" if self.whole else "finite" if self.least == -inf else ""
        low = (f"above {self._shown(self.least)}" if self.above else f"from {self._shown(self.least)}") * (
            self.least > -inf
        )
        high = (f"up to (not including) {self._shown(self.most)}" if self.below else self._to) * (
            self.most < inf
        )
        if low and not high and not self.above:
            low = f"at least {self._shown(self.least)}"
        return " ".join(filter(None, (kind, low, high)))

    @property
    def _to(self) -> str:
        return f"{'and up to' if self.above else 'to'} {self._shown(self.most)}"

    def _shown(self, bound: float) -> str:
        return str(bound) if self.whole else f"{float(bound):g}"


@cache
def limits_of(kind: Hashable) -> Mapping[str, Limits]:
    """The limits by field of a dataclass; a field of type `int` takes integers. Those of a tuple are of each entry."""
    found: dict[str, Limits] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        entry = get_args(hint)[0] if get_origin(hint) is tuple else hint
        declared = next((x for x in getattr(entry, "__metadata__", ()) if isinstance(x, Limits)), None)
        if declared is not None:
            found[name] = replace(declared, whole=get_args(entry)[0] is int)
    return found


def beyond_limits(record: Any) -> Iterator[tuple[str, str]]:
    """Fields of a dataclass that are not within their limits, each with what it must be and is."""
    kind: type = type(record)
    for name, limits in limits_of(kind).items():
        value = getattr(record, name)
        entries = value if isinstance(value, tuple) else (value,)
        for wrong in [v for v in entries if not limits.admit(v)][:1]:
            yield name, f"must be {limits}, not {shown(wrong)}"


def shown(value: Any) -> str:
    """A number, short enough for a message."""
    if isinstance(value, Fraction):
        value = int(value) if value.denominator == 1 else float(value)
    if isinstance(value, int) and abs(value) >= 10**18:
        return (
            f"a number of {len(str(abs(value)))} digits"
            if abs(value) < 10**400
            else "a number of over 400 digits"
        )
    return f"{value:g}" if isinstance(value, float) else str(value)
