"""Reader and writer of `.safetensors` files: checked before a tensor is read, written as a whole or not at all.

No file is trusted: one that does not parse, is cut short or states wrong sizes is a `CompileError` W505.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from wscc.diagnostics import Code, fail
from wscc.files import regular_file
from wscc.files import write as files
from wscc.files.kinds import WEIGHTS
from wscc.files.read import reason
from wscc.huggingface.axes import Shape, Tensor
from wscc.ir.types import bf16

READABLE: Final = ("F16", "BF16", "F32", "F64")
_PLACE: Final[dict[str, Any]] = {
    "what": "weights ", "help": "give the path of a file in a folder that exists", "regular": True,
}  # fmt: skip
_METADATA: Final = {"format": "pt"}  # without it, transformers refuses the file


class Checkpoint:
    """The tensors of a file: shapes and element types by name; `read` reads one, which is not cached."""

    def __init__(self, path: Path) -> None:
        """Open a file. `CompileError` W002 if it cannot be read, W505 if it is no whole safetensors file."""
        self.path = path
        bf16()  # NumPy learns it, and `safe_open` asks NumPy for it
        with self._reporting():
            self._file = _opened(regular_file(path, WEIGHTS))
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118
            self.shapes: Mapping[str, Shape] = {n: tuple(s.get_shape()) for n, s in slices.items()}
            self.dtypes: Mapping[str, str] = {n: str(s.get_dtype()) for n, s in slices.items()}

    def read(self, name: str) -> Tensor:
        """One whole tensor, in the type of the file."""
        with self._reporting():
            return np.asarray(self._file.get_tensor(name))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turns errors of the library into `CompileError`."""
        try:
            yield
        except OSError as problem:
            raise fail(
                Code.UNREADABLE, f"cannot read `{self.path}`: {reason(problem)}", help=WEIGHTS.help
            ) from None
        except SafetensorError as problem:
            raise fail(
                Code.WEIGHTS,
                f"`{self.path}` is not a whole safetensors file: {_words(problem)}",
                help="give a file that `--save` or `save_pretrained` wrote, downloaded to its end",
            ) from None


def _opened(path: Path) -> Any:
    """The open file, of any type: the library is partly untyped."""
    # Reading, not mapping: a file that is cut short while it is mapped ends the process.
    return safe_open(path, framework="numpy", backend="pread")


def _words(problem: SafetensorError) -> str:
    text = str(problem)
    return text[:1].lower() + text[1:200]


def refuse_unwritable(path: Path) -> None:
    """Raise W002 if `write` could not write a file at `path`: before training, not after."""
    files.refuse_unwritable(path, **_PLACE)


def write(path: Path, tensors: Mapping[str, Tensor], check: Callable[[Path], object]) -> None:
    """Write a file with these tensors, or replace the one of that name, if `check` raises nothing about what was
    written; on failure (W002, or what it raises) nothing changes.

    The tensors are contiguous: the library would write others in the order of memory.
    """
    assert all(t.flags.c_contiguous for t in tensors.values())

    def save(new: Path) -> None:
        try:
            save_file(dict(tensors), new, metadata=_METADATA)
        except SafetensorError as problem:
            raise fail(
                Code.UNREADABLE, f"cannot write weights `{path}`: {_words(problem)}", help="give another path"
            ) from None
        check(new)

    files.replace_file(path, save, **_PLACE)
