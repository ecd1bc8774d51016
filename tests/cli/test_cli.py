"""The command line as a user meets it: results, exit codes, errors on stderr and as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compile_once import programs_once  # noqa: F401
from tests.support.paths import SAMPLES
from wscc.cli import main
from wscc.passes.registry import PASSES

pytestmark = pytest.mark.usefixtures("programs_once")


@pytest.fixture
def model(tmp_path: Path) -> str:
    for file in ("gpt-tiny.wsl", "tiny-text.txt"):
        shutil.copy(SAMPLES / file, tmp_path)
    return str(tmp_path / "gpt-tiny.wsl")


SMALL = ["--set", "model.layers=1", "--set", "model.seq=8"]


def test_an_artifact_runs_without_its_source(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["compile", model, "-o", out, *SMALL]) == 0
    assert "rings" in capsys.readouterr().out
    Path(model).unlink()
    (tmp_path / "tiny-text.txt").unlink()
    assert main(["run", out, "--steps", "2", "--check", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["losses"]) == 2
    assert result["check"]["ok"] is True
    numbers = {"losses", "validation", "data", "seconds_per_step", "peak_bytes_per_die_max", "notes"} | {
        "check"
    }
    assert set(result) == numbers
    assert {"ok", "dtype", "loss_rel_err", "grad_rel_err", "weight_rel_err", "worst"} <= set(result["check"])


def test_the_report_has_the_promised_fields(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", model, "-o", str(tmp_path / "o"), "--json", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {
        "strategy", "dies_used", "compile_seconds", "params", "parameter_groups", "flops_per_step", "memory", "pads",
        "placement", "phases",
        "procedures", "traffic_bytes", "instructions", "repeated_flops",
        "replicated_flops", "hidden_flops", "sequence_order",
        "storage",
        "weights_converted",
    }  # fmt: skip
    assert report == json.loads((tmp_path / "o" / "report.json").read_text())
    assert set(report["placement"]) == {"method", "rings", "paths", "axes"}
    assert set(report["phases"][0]) == {
        "name", "xy_max_link_bytes", "max_link_bytes", "lp_bound_bytes", "gap_percent"
    }  # fmt: skip
    assert report["weights_converted"] == "never twice"
    assert sum(report["memory"]["by_category"].values()) == report["memory"]["peak_bytes_per_die_max"]


@pytest.mark.parametrize("level", ["graph", "sharded", "fabric"])
def test_emit_prints_a_level_that_opt_reads_again(
    level: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", model, "--emit", level, *SMALL]) == 0
    text = capsys.readouterr().out
    path = tmp_path / "m.wir"
    path.write_text(text)
    assert main(["opt", str(path)]) == 0
    assert capsys.readouterr().out == text
    assert not (tmp_path / "gpt-tiny.out").exists()


def test_opt_runs_passes_one_by_one(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Differentiating, then partitioning in a second process' worth of text, gives what compile prints."""
    assert main(["compile", model, "--emit", "graph", *SMALL]) == 0
    (tmp_path / "graph.wir").write_text(capsys.readouterr().out)
    assert main(["opt", str(tmp_path / "graph.wir"), "--passes", "partition,stages,fuse,place"]) == 0
    by_hand = capsys.readouterr().out
    assert main(["compile", model, "--emit", "sharded", *SMALL]) == 0
    assert capsys.readouterr().out == by_hand


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--parallel", "tp=3"], 1, "tp = 3"),
        (["--parallel", "tp=16"], 1, "8 alive"),
        (["--parallel", "xp=2"], 2, "xp"),
        (["--parallel", "auto"], 1, "auto"),
        (["--set", "model.layrs=2"], 2, "did you mean `layers`"),
        (["--dead", "die:9,9"], 1, "(9, 9)"),
        (["--dead", "dye:1,1"], 2, "dye"),
        (["--dtype", "f13"], 2, "f13"),
        (["-O", "9"], 2, "9"),
        (["--nonsense"], 2, "nonsense"),
        (["--set", "wafer.die.hbm=1 MB", "--set", "wafer.die.sram=100 kB"], 1, "W401"),
        (["--dead", "die:0,1", "--dead", "die:1,0"], 1, ""),
    ],
)
def test_mistakes_are_named_and_have_a_status(
    args: list[str], status: int, words: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", model, *args]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_with_json_the_error_is_an_object_too(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", model, "--json", "--parallel", "dp=3"]) == 1
    seen = capsys.readouterr()
    error = json.loads(seen.out)["error"]
    assert set(error) == {"code", "message", "file", "line", "column", "help", "proposals"}
    assert error["message"] in seen.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "args", [["compile", "--nonsense"], ["compile"], ["run", "x", "--steps", "0"], ["passes", "plaec"]]
)
def test_a_command_line_that_cannot_be_read_is_an_object_too(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*args, "--json"]) == 2
    seen = capsys.readouterr()
    error = json.loads(seen.out)["error"]
    assert set(error) == {"code", "message", "file", "line", "column", "help", "proposals"}
    assert error["message"] in seen.err.strip().splitlines()[-1]


