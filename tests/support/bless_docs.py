"""Runs the pages of docs/; as a program, rewrites the output that they show.

Three kinds of fenced blocks of a page are live, and run in order in a copy of the checkout of the page's own:

    ```console          each `$ command` (continued by `> ` lines), then what it prints; `...` is any lines
    ```diff             after `@@ path @@`, lines of that file with `-` and `+`: the others must be there, once
    ```python path      a new file

    python -m tests.support.bless_docs      then read the pages again: the prose may no longer fit what they show
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ("passes", "backends", "grammar")  # top-level folders that are parts of the package
COPIED = ("wscc", *PACKAGE, "tests", "samples", "docs", "pyproject.toml")
ANY = "..."
# Other tests run meanwhile: caches that are being written, artifacts.
_WRITTEN_BY_OTHERS = shutil.ignore_patterns("*.pyc.*", "*.out")

_BLOCK = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Outdated(AssertionError):
    """A page that cannot be followed: a command fails, or a file is not as a diff expects it."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `start` and `end` are where its text lies in the page."""

    kind: str
    path: str
    text: str
    start: int
    end: int


def blocks(page: str) -> Iterator[Block]:
    for m in _BLOCK.finditer(page):
        yield Block(m[1], m[2], m[3], m.start(3), m.end(3))


def pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def regenerated(page: str, folder: Path) -> str:
    """The page with the output that its commands have in `folder`, a copy of the checkout (see `copied`)."""
    out, at = [], 0
    for block in blocks(page):
        text = block.text
        if block.kind == "console":
            text = _console(text, folder)
        elif block.kind == "diff":
            _patch(text, folder)
        elif block.kind == "python" and block.path:
            _create(folder / block.path, text)
        out += [page[at : block.start], text]
        at = block.end
    return "".join([*out, page[at:]])


# ---- the copy


def copied(folder: Path) -> Path:
    """What a page works on: sources, tests and samples, importable as `wscc`, with `wscc` and `python` to call.

    Caches of Python are copied with their sources and stay valid, so that a command starts as fast as here.
    """
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=_WRITTEN_BY_OTHERS)
        else:
            shutil.copy2(ROOT / name, folder / name)
    for name in PACKAGE:
        (folder / "wscc" / name).symlink_to(folder / name)
    for name, arguments in (("wscc", "-m wscc "), ("python", "")):
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        script.chmod(0o755)
    return folder


# ---- blocks


def _console(text: str, folder: Path) -> str:
    shown = []
    for command, expected in _commands(text):
        printed = _run(re.sub(r"^[$>] ", "", command, flags=re.MULTILINE), folder)
        shown.append(command + (expected if _fits(expected, printed) else printed))
    return "".join(shown)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command with its continuation lines, and the lines after it up to the next."""
    parts = re.split(r"^(\$ .*\n(?:> .*\n)*)", text, flags=re.MULTILINE)
    assert not parts[0], f"output before any command: {parts[0]}"
    yield from zip(parts[1::2], parts[2::2], strict=True)


def _fits(expected: str, printed: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*" if line == ANY else re.escape(line) + r"\n" for line in expected.splitlines()
    )
    return re.fullmatch(pattern, printed) is not None


def _run(command: str, folder: Path) -> str:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "80"}
    # Of the tests that a page runs, not of those that run it.
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise Outdated(f"`{command}` ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def _patch(text: str, folder: Path) -> None:
    _, *parts = re.split(r"^@@ (\S+) @@\n", text, flags=re.MULTILINE)
    for name, hunk in zip(parts[::2], parts[1::2], strict=True):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        path = folder / name
        old = path.read_text(encoding="utf-8")
        if old.count(before) != 1:
            raise Outdated(f"`{name}` has these lines {old.count(before)} times, not once:\n{before}")
        path.write_text(old.replace(before, after), encoding="utf-8")


def _create(path: Path, text: str) -> None:
    if path.exists():
        raise Outdated(f"`{path.name}` is there already")
    path.write_text(text, encoding="utf-8")


def main() -> int:
    for path in pages():
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            made = regenerated(page, copied(Path(folder)))
        if made != page:
            path.write_text(made, encoding="utf-8")
            print(f"rewrote {path.relative_to(ROOT)}: read it again, its prose may no longer fit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
