"""Files of data in memory: named arrays, or a text whose bytes are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, CompileError, fail
from wscc.files import read_bytes
from wscc.files.archives import (
    ArchiveMistake,
    npz_bytes,
    parse_npz,
    parse_safetensors,
    safetensors_bytes,
    shown,
)
from wscc.files.kinds import DATA

Arrays = Mapping[str, NDArray[Any]]

# The array of a graph's nodes in the order that they have in the file, by their numbers before: a compilation adds it.
ORDER: Final = ".order"
NPZ: Final = ".npz"
SAFETENSORS: Final = ".safetensors"
# How files begin that are no texts, with what they are.
_FOREIGN: Final = {
    b"PK\x03\x04": f"a zip archive; if NumPy wrote it, call it `{NPZ}`",
    b"PK\x05\x06": "an empty zip archive",
    b"\x93NUMPY": f'one array without a name; write `np.savez("data{NPZ}", tokens=..., labels=...)`',
    b"\x1f\x8b": "packed by gzip; unpack it",
    b"\x89HDF": f"an HDF5 file; write its arrays to a `{NPZ}`",
    b"PAR1": f"a Parquet file; write its columns to a `{NPZ}`",
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of data; the ending of its name says what `content` is."""

    name: str
    content: bytes

    @property
    def has_arrays(self) -> bool:
        """Whether it holds named arrays, and is no text."""
        return self._kind in (NPZ, SAFETENSORS)

    @property
    def _kind(self) -> str:
        return PurePath(self.name).suffix.lower()

    def arrays(self) -> Arrays:
        """The arrays by name. `CompileError` W503, with the array at fault, where the file is damaged or another."""
        try:
            if self._kind == NPZ:
                return parse_npz(self.content, DATA.limit)
            return parse_safetensors(self.content)
        except ArchiveMistake as problem:
            raise self._damaged(problem) from None

    def holding(self, arrays: Arrays) -> bytes:
        """The bytes of a file of this kind with these arrays, the same for the same."""
        return npz_bytes(arrays) if self._kind == NPZ else safetensors_bytes(arrays)

    def _damaged(self, problem: ArchiveMistake) -> CompileError:
        where = f"array {shown(problem.array)} of `{self.name}`" if problem.array else f"`{self.name}`"
        return fail(
            Code.DATA, f"{where} cannot be read: {problem}",
            help="give arrays of integers or floats, as `np.savez` or `safetensors.numpy.save_file` writes them; "
            "Python objects are never loaded",
        )  # fmt: skip

    def text(self) -> NDArray[np.uint8]:
        """The bytes as tokens `[n]`. `CompileError` W503 for a file that is known to be something else."""
        for start, words in _FOREIGN.items():
            if self.content.startswith(start):
                raise self._no_text(words)
        stated = int.from_bytes(self.content[:8], "little")
        if self.content[8:9] == b"{" and 2 <= stated <= len(self.content) - 8:
            raise self._no_text(f"a safetensors file; call it `{SAFETENSORS}`")
        return np.frombuffer(self.content, np.uint8)

    def _no_text(self, words: str) -> CompileError:
        what, _, help = words.partition("; ")
        return fail(Code.DATA, f"`{self.name}` is no text but {what}", help=help)


def read_data(path: Path) -> DataFile:
    """A file of data, unread but for its bytes; `CompileError` W002 or W003 if it cannot be read."""
    return DataFile(str(path), read_bytes(path, DATA))
