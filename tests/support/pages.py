"""Runs README.md and the pages of docs/, and gives them back with the output that their commands have now.

Three kinds of fenced blocks of a page are live, and run in order in a folder of the page's own:

    ```console          each `$ command` (continued by `> ` lines), then what it prints
    ```diff             after `@@ path @@`, lines of that file with `-` and `+`: the others must be there, once
    ```python path      a new file

In what a command prints, a line `...` is any lines, and `...` within a line is anything: times differ every time. A
command whose output starts with `error` must fail, every other must not.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.support.paths import ROOT
from wscc.cli import main as wscc

PACKAGE = ("passes", "backends", "grammar")  # top-level folders that are parts of the package
READ = ("samples", "docs", "tests/cases")  # what the commands of a page read
COPIED = ("wscc", *PACKAGE, "tests", "samples", "docs", "pyproject.toml")
ANY = "..."
PICTURES = Path("docs") / "pictures"
WIDTH = "80"
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
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pictures(root: Path) -> dict[str, str]:
    """What is in docs/pictures, by name: commands of pages draw it there."""
    return {p.name: p.read_text(encoding="utf-8") for p in (root / PICTURES).iterdir()}


def changes_code(page: str) -> bool:
    """True for a page that has the reader change sources; every other only looks at what they do. Scripts beside the
    folders of sources change none."""
    return any(b.kind == "diff" or "/" in b.path for b in blocks(page))


def regenerated(page: str, folder: Path) -> str:
    """The page with the output that its commands have in `folder`, which `prepare` has filled for it."""
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


# ---- the folder of a page


def prepare(page: str, folder: Path) -> Path:
    """Fill `folder` with what the page works on: the whole checkout if it changes code, else models and pages.

    A copy of the checkout has `wscc` and `python` to call; caches of Python are copied with their sources and stay
    valid, so that a command starts as fast as here. Commands of other pages run in this process.
    """
    changed = changes_code(page)
    for name in COPIED if changed else READ:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=_WRITTEN_BY_OTHERS)
        else:
            shutil.copy2(ROOT / name, folder / name)
    if changed:
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
        words = re.sub(r"^[$>] ", "", command, flags=re.MULTILINE).removesuffix("\n")
        shown.append(
            command + _with_wildcards(expected, _run(words, folder, fails=expected.startswith("error")))
        )
    return "".join(shown)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command with its continuation lines, and the lines after it up to the next."""
    parts = re.split(r"^(\$ .*\n(?:> .*\n)*)", text, flags=re.MULTILINE)
    assert not parts[0], f"output before any command: {parts[0]}"
    yield from zip(parts[1::2], parts[2::2], strict=True)


def _with_wildcards(expected: str, printed: str) -> str:
    """`expected` if it fits what was printed; else that, with the lines that say `...` for what varies."""
    lines = expected.splitlines()
    if re.fullmatch("".join(r"(?:.*\n)*" if line == ANY else _pattern(line) for line in lines), printed):
        return expected
    varying = [line for line in lines if ANY in line and line != ANY]
    return "".join(
        next((v for v in varying if re.fullmatch(_pattern(v), f"{line}\n")), line) + "\n"
        for line in printed.splitlines()
    )


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split(ANY))) + r"\n"


# `wscc WORDS`, over several lines too, or `wscc WORDS | COMMANDS`, that needs no shell before the bar.
_OURS = re.compile(r"wscc ((?:[^|;&<>$`\n]|\\\n)*?)(?: \| (.*))?", re.DOTALL)


_SCRIPT = re.compile(r"python (\w+\.py)")


def _run(command: str, folder: Path, *, fails: bool) -> str:
    """What the command prints, from this process where that is possible: starting one takes longer than most."""
    own_code = (folder / "wscc").exists()
    ours = None if own_code else _OURS.fullmatch(command)
    script = None if own_code else _SCRIPT.fullmatch(command)
    if script is not None:
        status, printed = _forked(script[1], folder)
    elif ours is None:
        status, printed = _in_shell(command, folder)
    else:
        status, printed, messages = _called(
            shlex.split(ours[1].replace("\\\n", " ")), folder, apart=bool(ours[2])
        )
        if ours[2]:
            status, printed = _in_shell(ours[2], folder, printed)
            printed = messages + printed
    if bool(status) != fails:
        raise Outdated(f"`{command}` ended with status {status}:\n{printed}")
    return printed


def _called(arguments: list[str], folder: Path, *, apart: bool) -> tuple[int, str, str]:
    """Status, output and messages of the command line, the latter among the output unless `apart`."""
    out = io.StringIO()
    messages = io.StringIO() if apart else out
    with (
        chdir(folder),
        patch.dict(os.environ, COLUMNS=WIDTH),
        redirect_stdout(out),
        redirect_stderr(messages),
    ):
        status = wscc(arguments)
    return status, out.getvalue(), messages.getvalue() if apart else ""


def _forked(script: str, folder: Path) -> tuple[int, str]:
    """Status and output of a script in a fork of this process: it has imported all, and keeps what it registers."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                sys.stdout = sys.stderr = out
                os.chdir(folder)
                runpy.run_path(script, run_name="__main__")
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                out.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        out.seek(0)
        return os.waitstatus_to_exitcode(ended), out.read()


def _in_shell(command: str, folder: Path, given: str = "") -> tuple[int, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": WIDTH}
    if (folder / "wscc").exists():
        environment["PYTHONPATH"] = str(folder)
    # Of the tests that a page runs, not of those that run it.
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, text=True, check=False,
        input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
