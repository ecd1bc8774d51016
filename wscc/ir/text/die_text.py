"""Integers over dies as text that does not grow with the mesh where they are regular.

    1,2,3       three integers            0+64*4      0,64,128,192
    7*4         four sevens               (1,0)+2*8   1,0,3,2, ..., 15,14: a block, again with 2 added

Invariant: `read_ints(spell_ints(v)) == v`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from wscc.ir.text.words import Misspelt, read_int

_INTEGER: Final = re.compile(r"-?[0-9]+")
_AGAIN: Final = re.compile(r"([+-][0-9]+)?(?:\*([0-9]+))?")
_SHORTEST_RUN: Final = 3
_MAX_COUNT: Final = 1 << 20
_MAX_DEPTH: Final = 32


@lru_cache(maxsize=8192)
def spell_ints(values: tuple[int, ...]) -> str:
    """The integers in angle brackets."""
    return f"<{_pattern(values)}>"


def _pattern(values: tuple[int, ...]) -> str:
    """The shortest block of which the rest is a copy with a constant added each time; else runs."""
    n = len(values)
    if n < _SHORTEST_RUN:
        return ",".join(map(str, values))
    for period in range(1, n // 2 + 1):
        step = values[period] - values[0]
        if n % period == 0 and all(values[i + period] - values[i] == step for i in range(n - period)):
            block = _pattern(values[:period])
            return _again(block if period == 1 else f"({block})", step, n // period)
    return ",".join(_runs(values))


def _again(block: str, step: int, count: int) -> str:
    return f"{block}{f'{step:+d}' if step else ''}*{count}"


def _runs(values: tuple[int, ...]) -> list[str]:
    """Arithmetic runs of at least three, and single integers."""
    out: list[str] = []
    i = 0
    while i < len(values):
        end = i + 1
        while end < len(values) and values[end] - values[end - 1] == values[i + 1] - values[i]:
            end += 1
        if end - i >= _SHORTEST_RUN:
            out.append(_again(str(values[i]), values[i + 1] - values[i], end - i))
            i = end
        else:
            out.append(str(values[i]))
            i += 1
    return out


def read_ints(text: str) -> tuple[int, ...]:
    """The inverse of `spell_ints`, for at most a million integers; raises `Misspelt`."""
    inside = text.replace(" ", "")[1:-1]
    if not inside:
        return ()
    values, end = _sequence(inside, 0, 0)
    if end != len(inside):
        raise Misspelt(f"`{inside[end]}` cannot stand in a list of integers here")
    return tuple(values)


def _sequence(text: str, at: int, depth: int) -> tuple[list[int], int]:
    values: list[int] = []
    while True:
        block, at = _block(text, at, depth)
        again = _AGAIN.match(text, at)
        assert again is not None, "an optional pattern always matches"
        at = again.end()
        step, count = again.groups()
        if step and not count:
            raise Misspelt(f"`{step}` needs a count, as in `{step}*4`")
        times, added = read_int(count or "1"), read_int((step or "0").lstrip("+"))
        if len(values) + len(block) * times > _MAX_COUNT:
            raise Misspelt(f"more than {_MAX_COUNT} integers")
        values += [v + k * added for k in range(times) for v in block]
        if text[at : at + 1] != ",":
            return values, at
        at += 1


def _block(text: str, at: int, depth: int) -> tuple[list[int], int]:
    if text[at : at + 1] == "(":
        if depth == _MAX_DEPTH:
            raise Misspelt(f"brackets more than {_MAX_DEPTH} deep")
        values, at = _sequence(text, at + 1, depth + 1)
        if text[at : at + 1] != ")":
            raise Misspelt("a bracket is not closed")
        return values, at + 1
    found = _INTEGER.match(text, at)
    if not found:
        raise Misspelt("an integer is missing")
    return [read_int(found.group())], found.end()
