"""What a user names is written as a whole or not at all; JSON is JSON whatever its numbers are."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.diagnostics import Code, CompileError
from wscc.files.to_json import to_json
from wscc.files.write import refuse_unwritable, replace_file, write_file
from wscc.huggingface import checkpoint

# ---- files


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(CompileError) as caught:
        act()
    assert caught.value.diagnostics[0].code is Code.UNREADABLE
    return caught.value.diagnostics[0].message


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file may become larger: the system says so as it does of a full disk, while a file is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_replaced_and_keeps_its_mode_and_the_links_to_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real.txt", tmp_path / "link.txt"
    write_file(real, ["ol", "d"])
    (tmp_path / "plain").touch()
    assert real.stat().st_mode == (tmp_path / "plain").stat().st_mode
    real.chmod(0o640)
    link.symlink_to(real)
    with real.open() as opened:
        write_file(link, ["new"])
        assert opened.read() == "old"  # no moment at which a reader finds half of the new one
    assert real.read_text() == "new"
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [p.name for p in real.parent.iterdir()] == ["real.txt"]


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: write_file(path, ["x" * 5000]),
    "weights": lambda path: checkpoint.write(path, {"w": np.zeros(5000, np.float32)}, lambda new: None),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_bytes(b"old")
    with small_disk(1000):
        assert "file too large" in refused(lambda: WRITERS[writer](path)).lower()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["good"]


def test_a_writer_that_is_killed_or_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_bytes(b"old")

    def half(new: Path, end: Callable[[], object]) -> None:
        new.write_bytes(b"half")
        end()

    if (child := os.fork()) == 0:
        replace_file(path, lambda new: half(new, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_bytes() == b"old"
    with pytest.raises(ZeroDivisionError):
        replace_file(path, lambda new: half(new, lambda: 1 // 0))
    assert path.read_bytes() == b"old"


def test_weights_that_a_reader_refuses_take_no_files_place(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_bytes(b"old")

    def refuse(new: Path) -> None:
        assert set(checkpoint.Checkpoint(new).shapes) == {"w"}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        checkpoint.write(path, {"w": np.zeros(2, np.float32)}, refuse)
    assert path.read_bytes() == b"old"


def test_what_cannot_be_written_is_named_before_and_after_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "no" / "file")
    (tmp_path / "locked").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path))  # tests may run as root
    wrong = {
        ".": "it is a directory", "loop": "too many levels of symbolic links", "nowhere": "no such file or directory",
        "no/file": "no such file or directory", "locked": "permission denied", "a\0b": "not a valid path",
        "n" * 300: "file name too long", "locked/file": "not a directory",
    }  # fmt: skip
    for name, reason in wrong.items():
        path = str(tmp_path / name)
        assert refused(lambda p=path: write_file(p, [])) == f"cannot write `{path}`: {reason}"  # type: ignore[misc]
        assert refused(lambda p=path: refuse_unwritable(p, help="")).endswith(reason)  # type: ignore[misc]
    assert refused(lambda: checkpoint.refuse_unwritable(tmp_path / "pipe")).endswith("not a regular file")


def test_a_device_stays_one() -> None:
    write_file(os.devnull, ["text"])
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert (
        refused(lambda: write_file("/dev/full", ["text"]))
        == "cannot write `/dev/full`: no space left on device"
    )


# ---- JSON

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def without(value: Any) -> Any:
    """The value with None for each number that is not finite."""
    if isinstance(value, dict):
        return {k: without(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@settings(max_examples=30)
@given(VALUES, st.booleans())
def test_json_has_no_number_that_is_not_finite(value: Any, compact: bool) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(to_json(value, compact=compact), parse_constant=refuse) == without(value)
    assert json.loads(to_json((np.float64("nan"), value), indent=2), parse_constant=refuse)[0] is None
