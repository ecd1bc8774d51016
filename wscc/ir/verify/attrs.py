"""The check of single numbers of ops and kernels: finite, and of updates within the limits of the training's fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Any, Final

from wscc.diagnostics.limits import Limits, limits_of, shown
from wscc.ir.ops import OPTIMIZERS
from wscc.ir.train import LrSchedule, Optimizer, Train

_FINITE: Final = Limits()
_INTEGER: Final = Limits(least=-(2**56), most=2**56, whole=True)
_OWN: Final[Mapping[str, Limits]] = {
    "dim": Limits(least=0, most=2**56, whole=True),
    "eps": Limits(least=0),
    "theta": Limits(least=0, above=True),
    "width": Limits(least=2, most=2**56, whole=True),
    "low": Limits(least=0),
    "high": Limits(least=0, above=True),
    "original": Limits(least=0),
    "interleaved": Limits(least=0, most=1, whole=True),
    "rate": Limits(least=0, most=1 - 2**-20),
    "salt": Limits(least=0, most=2**31, whole=True),
    "limit": Limits(least=0, most=2**56, whole=True),
    "time": Limits(least=0, most=2**56, whole=True),
    "window": Limits(least=0, most=2**56, whole=True),
    "cap": Limits(least=0),
    "alibi": Limits(least=0, most=2**56, whole=True),
    "heads": Limits(least=1, most=2**56, whole=True),
    "group": Limits(least=1, most=2**56, whole=True),
}


@cache
def _updates() -> Mapping[str, Limits]:
    own = {n: limits for n, limits in limits_of(Optimizer).items() if n != "kind"}
    return {**own, **limits_of(LrSchedule), "clip": limits_of(Train)["clip"]}


def wrong_number(kind: str, name: str, value: Any) -> str | None:
    """What is wrong with a number of an op or kernel that is the same on all dies, in words; None if it may be so."""
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return None
    # The neutral element of a maximum.
    if kind == "fill" and value in (inf, -inf):
        return None
    limits = (_updates() if kind in OPTIMIZERS else _OWN).get(
        name, _INTEGER if isinstance(value, int) else _FINITE
    )
    return None if limits.admit(value) else f"`{name}` must be {limits}, not {shown(value)}"


def disagreements(kind: str, attrs: Mapping[str, Any]) -> str | None:
    """What is wrong with the numbers of an op taken together, in words."""
    if kind == "rope" and "width" in attrs:
        wrong = attrs["width"] % 2 or attrs["factor"] <= 0 or attrs["low"] >= attrs["high"]
        return "`width` must be even, `factor` above 0, and `low` below `high`" if wrong else None
    if kind not in OPTIMIZERS:
        return None
    return next((words for _, words in LrSchedule(attrs["warmup"], attrs["decay"]).disagreements()), None)
