"""The kinds of files that users give, with the most bytes that one of each kind may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.diagnostics import Code

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30

# Characters of a `.wsl`: UTF-8 takes at most four bytes for each.
MAX_CHARACTERS: Final = 128 * _KIB
_RECOMPILE: Final = "compile the model again"


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: its name in error messages, the most bytes it may have, advice where it has more, and the codes
    of the errors of one that cannot be read and of one that is too large."""

    words: str
    limit: int
    advice: str
    unreadable: Code = Code.UNREADABLE
    too_large: Code = Code.LIMIT

    @property
    def help(self) -> str:
        """What to do about a path that is no such file."""
        return _RECOMPILE if self.unreadable is Code.ARTIFACT else f"give the path of {self.words}"


def _of_artifact(limit: int) -> FileKind:
    return FileKind("a file of an artifact", limit, _RECOMPILE, Code.ARTIFACT, Code.ARTIFACT)


WSL: Final = FileKind(
    "a `.wsl` file", 4 * MAX_CHARACTERS, "a model is a page of text; `repeat` says a layer once"
)
WIR: Final = FileKind("a `.wir` file", 4 * _MIB, "print the module of a smaller model")
CALL_ORDER: Final = FileKind("a call order", 4 * _MIB, "write what repeats as a loop")
FLOWS: Final = FileKind("a file of flows", 32 * _MIB, "route the phases of a program one by one")
CONFIG: Final = FileKind(
    "the config.json of a checkpoint", 512 * _KIB, "a config.json is a page of text; weights lie beside it"
)
INDEX: Final = FileKind(
    "a `.safetensors` file or the index of several", 64 * _MIB, "an index is a list of tensors and files"
)
DATA: Final = FileKind(
    "a file of data", _GIB, "data are kept in the artifact and in memory: train on a part of the file"
)
# Read tensor by tensor, so that memory is bounded by the model and not by the file.
WEIGHTS: Final = FileKind("a `.safetensors` file", 1 << 42, "split the checkpoint into parts with an index")

# The files of an artifact, by name.
ARTIFACT: Final = {
    "manifest.json": _of_artifact(64 * _MIB),
    "programs.wsa": _of_artifact(_GIB),
    "bindings.npy": _of_artifact(_GIB),
    "routes.json": _of_artifact(256 * _MIB),
    "graph.wir": _of_artifact(WIR.limit),
    "profile.json": _of_artifact(256 * _MIB),
    "call_order.txt": _of_artifact(CALL_ORDER.limit),
    "report.json": _of_artifact(256 * _MIB),
    "data.bin": _of_artifact(DATA.limit),
    "edges.safetensors": _of_artifact(DATA.limit),
}