def test_every_command_prints_one_object_with_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", model, "--emit", "graph", "--print-after", "place", "--json", *SMALL]) == 0
    modules = json.loads(capsys.readouterr().out)["modules"]
    assert list(modules) == ["differentiate", "place"]
    graph = Path(model).with_suffix(".wir")
    graph.write_text(modules["differentiate"])
    assert main(["opt", str(graph), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"module": modules["differentiate"]}
    assert main(["fmt", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"text": Path(model).read_text()}
    assert main(["explain", "W201", "--json"]) == 0
    assert "Example" in json.loads(capsys.readouterr().out)["text"]
    assert main(["compile", model, "--print-after", "place", "--json", *SMALL]) == 0
    assert {"modules", "strategy"} <= set(json.loads(capsys.readouterr().out))


def test_words_of_the_command_line_that_name_nothing_are_its_mistakes(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in (
        ["opt", model, "--passes", "plaec"],
        ["opt", model, "--passes", "place{"],
        ["explain", "W9"],
    ):
        assert main(args) == 2
        assert "error[W006]" in capsys.readouterr().err


def test_a_path_that_is_no_program_says_what_to_give(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tmp_path / "no")]) == 1
    assert f"wscc compile MODEL -o {tmp_path / 'no'}" in capsys.readouterr().err
    main(["compile", model, "-o", str(tmp_path / "out"), *SMALL])
    assert main(["run", str(tmp_path / "out" / "manifest.json")]) == 1
    assert f"give the folder: `{tmp_path / 'out'}`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "status", "words"),
    [
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(28, "No space left on device"),
            1,
            "error: cannot write the output: No space left on device",
        ),
    ],
)
def test_an_output_that_fails_ends_without_a_traceback(
    problem: BaseException, status: int, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def echo(*args: object, **options: object) -> None:
        raise problem

    monkeypatch.setattr("wscc.cli.inspect.click.echo", echo)
    monkeypatch.setattr("wscc.cli.say", lambda message: print(message, file=sys.stderr))
    monkeypatch.setattr("wscc.cli._forget_output", lambda: None)
    assert main(["passes"]) == status
    assert capsys.readouterr().err.strip() == words


def test_what_is_printed_into_a_closed_pipe_or_a_full_device(tmp_path: Path) -> None:
    start = f"{sys.executable} -m wscc passes"
    closed = subprocess.run(
        ["bash", "-c", f"{start} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (closed.stdout.split(), closed.stderr) == (["0"], "")
    if Path("/dev/full").exists():
        full = subprocess.run(["bash", "-c", f"{start} > /dev/full"], capture_output=True, text=True)
        assert (full.returncode, full.stderr.count("\n")) == (1, 1)
        assert "cannot write the output" in full.stderr


def test_fmt_writes_or_says_why_not(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(model).read_text()
    Path(model).write_text(text.replace("\n\n", "\n"))
    assert main(["fmt", "--write", model]) == 0
    assert capsys.readouterr().out == ""

    def refused(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refused)
    assert main(["fmt", "--write", model]) == 1
    assert f"cannot write `{model}`: permission denied" in capsys.readouterr().err


def test_overrides_do_not_apply_to_an_artifact(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    main(["compile", model, "-o", out, *SMALL])
    assert main(["run", out, "--dtype", "f64"]) == 2
    assert "compiled already" in capsys.readouterr().err


def test_passes_and_explain_and_fmt(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PASSES)
    assert main(["passes", "place"]) == 0
    assert "Before" in capsys.readouterr().out
    assert main(["explain", "W201"]) == 0
    assert "Example" in capsys.readouterr().out
    assert main(["fmt", model]) == 0
    assert capsys.readouterr().out == Path(model).read_text()


def test_what_is_not_there_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (
        ["run", str(tmp_path / "no")],
        ["run", str(tmp_path)],
        ["compile", str(tmp_path)],
        ["opt", "no.wir"],
    ):
        assert main(args) == 1
        assert "error[W" in capsys.readouterr().err
    assert main(["explain", "W999"]) != 0
    assert main(["passes", "plaec"]) == 2
    assert "plaec" in capsys.readouterr().err


def test_a_preset_taken_as_it_is_can_be_changed_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["compile", str(SAMPLES / "gpt2-small.wsl"), "--set", "wafer.mesh=4x4", "--dead", "die:3,3"]
    assert main([*args, "--set", "model.layers=1", "--parallel", "dp=2,tatp=4", "--emit", "sharded"]) == 0
    assert "4 x 4" in capsys.readouterr().out.replace("rows=4 cols=4", "4 x 4")


def test_opt_says_where_a_module_stands(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pass too early, and one too often, are named; nothing is run on what it does not expect."""
    out = tmp_path / "out"
    main(["compile", model, "-o", str(out), *SMALL])
    graph = str(out / "graph.wir")
    for passes, words in (
        ("partition", "`partition` needs a module that is differentiated"),
        ("differentiate,partition,stages,place,place", "`place` runs once"),
        ("differentiate,route", "`route` needs"),
    ):
        assert main(["opt", graph, "--passes", passes]) == 1
        assert words in capsys.readouterr().err
