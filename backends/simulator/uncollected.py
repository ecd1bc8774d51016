"""Work without the collector of cycles: a program's instructions, and what is made of them, are millions of objects
in no cycle, and looking through them again and again took a third of the time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cycles are collected inside; what nothing refers to is freed as ever."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
