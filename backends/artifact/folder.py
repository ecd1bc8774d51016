"""Replacement of a folder as a whole: a writer that is killed leaves the old one or the new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from wscc.diagnostics import Code, CompileError, fail


def refuse(path: Path, why: str) -> CompileError:
    """Error W501 about a file or folder of an artifact."""
    return fail(Code.ARTIFACT, f"`{path}` {why}", help="compile the model again")


def replace_folder(folder: Path, files: Mapping[str, bytes], replaceable: frozenset[str], mark: str) -> None:
    """Make `folder` hold exactly `files`. An existing folder is replaced if it is empty, or holds a file
    `mark` and only files named in `replaceable`; anything else is refused with W501, as is a failure to write.

    Everything is written beside the target first. Replacing takes two renames, between which the target is
    absent but whole beside it.
    """
    target = Path(os.path.realpath(folder))
    _check_replaceable(folder, target, replaceable, mark)
    new, old = (target.with_name(f".{target.name}.{os.getpid()}.{word}") for word in ("new", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir()
        for name, content in files.items():
            (new / name).write_bytes(content)
        if target.exists():
            target.rename(old)
        new.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        raise _unwritable(folder, error.strerror or str(error)) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(folder: Path, target: Path, replaceable: frozenset[str], mark: str) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise _unwritable(folder, "a file of that name exists")
    try:
        names = sorted(p.name for p in target.iterdir())
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    foreign = [n for n in names if n not in replaceable or (target / n).is_dir()]
    if foreign or (names and mark not in names):
        raise _unwritable(folder, f"the folder is not an artifact; it holds `{(foreign or names)[0]}`")


def _unwritable(folder: Path, why: str) -> CompileError:
    return fail(
        Code.ARTIFACT,
        f"cannot write the artifact to `{folder}`: {why}",
        help="give another folder with `-o`",
    )
