"""Limits NumPy's BLAS to one thread, because dies are run in parallel."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

_SETTERS: Final = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
)


@cache
def limit_blas_to_one_thread() -> bool:
    """Limit the BLAS that NumPy uses, for the rest of the process; False if it is none of the supported ones.

    A BLAS with more threads costs time and nothing else.
    """
    return any([_limit(path) for path in _libraries()])


def _libraries() -> list[str]:
    """Paths of the BLAS that ships inside NumPy's wheel or, for other builds on Linux, of those mapped."""
    package = Path(np.__file__).parent
    bundled = [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]
    if bundled:
        return sorted(map(str, bundled))
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    mapped = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
    return sorted(p for p in mapped if "openblas" in Path(p).name or "mkl_rt" in Path(p).name)


def _limit(path: str) -> bool:
    """Limit one library; False if it has no function to do so."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return False
    for name in _SETTERS:
        setter = getattr(library, name, None)
        if setter is not None:
            setter.argtypes, setter.restype = [ctypes.c_int], None
            setter(1)
            return True
    return False
