"""Unique names, in order of asking: the same requests give the same names."""

from __future__ import annotations

from collections.abc import Container


def fresh(hint: str, taken: Container[str]) -> str:
    """`hint`, or `hint.N` for the first N from 1 on that is not taken."""
    name, n = hint, 0
    while name in taken:
        n += 1
        name = f"{hint}.{n}"
    return name
