"""Readers of files of named arrays, `.npz` and `.safetensors`, in memory: nothing is allocated by what they state."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import safetensors
from numpy.typing import NDArray

from wscc.files.json import parse_json
from wscc.files.npy import NpyMistake, parse_npy

Arrays = dict[str, NDArray[Any]]

_NPY: Final = ".npy"
_SHOWN: Final = 60
_PACKED: Final = (
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
)  # what NumPy writes; others unpack without a bound
_TYPES: Final = {
    "BOOL": np.bool_, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "I8": np.int8,
    "I16": np.int16, "I32": np.int32, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
}  # fmt: skip
_BF16: Final = "BF16"


class ArchiveMistake(ValueError):
    """Content that is no archive of arrays, in words; `array` is the one that is at fault, if it is one."""

    def __init__(self, words: str, array: str = "") -> None:
        super().__init__(words)
        self.array = array


def parse_npz(content: bytes, limit: int) -> Arrays:
    """The arrays in the bytes of a `.npz` file by name, of integers, floats or booleans; they are read-only.

    `ArchiveMistake` for anything else, for a name that is there twice, and where more than `limit` bytes are packed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members, limit)
            return {m.filename.removesuffix(_NPY): _unpacked(archive, m) for m in members}
    except ArchiveMistake:
        raise
    except Exception as problem:  # zipfile has a dozen kinds of them for damaged archives
        raise ArchiveMistake(f"it is not a whole .npz archive: {_words(problem)}") from None


def _check_members(members: list[zipfile.ZipInfo], limit: int) -> None:
    """Raise `ArchiveMistake` for members that are no arrays, and for more bytes than the limit."""
    for m in members:
        if not m.filename.endswith(_NPY):
            raise ArchiveMistake(f"it holds {shown(m.filename)}, which is no array")
        if m.compress_type not in _PACKED or m.flag_bits & 1:
            raise ArchiveMistake("it is packed in a way that NumPy does not write", _name(m))
    repeated = [name for name, times in Counter(m.filename for m in members).items() if times > 1]
    if repeated:
        raise ArchiveMistake("it is there twice", repeated[0].removesuffix(_NPY))
    if (total := sum(m.file_size for m in members)) > limit:
        raise ArchiveMistake(f"its arrays have {total:,} bytes unpacked, and the limit is {limit:,}")


def _unpacked(archive: zipfile.ZipFile, m: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(m) as member:
        content = member.read(m.file_size)
    if len(content) != m.file_size:
        raise ArchiveMistake("it is cut short", _name(m))
    try:
        return parse_npy(content)
    except NpyMistake as problem:
        raise ArchiveMistake(str(problem), _name(m)) from None


def _name(m: zipfile.ZipInfo) -> str:
    return m.filename.removesuffix(_NPY)


def parse_safetensors(content: bytes) -> Arrays:
    """The arrays in the bytes of a `.safetensors` file by name. `ArchiveMistake` for anything else."""
    try:
        entries: list[tuple[str, Any]] = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
        parse_json(
            content[8 : 8 + int.from_bytes(content[:8], "little")].decode()
        )  # names twice are let pass
    except Exception as problem:
        raise ArchiveMistake(f"it is not a whole .safetensors file: {_words(problem)}") from None
    out: Arrays = {}
    for name, entry in entries:
        dtype = _bf16() if entry["dtype"] == _BF16 else _TYPES.get(entry["dtype"])
        if dtype is None:
            raise ArchiveMistake(f"its elements are {shown(entry['dtype'])}, which is not read", name)
        out[name] = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
    return out


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a `.npz` file that `parse_npz` makes these arrays of, the same for the same."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _NPY), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return out.getvalue()


def safetensors_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a `.safetensors` file that `parse_safetensors` makes these arrays of, the same for the same."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(a) for name, a in sorted(arrays.items())})


def _bf16() -> Any:
    # Imported here, since it takes longer to import than all else, and few files need it.
    import ml_dtypes

    return ml_dtypes.bfloat16


def shown(name: str) -> str:
    """A name from a file in backticks, short, without what a terminal would act on."""
    text = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."
    return f"`{text.encode('unicode_escape').decode() if not text.isprintable() else text}`"


def _words(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    return (text[:1].lower() + text[1:200]).encode("unicode_escape").decode()
