"""`wscc collective` as a user meets it: fields, files, errors and exit codes."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path

import pytest

from wscc.cli import main

LINK = ["--link", "bandwidth=256B/ns,latency=1ns,flit=256B", "--link-model", "store-and-forward"]


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_json_has_the_promised_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collective", "all_gather", "--mesh", "5x5", "--bytes", "1KiB", *LINK, "--json"]) == 0
    r = json.loads(out(capsys))
    assert {
        "op",
        "mesh",
        "dies",
        "bytes",
        "algorithm",
        "seconds",
        "bound_seconds",
        "ratio",
        "max_link_bytes",
    } <= set(r)
    assert (r["op"], r["mesh"], r["dies"], r["bytes"]) == ("all_gather", [5, 5], 25, 1024)
    assert r["seconds"] <= 20e-9
    assert r["ratio"] == pytest.approx(r["seconds"] / r["bound_seconds"])


def test_a_plan_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines read on their own: no link twice at once, nothing sent before it is there, all arrives."""
    file = tmp_path / "s.jsonl"
    args = ["collective", "all_gather", "--mesh", "3x3", "--bytes", "9000", "--dead", "die:1,1", *LINK]
    assert main([*args, "--plan", str(file), "--json"]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert set(lines[0]) == {"message", "start", "end", "src", "dst", "bytes", "chunk", "op"}
    assert max(line["end"] for line in lines) == json.loads(out(capsys))["seconds"]
    messages = {(line["message"], *line["src"], *line["dst"], line["start"], line["end"]) for line in lines}
    assert len(messages) == len({m[0] for m in messages})
    by_link: dict[tuple[int, ...], list[tuple[float, float]]] = {}
    for m in messages:
        by_link.setdefault(m[1:5], []).append(m[5:])
    for times in map(sorted, by_link.values()):
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(times))
    arrived = {(*line["dst"], line["chunk"]): line["end"] for line in lines}
    for line in lines:
        assert arrived.get((*line["src"], line["chunk"]), 0.0) <= line["start"]
    assert len(arrived) == len({line["chunk"] for line in lines}) * 7


def test_the_old_spelling_of_plan_writes_the_same_file(tmp_path: Path) -> None:
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"
    args = ["collective", "broadcast", "--mesh", "1x3", "--bytes", "900"]
    assert main([*args, "--plan", str(new)]) == 0
    assert main([*args, "--schedule", str(old)]) == 0
    assert old.read_text() == new.read_text() != ""


def test_a_check_executes_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["collective", "all_reduce", "--mesh", "3x3", "--dead", "die:1,1", "--check", "--bytes"]
    assert main([*args, "2000", "--json"]) == 0
    assert json.loads(out(capsys))["check"] == {"ok": True, "elements": 2000, "wrong": []}
    assert main(["collective", "broadcast", "--mesh", "3x3", "--check", "--bytes", "1GB"]) == 0
    assert "passed: executed with" in (text := out(capsys))
    assert "a reduced size" in text


def test_a_sweep_shows_every_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collective", "broadcast", "--mesh", "3x3", "--bytes", "4KiB", "--sweep"]) == 0
    head, *rows = out(capsys).splitlines()
    assert head.split() == ["bytes", "ring", "chain", "tree", "packing", "direct", "auto", "bound"]
    assert [row.split()[0] for row in rows] == ["1,024", "4,096"]
    assert rows[0].split()[1] == "-"  # nine dies are no ring


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is there")
def test_a_plot_without_matplotlib_is_a_named_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["collective", "p2p", "--mesh", "1x2", "--bytes", "1KiB", "--plot", str(tmp_path / "p.png")]
    assert main(args) == 1
    assert "wscc[plot]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["all_gather", "--mesh", "5", "--bytes", "1"], 2, "`--mesh 5` is not ROWSxCOLUMNS"),
        (["all_gather", "--mesh", "1000x1000", "--bytes", "1"], 1, "the limit is 4,096 dies"),
        (["all_gather", "--mesh", "2x2", "--bytes", "x"], 2, "--bytes"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1.5B"], 2, "no number of bytes"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--link", "speed=1B"], 2, "no field of `--link`"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--link", "flit=1ns"], 2, "needs a unit"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--link", "flit=0B"], 2, "above 0"),
        (["gather", "--mesh", "2x2", "--bytes", "1"], 2, "gather"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--dead", "die:9"], 2, "malformed `--dead`"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--dead", "die:9,9"], 1, "not on the mesh"),
        (["all_gather", "--mesh", "1x3", "--bytes", "1", "--dead", "die:0,1"], 1, "2 islands"),
        (["all_gather", "--mesh", "3x3", "--bytes", "1", "--algorithm", "ring"], 1, "no ring"),
        (["all_gather", "--mesh", "2x2", "--bytes", "1", "--sweep", "--check"], 2, "executes one plan"),
        (["p2p", "--mesh", "2x2", "--bytes", "1", "--to", "5,5"], 1, "not on the mesh"),
        (["p2p", "--mesh", "2x2", "--bytes", "1", "--to", "0,1", "--dead", "die:0,1"], 1, "is dead"),
    ],
)
def test_mistakes_are_named(
    args: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collective", *args]) == status
    assert words in capsys.readouterr().err
