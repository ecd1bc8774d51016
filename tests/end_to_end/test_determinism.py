"""Same input, same bytes out: two hash seeds, two folders, two processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import SAMPLES


def compiled(source: Path, folder: Path, seed: str) -> dict[str, bytes]:
    out = folder / "made"
    subprocess.run(
        [sys.executable, "-m", "wscc", "compile", source.name, "-o", str(out)],
        check=True, capture_output=True, cwd=source.parent, env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    return {p.name: p.read_bytes() for p in out.iterdir() if p.name != "report.json"}


def test_the_artifact_depends_on_the_input_alone(tmp_path: Path) -> None:
    """report.json holds seconds and stands outside the claim and the hashes."""
    made = []
    for name, seed in (("a", "1"), ("another/place", "2")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file in ("gpt-tiny.wsl", "tiny-text.txt"):
            shutil.copy(SAMPLES / file, folder)
        made.append(compiled(folder / "gpt-tiny.wsl", folder, seed))
    assert made[0].keys() == made[1].keys()
    for name, data in made[0].items():
        assert made[1][name] == data, name
