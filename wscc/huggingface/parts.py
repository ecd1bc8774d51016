"""A checkpoint in several files: `model.safetensors.index.json` has the file of each tensor, in its own folder.

{"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wscc.diagnostics import Code, CompileError, fail
from wscc.files import read_source
from wscc.files.kinds import INDEX
from wscc.huggingface.axes import Shape, Tensor
from wscc.huggingface.checkpoint import Checkpoint
from wscc.huggingface.config import read_config


class Parts:
    """The tensors of all files of an index, with the interface of `Checkpoint`; each file is opened once."""

    def __init__(self, path: Path) -> None:
        """Open all files. Errors are those of `Checkpoint`, and W505 if index and files do not agree."""
        self.path = path
        config = read_config(read_source(str(path), INDEX))
        section = config.section("weight_map")
        if section is None:
            raise self._broken("it has no `weight_map`")
        names = section.fields
        files = {
            file: Checkpoint(path.parent / self._beside(file))
            for file in sorted(set(map(str, names.values())))
        }
        self._files = {name: files[str(file)] for name, file in names.items()}
        for name, file in self._files.items():
            if name not in file.shapes:
                raise self._broken(f"`{file.path.name}` does not hold `{name}`")
        for file in files.values():
            for name in file.shapes:
                if self._files.get(name) is not file:
                    raise self._broken(f"`{file.path.name}` holds `{name}`, which it does not say")
        self.shapes: Mapping[str, Shape] = {n: f.shapes[n] for n, f in self._files.items()}
        self.dtypes: Mapping[str, str] = {n: f.dtypes[n] for n, f in self._files.items()}

    def read(self, name: str) -> Tensor:
        """One whole tensor, in the type of its file."""
        return self._files[name].read(name)

    def _beside(self, file: Any) -> str:
        """The name of a file in the folder of the index; W505 for any other path."""
        if file != Path(file).name or not file.endswith(".safetensors"):
            raise self._broken(f"`{file[:60]}` is not the name of a `.safetensors` file beside it")
        return str(file)

    def _broken(self, why: str) -> CompileError:
        return fail(
            Code.WEIGHTS, f"`{self.path}` is not the index of a checkpoint: {why}",
            help="download all parts of one checkpoint into one folder",
        )  # fmt: skip


def open_checkpoint(path: Path) -> Checkpoint | Parts:
    """A checkpoint of one file or, if the path is an index (`.json`), of several. Errors as for `Checkpoint`."""
    return Parts(path) if path.suffix == ".json" else Checkpoint(path)
