"""Matching of templates such as `* d` and `*,m,k`: one slot per item, and `*` for any number of them."""

from __future__ import annotations

from typing import Final, TypeVar

STAR: Final = "*"
T = TypeVar("T")


def bind(slots: tuple[str, ...], items: tuple[T, ...], bound: dict[str, tuple[T, ...]]) -> bool:
    """Whether the items can be read as the slots, given what slots stand for so far; adds to `bound`.

    `bind(("*", "d"), (8, 16, 64), {})` binds `*` to (8, 16) and `d` to (64,).
    """
    extra = len(items) - len(slots) + 1
    if (extra < 0) if STAR in slots else (extra != 1):
        return False
    at = 0
    for slot in slots:
        size = extra if slot == STAR else 1
        if bound.setdefault(slot, items[at : at + size]) != items[at : at + size]:
            return False
        at += size
    return True
