"""Unique names; the same requests in the same order get the same names."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import Final

# Suffixes of the procedures of a segment.
FORWARD: Final = ".fwd"
BACKWARD: Final = ".bwd"


def fresh(hint: str, taken: Container[str]) -> str:
    """`hint`, or `hint.N` for the first N from 1 on that is not taken."""
    name, n = hint, 0
    while name in taken:
        n += 1
        name = f"{hint}.{n}"
    return name


class Names:
    """New names, and a name for each key, unlike all others and those in use."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._names: dict[Hashable, str] = {}
        self._numbers: dict[str, int] = {}  # by hint, the first number that may be free

    def new(self, hint: str) -> str:
        """`hint`, or `hint.N` for the first N from 1 on that is not taken; it is taken from now on."""
        n = self._numbers.get(hint, 0)
        while (name := f"{hint}.{n}" if n else hint) in self._taken:
            n += 1
        self._numbers[hint] = n + 1
        self._taken.add(name)
        return name

    def of(self, key: Hashable, hint: str) -> str:
        """The name of the key; made of `hint` when it is asked for first."""
        if key not in self._names:
            self._names[key] = self.new(hint)
        return self._names[key]
