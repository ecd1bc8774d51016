"""`wscc draw`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT
from wscc.cli import main

GPT = str(ROOT / "samples" / "gpt-tiny.wsl")
SMALL = ["--set", "model.layers=2", "--set", "model.d=16", "--set", "model.seq=8", "--parallel", "pp=2"]


@pytest.mark.parametrize("what", ["wafer", "timeline", "load"])
def test_a_model_is_drawn(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.svg"
    assert main(["draw", GPT, "--what", what, "-o", str(file), *SMALL]) == 0
    assert capsys.readouterr().out == ""
    text = "".join(e.text or "" for e in ElementTree.parse(file).iter())
    assert "gpt on tray, pp=2" in text
    assert {"wafer": "pp 1", "timeline": "stage 1", "load": "bytes x links"}[what] in text


def test_json_holds_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", GPT, "--json", *SMALL]) == 0
    assert json.loads(capsys.readouterr().out)["svg"].startswith("<svg")
