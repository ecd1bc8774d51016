"""Installed from a built wheel, away from the checkout, everything works: grammars and presets are package data.

The wheel is built without network and put on a path of its own; `make wheel-test` (which CI runs) also installs
it with its dependencies into a fresh virtual environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked wheel."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    kept = ("grammar", "passes", "backends", "wscc", "pyproject.toml", "README.md")
    for name in kept:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name if (ROOT / name).is_dir() else _made(source) / name)
    # What `pip wheel` calls in three processes, in one.
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(work)], cwd=source, check=True, capture_output=True)
    (wheel,) = work.glob("*.whl")
    target = work / "site"
    with zipfile.ZipFile(wheel) as z:
        z.extractall(target)
    return target


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_model_compiles_and_runs_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    for file in ("gpt-tiny.wsl", "tiny-text.txt"):
        shutil.copy(ROOT / "samples" / file, tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import wscc; assert 'site' in wscc.__file__; "
        "from wscc.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    args = [
        "run",
        "gpt-tiny.wsl",
        "--steps",
        "1",
        "--set",
        "model.layers=1",
        "--set",
        "model.seq=8",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, str(installed), *args],
        cwd=tmp_path, capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"losses"' in done.stdout


def test_the_wheel_holds_one_package_and_its_data(installed: Path) -> None:
    """Nothing generic (`passes`, `grammar`) lands in a user's site-packages."""
    assert {p.name for p in installed.iterdir()} == {"wscc", next(installed.glob("*.dist-info")).name}
    assert {p.name for p in (installed / "wscc/grammar").glob("*.lark")} == {
        "wsl.lark",
        "wir.lark",
        "wsa.lark",
    }
    assert (installed / "wscc/machine/presets.json").exists()
    assert (installed / "wscc/py.typed").exists()
