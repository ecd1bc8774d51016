"""A reader of `.npy` content that believes no header: shape and type must account for every byte that is there.

NumPy's own reader evaluates the header as Python and allocates what it states.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MOST_DIMS: Final = 32
_MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}  # by version
_FIELDS: Final = {
    "descr": r"'([<>|=][biuf][0-9]{1,2})'",
    "fortran_order": "(True|False)",
    "shape": r"\(([0-9]{1,18}(?:, ?[0-9]{1,18})*,?|)\)",
}


class NpyMistake(ValueError):
    """Content that is no array of plain numbers."""


def parse_npy(content: bytes) -> NDArray[Any]:
    """The array in the bytes of a `.npy` file, of integers, floats or booleans; it shares their memory and is
    read-only. `NpyMistake`, in words, for anything else: nothing is allocated by what a header says."""
    start, text = _header(content)
    found = {name: _field(name, form, text) for name, form in _FIELDS.items()}
    shape = tuple(int(n) for n in found["shape"].split(",") if n.strip())
    try:
        dtype = np.dtype(found["descr"])
    except TypeError:
        raise NpyMistake(f"`{found['descr']}` is no type of its elements") from None
    held, stated = len(content) - start, prod(shape) * dtype.itemsize
    if held != stated or len(shape) > _MOST_DIMS:
        raise NpyMistake(f"its header states {list(shape)} of {dtype}, {stated:,} bytes, and it has {held:,}")
    flat = np.frombuffer(content, dtype, prod(shape), start)
    return flat.reshape(shape[::-1]).T if found["fortran_order"] == "True" else flat.reshape(shape)


def _field(name: str, form: str, text: str) -> str:
    """The one value of a field of the header."""
    values: list[str] = re.findall(rf"'{name}' *: *{form} *[,}}]", text)
    if len(values) != 1:
        raise NpyMistake("its header is not that of an array of plain numbers")
    return values[0]


def _header(content: bytes) -> tuple[int, str]:
    """The first byte of the elements, and the text of the header."""
    width = _LENGTH_BYTES.get(content[6:8], 0)
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    if content[:6] != _MAGIC or not width or not 8 + width < start <= len(content):
        raise NpyMistake("it does not begin as a .npy file")
    return start, content[8 + width : min(start, 1 << 13)].decode("latin-1")
