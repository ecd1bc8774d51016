"""The notebook of samples/ runs from its first cell to its last."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.support.paths import ROOT


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_tour_runs_and_is_stored_without_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gpt-tiny.wsl", "tiny-text.txt"):
        shutil.copy(ROOT / "samples" / name, tmp_path / name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(ROOT / "samples" / "tour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert sum("image/svg+xml" in data for data in shown) == 4
    assert any("passed" in data.get("text/plain", "") for data in shown)
