"""Matching of templates such as `* d` and `*,m,k`: one slot for each item, and `*` for any number of items."""

from __future__ import annotations

from typing import Final, TypeVar

STAR: Final = "*"
T = TypeVar("T")


def bind(slots: tuple[str, ...], items: tuple[T, ...], bound: dict[str, tuple[T, ...]]) -> bool:
    """Whether the items match the slots, given the items that slots are bound to so far; adds to `bound`.

    `bind(("*", "d"), (8, 16, 64), {})` binds `*` to (8, 16) and `d` to (64,).
    """
    extra = len(items) - len(slots) + 1
    if (extra < 0) if STAR in slots else (extra != 1):
        return False
    start = 0
    for slot in slots:
        end = start + (extra if slot == STAR else 1)
        if bound.setdefault(slot, items[start:end]) != items[start:end]:
            return False
        start = end
    return True
