"""Same input, same bytes out: another hash seed, folder and process (tests/test_programs.py: over time)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import SAMPLES
from wscc.cli import main


def compiled(source: Path, folder: Path, seed: str) -> dict[str, bytes]:
    out = folder / "made"
    subprocess.run(
        [sys.executable, "-m", "wscc", "compile", source.name, "-o", str(out)],
        check=True, capture_output=True, cwd=source.parent, env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    return files(out)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "report.json"}


def test_the_artifact_depends_on_the_input_alone(tmp_path: Path) -> None:
    """report.json holds seconds and stands outside the claim and the hashes."""
    folder = tmp_path / "another" / "place"
    folder.mkdir(parents=True)
    for file in ("gpt-tiny.wsl", "tiny-text.txt"):
        shutil.copy(SAMPLES / file, folder)
    assert main(["compile", str(SAMPLES / "gpt-tiny.wsl"), "-o", str(tmp_path / "here")]) == 0
    here = files(tmp_path / "here")
    for seed in ("1", "2"):  # this process has one of them at most
        if os.environ.get("PYTHONHASHSEED") != seed:
            assert compiled(folder / "gpt-tiny.wsl", folder, seed) == here
            break
