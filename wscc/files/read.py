"""The one door for files that a user names: what is no regular file, or is larger than its kind may be, is refused.

A pipe, a device, a socket or a file under /proc could hang a reader or never end. The path is looked at before it is
opened, since to open a device may act on it, and again when it is open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wscc.diagnostics import CompileError, Source, fail
from wscc.files.kinds import WSL, FileKind

_IRREGULAR: Final = (
    (stat.S_ISDIR, "it is a directory"),
    (stat.S_ISFIFO, "it is a named pipe, not a regular file"),
    (stat.S_ISSOCK, "it is a socket, not a regular file"),
    (stat.S_ISCHR, "it is a character device, not a regular file"),
    (stat.S_ISBLK, "it is a block device, not a regular file"),
)
# Without waiting for a writer of a pipe that has taken the place of the file, or for a message of the kernel.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_bytes(path: str | Path, kind: FileKind) -> bytes:
    """The content of a regular file of at most `kind.limit` bytes.

    Raises the error of its kind otherwise: W002 and W003, or W501 for a file of an artifact, with the path, what lies
    there, and the limit. A file that grows meanwhile is read as far as it was when it was opened.
    """
    with _opened(path, kind) as (descriptor, size), open(descriptor, "rb", closefd=False) as file:
        content = file.read(max(1, size))
        if content is None:
            raise BlockingIOError(0, "it has nothing to read yet")
        if len(content) > size:
            raise OSError(0, "it does not say how large it is, as files of the system do not")
        return content


def regular_file(path: str | Path, kind: FileKind) -> Path:
    """The path itself, once it is known to be what `read_bytes` would read: for libraries that open files themselves
    and read them piece by piece."""
    with _opened(path, kind):
        return Path(path)


@contextmanager
def _opened(path: str | Path, kind: FileKind) -> Iterator[tuple[int, int]]:
    """The descriptor and the size of a file; errors of the system in the body are those of the file too."""
    try:
        _check(os.stat(path), path, kind)
        descriptor = os.open(path, _FLAGS)
        try:
            yield descriptor, _check(os.fstat(descriptor), path, kind)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as problem:
        raise _unreadable(path, kind, reason(problem)) from None


def _check(facts: os.stat_result, path: str | Path, kind: FileKind) -> int:
    """The size of a regular file; refuses any other, and one that is too large."""
    for is_one, words in _IRREGULAR:
        if is_one(facts.st_mode):
            raise _unreadable(path, kind, words)
    if not stat.S_ISREG(facts.st_mode):
        raise _unreadable(path, kind, "it is not a regular file")
    if facts.st_size > kind.limit:
        message = (
            f"`{path}` is too large: {facts.st_size:,} bytes, and {kind.words} has {kind.limit:,} at most"
        )
        raise fail(kind.too_large, message, help=kind.advice)
    return facts.st_size


def _unreadable(path: str | Path, kind: FileKind, why: str) -> CompileError:
    return fail(kind.unreadable, f"cannot read `{path}`: {why}", help=kind.help)


def reason(problem: OSError | ValueError) -> str:
    """Why the system refused a path, in lower case."""
    match problem:
        case FileNotFoundError():
            return "no such file"
        case OSError(strerror=str(words)):
            return words.lower()
        case _:
            return "not a valid path"


def read_source(path: str, kind: FileKind = WSL) -> Source:
    """The text of a regular UTF-8 file, as `read_bytes` reads it; W002 also for what is no UTF-8 text."""
    data = read_bytes(path, kind)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise fail(kind.unreadable, f"`{path}` is not UTF-8: it is UTF-16", help="save the file as UTF-8")
    if b"\0" in data:
        raise fail(
            kind.unreadable,
            f"`{path}` is not a text file: byte {data.index(0)} is NUL",
            help=f"give {kind.words} saved as UTF-8",
        )
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise fail(
            kind.unreadable,
            f"`{path}` is not UTF-8: byte {problem.start} (line {line}) is 0x{data[problem.start]:02x}",
            help="save the file as UTF-8",
        ) from None
