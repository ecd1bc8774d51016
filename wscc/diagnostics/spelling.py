"""Words that are misspelled: `did you mean ...?` is asked of names with the same meaning only.

`layernrom` is a slip of `layernorm`. But `qwen3` is none of `qwen2`, `f16` none of `bf16`, `cp` none of `tp` and
`prelu` none of `relu`: who follows such a hint gets another program than the one that was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 64  # longer words are not compared: the time grows with the square
_SHORT, _LONG = (
    4,
    9,
)  # letters up to which a changed letter makes another word, and from which two slips are likely

# Names of the field that mean something else than a name here that is one slip away.
_OTHER_THINGS: Final = frozenset({
    "adam", "adamax", "nadam", "radam", "adan", "sgdm", "asgd",
    "glu", "geglu", "reglu", "elu", "selu", "celu", "prelu", "rrelu", "crelu", "silu", "lrelu",
    "f16", "tf32", "fp16", "bf8", "f8",
    "cp", "ep", "edp", "etp", "esp", "usp", "vpp",
    "microbatches",
})  # fmt: skip


def spelling_of(word: str, choices: Iterable[str]) -> str | None:
    """The one choice that the word is a slip of, or None.

    The same but for case and `_`, `-`, `.`, blanks; else, one letter more or less, two exchanged or, in words of five
    letters or more, one changed; two such slips in words of nine or more. Digits are never slips.
    """
    names = sorted(set(choices))
    if same := [n for n in names if _folded(n) == _folded(word)]:
        return next((n for n in same if n.lower() == word.lower()), same[0])
    if not 1 < len(word) <= _LONGEST or word.lower() in _OTHER_THINGS:
        return None
    most = 2 if len(word) >= _LONG else 1
    near = {n: _slips(word.lower(), n.lower(), most) for n in names if _digits(n) == _digits(word)}
    least = min(near.values(), default=most + 1)
    closest = [n for n, slips in near.items() if slips == least]
    return closest[0] if least <= most and len(closest) == 1 else None


def did_you_mean(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    """`did you mean ...?` where the word is a slip of a choice; else `otherwise`."""
    name = spelling_of(word, choices)
    return f"did you mean `{name}`?" if name is not None else otherwise


def _folded(word: str) -> str:
    return re.sub(r"[-_.\s]", "", word.lower())


def _digits(word: str) -> list[str]:
    return re.findall(r"\d+", word)


def _slips(a: str, b: str, most: int) -> int:
    """The number of slips between two words, `most + 1` if there are more: letters inserted, left out, changed, or
    exchanged with their neighbour (optimal string alignment); a changed letter in a short word counts as two."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    changed = 2 if min(len(a), len(b)) <= _SHORT else 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            slips = min(before[j] + 1, row[-1] + 1, before[j - 1] + changed * (x != y))
            if last and j > 1 and x == b[j - 2] and y == a[i - 2]:
                slips = min(slips, last[j - 2] + 1)
            row.append(slips)
    return min(row[-1], most + 1)
