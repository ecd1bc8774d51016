"""The one writer of files that a user names: as a whole, or not at all.

The new content goes to a file beside the old one and then takes its place in one step. Who fails, is interrupted or is
killed meanwhile leaves the old file as it was. A pipe or a device has nothing to lose, and is written as it is.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from wscc.diagnostics import Code, CompileError, fail

StrPath = str | os.PathLike[str]
_LONGEST_SUFFIX: Final = 32


def write_file(path: StrPath, pieces: Iterable[str], *, help: str = "choose another file") -> None:
    """Write pieces of text, as UTF-8. Raises as `replace_file`."""
    replace_file(path, lambda new: new.write_text("".join(pieces), encoding="utf-8"), help=help)


def replace_file(
    path: StrPath, write: Callable[[Path], object], *, what: str = "", help: str = "choose another file",
    regular: bool = False,
) -> None:  # fmt: skip
    """Have `write` make a file, which then stands at `path`, with the permissions of the one that was there. A link
    stays, and what it points to is replaced.

    Raises `CompileError` W002 with this `help` where that cannot be done (`what` stands before the path), also for what
    is no regular file if it must be `regular`; and whatever `write` raises.
    """
    with _reporting(path, what, help):
        target, mode = _target(path, regular)
        if not stat.S_ISREG(mode):
            write(target)
            return
        with _beside(target) as new:
            write(new)
            os.chmod(new, stat.S_IMODE(mode))
            os.replace(new, target)


def refuse_unwritable(path: StrPath, *, what: str = "", help: str, regular: bool = False) -> None:
    """Raise what `replace_file` would raise before it writes: before work that takes long, not after."""
    with _reporting(path, what, help):
        target, mode = _target(path, regular)
        if stat.S_ISREG(mode):
            with _beside(target):
                pass


def make_folder(path: StrPath, *, help: str = "choose another folder") -> None:
    """Make a folder, and those that it lies in, if they are not there. Raises `CompileError` W002 with this `help`."""
    with _reporting(path, "", help):
        Path(path).mkdir(parents=True, exist_ok=True)


def move_file(old: StrPath, new: StrPath, *, help: str = "choose another folder") -> None:
    """Have a file take the place and the permissions of another in its folder, in one step. Raises as `make_folder`."""
    with _reporting(new, "", help):
        with suppress(FileNotFoundError):
            os.chmod(old, stat.S_IMODE(os.stat(new).st_mode))
        os.replace(old, new)


def _target(path: StrPath, regular: bool) -> tuple[Path, int]:
    """What a path leads to, and its mode; that of a new file if there is nothing."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target, stat.S_IFREG | 0o666 & ~_umask()
    if stat.S_ISDIR(mode):
        raise OSError(0, "it is a directory")
    if regular and not stat.S_ISREG(mode):
        raise OSError(0, "it is not a regular file")
    if not os.access(target, os.W_OK):
        raise OSError(0, "permission denied")
    return target, mode


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """An empty file in the folder of another, which is gone afterwards if it has kept its name."""
    suffix = target.suffix if len(target.suffix) <= _LONGEST_SUFFIX else ""
    handle, name = tempfile.mkstemp(prefix=".wscc-", suffix=suffix, dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


@contextmanager
def _reporting(path: StrPath, what: str, help: str) -> Iterator[None]:
    """Turns errors of the system into `CompileError`."""
    try:
        yield
    except (OSError, ValueError) as problem:
        raise _unwritable(path, problem, what, help) from None


def _unwritable(path: StrPath, problem: OSError | ValueError, what: str, help: str) -> CompileError:
    reason = (getattr(problem, "strerror", None) or "not a valid path").lower()
    return fail(Code.UNREADABLE, f"cannot write {what}`{os.fspath(path)}`: {reason}", help=help)


def _umask() -> int:
    """The process's mask of permissions: temporary files are private, and what is written should have the usual."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
