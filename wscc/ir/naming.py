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
    """A name for each key, unlike all others and those in use."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._names: dict[Hashable, str] = {}

    def of(self, key: Hashable, hint: str) -> str:
        """The name of the key; made of `hint` when it is asked for first."""
        if key not in self._names:
            self._names[key] = fresh(hint, self._taken)
            self._taken.add(self._names[key])
        return self._names[key]
