"""The units of the language, each with its dimension and the exact number of SI units in it."""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction
from typing import Final

from wscc.diagnostics.spelling import spelling_of


class Dimension(StrEnum):
    """The dimension that a unit measures, in words for messages."""

    NONE = "a plain number"
    BYTES = "bytes"
    BANDWIDTH = "bytes per second"
    COMPUTE = "FLOP/s"
    EFFICIENCY = "FLOP/s per watt"
    TIME = "seconds"
    ENERGY = "joules per bit"


PERCENT: Final = "%"

_DECIMAL: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4}


def _table() -> dict[str, tuple[Dimension, Fraction]]:
    units: dict[str, tuple[Dimension, Fraction]] = {"": (Dimension.NONE, Fraction(1))}
    factors = {p: Fraction(1000) ** e for p, e in _DECIMAL.items()}
    factors |= {p: Fraction(1024) ** e for p, e in _BINARY.items()}
    for prefix, factor in factors.items():
        units[f"{prefix}B"] = (Dimension.BYTES, factor)
        units[f"{prefix}B/s"] = (Dimension.BANDWIDTH, factor)
    for prefix in ("", "M", "G", "T", "P"):
        units[f"{prefix}FLOP/s"] = (Dimension.COMPUTE, factors[prefix])
        units[f"{prefix}FLOP/s/W"] = (Dimension.EFFICIENCY, factors[prefix])
    for prefix, exponent in (("", 0), ("m", 3), ("u", 6), ("n", 9)):
        units[f"{prefix}s"] = (Dimension.TIME, Fraction(1, 10**exponent))
    for prefix, exponent in (("", 0), ("n", 9), ("p", 12)):
        units[f"{prefix}J/bit"] = (Dimension.ENERGY, Fraction(1, 10**exponent))
    return units


# Spelling to (dimension, SI units in one of it); the empty spelling is a plain number. A test holds the
# grammar's UNIT to the same set.
UNITS: Final = _table()

_BITS: Final = re.compile(r"bps|[KMGT]b(?![a-z])|^[KMGTkmgt]?bits?\b")

EXAMPLES: Final = {
    Dimension.NONE: "128",
    Dimension.BYTES: "80 MB",
    Dimension.BANDWIDTH: "4 TB/s",
    Dimension.COMPUTE: "1800 TFLOP/s",
    Dimension.EFFICIENCY: "2 TFLOP/s/W",
    Dimension.TIME: "200 ns",
    Dimension.ENERGY: "5 pJ/bit",
}


def unit_meant(word: str) -> str | None:
    """The unit that a word misspells, such as `tflops` or `GBs`; None if there is none, and for units of bits: a byte
    has eight of them."""
    if _BITS.search(word):
        return None
    folded = {u.lower(): u for u in UNITS if u}
    lowercase = word.lower()
    for spelling in (
        lowercase,
        lowercase.removesuffix("s"),
        lowercase.replace("bps", "b/s"),
        lowercase.replace("sec", "s"),
        lowercase.replace("flops", "flop/s"),
    ):
        if spelling in folded:
            return folded[spelling]
    return spelling_of(word, filter(None, UNITS))
