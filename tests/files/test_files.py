"""The door for users' files: what would hang a reader or fill its memory is refused, with what it is."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frontend_help import TINY
from wscc.api.program import compile as compile_program
from wscc.diagnostics import Code, CompileError
from wscc.files import JsonMistake, NpyMistake, parse_json, parse_npy, read_bytes, regular_file
from wscc.files.kinds import ARTIFACT, DATA, WEIGHTS, WSL, FileKind
from wscc.huggingface.parts import open_checkpoint

SMALL = FileKind("a small file", 4, "make it smaller")


def refusal(path: str | Path, kind: FileKind = SMALL) -> CompileError:
    with pytest.raises(CompileError) as caught:
        read_bytes(path, kind)
    with pytest.raises(CompileError):
        regular_file(path, kind)
    return caught.value


def odd_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """What may lie at a path, with the words for it."""
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "to-zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return {
        "pipe": (folder / "pipe", "it is a named pipe"),
        "loop": (folder / "loop", "too many levels of symbolic links"),
        "endless": (Path("/dev/zero"), "it is a character device"),
        "link": (folder / "to-zero", "it is a character device"),
        "socket": (folder / "socket", "it is a socket"),
        "folder": (folder, "it is a directory"),
        "none": (folder / "none", "no such file"),
        "system": (Path("/proc/self/status"), "does not say how large it is"),
        "nul": (Path("a\0b"), "not a valid path"),
    }


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    for name, (path, words) in odd_files(tmp_path).items():
        if name != "system":
            error = refusal(path)
        else:
            with pytest.raises(CompileError) as caught:
                read_bytes(path, SMALL)
            error = caught.value
        assert error.diagnostics[0].code is Code.UNREADABLE, name
        assert words in error.diagnostics[0].message, name


def test_a_limit_is_told_and_what_just_fits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content in (b"", b"abcd"):
        path.write_bytes(content)
        assert read_bytes(path, SMALL) == content
    path.write_bytes(b"abcde")
    diagnostic = refusal(path).diagnostics[0]
    assert diagnostic.code is Code.LIMIT
    assert f"`{path}` is too large: 5 bytes, and a small file has 4 at most" in diagnostic.message


@pytest.mark.parametrize("kind", [WSL, DATA, WEIGHTS, *ARTIFACT.values()])
def test_a_huge_sparse_file_is_refused_unread(tmp_path: Path, kind: FileKind) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        try:
            file.truncate(kind.limit + 1)
        except OSError:
            pytest.skip("a file system without files of this size")
    assert refusal(path, kind).diagnostics[0].code is kind.too_large


def test_a_file_that_takes_the_place_of_a_checked_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that appears between the look at the path and its opening would be waited for."""
    (tmp_path / "f").write_bytes(b"ok")
    os.mkfifo(tmp_path / "pipe")
    looked_at = os.stat(tmp_path / "f")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path: looked_at)
        with pytest.raises(CompileError, match="named pipe"):
            read_bytes(tmp_path / "pipe", SMALL)


def test_programs_data_and_weights_come_through_the_door(tmp_path: Path) -> None:
    odd = odd_files(tmp_path)
    for name in ("pipe", "endless", "socket"):
        path, words = odd[name]
        (tmp_path / "m.wsl").write_text(TINY.replace("tiny-text.txt", str(path)))
        for call in (
            lambda p=path: compile_program(p),
            lambda: compile_program(tmp_path / "m.wsl"),
            lambda p=path: open_checkpoint(p),
        ):
            with pytest.raises(CompileError, match=words):
                call()


# ---- npy


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["<i8", "<f4", "|b1", ">u2"]),
    st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_an_array_is_read_as_numpy_reads_it(shape: list[int], dtype: str, is_fortran: bool) -> None:
    count = int(np.prod(shape))
    array = np.arange(count).astype(dtype).reshape(shape, order="F" if is_fortran else "C")
    read = parse_npy(npy(array))
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


HEADERS = [
    "{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,)}",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (True,)}",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [('a', '<i4'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<i8', 'shape': (1,)}",
    "[" * 300,
    "{'descr': ",
    "",
]


@pytest.mark.parametrize("text", HEADERS)
def test_a_header_is_not_believed(text: str) -> None:
    with pytest.raises(NpyMistake):
        parse_npy(header(text.ljust(100) + "\n") + bytes(8))


def test_every_cut_of_an_array_is_noticed() -> None:
    whole = npy(np.arange(6).reshape(2, 3))
    for end in [0, 1, 7, 9, 60, len(whole) - 1]:
        with pytest.raises(NpyMistake):
            parse_npy(whole[:end])
    with pytest.raises(NpyMistake):
        parse_npy(whole + b"\0")


# ---- JSON


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "field `a` is given twice"),
        ("[NaN]", "no finite number"),
        ("[1e999]", "no finite number"),
        ("9" * 5_000, "too long for an integer"),
        ("[" * 100_000, "nested too deep"),
        ("[1, 2", "expecting"),
        ("", "expecting value"),
    ],
)
def test_json_is_strict(text: str, words: str) -> None:
    with pytest.raises(JsonMistake, match=words):
        parse_json(text)


def test_json_is_read() -> None:
    assert parse_json('{"a": [-9, 1.5, "x", null]}') == {"a": [-9, 1.5, "x", None]}
