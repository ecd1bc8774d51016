"""Text of integers over dies, whose length does not grow with the mesh where the integers are regular.

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
    """The integers as text in angle brackets."""
    return f"<{_pattern(values)}>"


def _pattern(values: tuple[int, ...]) -> str:
    """The shortest block that repeats with a constant added each time, and its count; else runs."""
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
    """Arithmetic runs of at least three integers, and single ones, as text."""
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


def _sequence(text: str, start: int, depth: int) -> tuple[list[int], int]:
    """The integers of the list that starts there, and the position behind it."""
    values: list[int] = []
    while True:
        block, end = _block(text, start, depth)
        again = _AGAIN.match(text, end)
        assert again is not None, "an optional pattern always matches"
        end = again.end()
        step, count = again.groups()
        if step and not count:
            raise Misspelt(f"`{step}` needs a count, as in `{step}*4`")
        times, added = read_int(count or "1"), read_int((step or "0").lstrip("+"))
        if len(values) + len(block) * times > _MAX_COUNT:
            raise Misspelt(f"more than {_MAX_COUNT} integers")
        values += [v + k * added for k in range(times) for v in block]
        if text[end : end + 1] != ",":
            return values, end
        start = end + 1


def _block(text: str, start: int, depth: int) -> tuple[list[int], int]:
    """The integers of the bracket, or the one integer, that starts there, and the position behind it."""
    if text[start : start + 1] == "(":
        if depth == _MAX_DEPTH:
            raise Misspelt(f"brackets more than {_MAX_DEPTH} deep")
        values, end = _sequence(text, start + 1, depth + 1)
        if text[end : end + 1] != ")":
            raise Misspelt("a bracket is not closed")
        return values, end + 1
    integer = _INTEGER.match(text, start)
    if not integer:
        raise Misspelt("an integer is missing")
    return [read_int(integer.group())], integer.end()
