"""Programs from Python: compile, load, run, simulate, verify, search, and what they return."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wscc
import wscc.api.names
from tests.support.paths import ROOT
from wscc.diagnostics import Source
from wscc.ir.text.parse import parse

GPT = ROOT / "samples" / "gpt-tiny.wsl"
SMALL = {
    "model.layers": 2,
    "model.d": 16,
    "model.seq": 8,
    "train.batch": "4",
    "train.microbatch": 2,
    "wafer.mesh": "1x2",
}


@pytest.fixture(scope="module")
def program() -> wscc.Program:
    return wscc.compile(GPT, SMALL, parallel={"tp": 2}, dtype="f32")


def test_a_program_runs_and_returns_arrays(program: wscc.Program) -> None:
    run = program.run(2, processes=1, check=True)
    assert run.losses.shape == (2,)
    assert run.check is not None
    assert run.check.ok
    assert run.weights["block.wup"].shape == run.gradients["block.wup"].shape == (2, 16, 64)
    assert run.weights.keys() == run.gradients.keys()
    assert "check" in repr(run)


def test_weights_and_tokens_go_in_as_arrays(program: wscc.Program) -> None:
    tokens = np.arange(64) % 50
    first = program.run(1, data=tokens, processes=1)
    again = program.run(1, data=bytes(tokens.astype(np.uint8)), processes=1)
    assert again.losses[0] == first.losses[0]
    later = program.run(1, data=tokens, weights={n: 0 * w for n, w in first.weights.items()}, processes=1)
    assert later.losses[0] == pytest.approx(np.log(256))
    changed = {**first.weights, "wte": first.weights["wte"][:, :3]}
    with pytest.raises(wscc.CompileError, match=r"W505.*`wte` is \[256, 3\], not \[256, 16\]"):
        program.run(weights=changed, processes=1)
    with pytest.raises(wscc.CompileError, match="`gf` is missing"):
        program.run(weights={n: w for n, w in first.weights.items() if n != "gf"}, processes=1)


def test_a_loaded_program_is_the_saved_one(program: wscc.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "out")
    loaded = wscc.load(tmp_path / "out")
    assert repr(loaded) == repr(program)
    assert loaded.simulate().figures == program.simulate().figures
    assert dict(loaded.report) == dict(program.report)
    assert list(loaded.modules) == ["graph"]
    assert loaded.draw("load").svg == program.draw("load").svg


def test_a_simulation_says_what_bounds_it(program: wscc.Program) -> None:
    simulation = program.simulate(trace=True)
    assert simulation.seconds >= simulation.bound > 0
    assert simulation.figures.bound_seconds[simulation.bound_by] == simulation.bound
    assert '"traceEvents"' in simulation.trace
    assert "MFU" in repr(simulation)


def test_verification_compares_semantics(program: wscc.Program) -> None:
    verification = program.verify(semantics=True)
    assert verification
    assert verification.semantics
    assert "nothing is wrong" in repr(verification)


def test_modules_print_as_text_that_can_be_read(program: wscc.Program) -> None:
    placed = program.modules["place"]
    assert parse(Source("x.wir", str(placed))) == placed.module
    assert program.placement.dies == tuple(program.wafer.coordinate(d) for d in placed.module.dies)


def test_a_search_ranks_strategies() -> None:
    pins = {"recompute": "none", "zero": 0}
    ranking = wscc.search(GPT, SMALL | {"model.layers": 1}, pins=pins, budget=1, jobs=1)
    assert ranking.best.step_seconds == ranking.seconds >= ranking.bound_seconds
    assert ranking.best.strategy in repr(ranking)
    assert wscc.search is not sys.modules["wscc.search"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: wscc.compile(3),  # type: ignore[arg-type]
        lambda p: wscc.compile(GPT, ["model.layers=2"]),  # type: ignore[arg-type]
        lambda p: wscc.compile(GPT, {"model.layers": None}),
        lambda p: wscc.compile(GPT, {"model.layer": 2}),
        lambda p: wscc.compile(GPT, parallel=3),  # type: ignore[arg-type]
        lambda p: wscc.compile(GPT, parallel={"dp": "2"}),  # type: ignore[dict-item]
        lambda p: wscc.compile(GPT, level=4),
        lambda p: wscc.compile(GPT, mapper="best"),
        lambda p: wscc.compile(GPT, passes=[3]),  # type: ignore[list-item]
        lambda p: wscc.compile(GPT, passes=3),  # type: ignore[arg-type]
        lambda p: wscc.compile(GPT, dead=5),  # type: ignore[arg-type]
        lambda p: wscc.load(3),  # type: ignore[arg-type]
        lambda p: p.run(0),
        lambda p: p.run(1.5),
        lambda p: p.run(data=np.zeros((2, 2))),
        lambda p: p.run(data=np.array([-1, 2])),
        lambda p: p.run(data={"tokens": [[1, 2], [3]]}),
        lambda p: p.run(data={1: np.zeros(3)}),
        lambda p: p.run(validate_every=-1),
        lambda p: p.run(weights=3),
        lambda p: p.simulate("fast"),
        lambda p: p.draw("moon"),
        lambda p: wscc.search(GPT, budget=0),
    ],
)
def test_a_wrong_argument_is_a_named_error(program: wscc.Program, wrong: Any) -> None:
    with pytest.raises(wscc.UsageError) as caught:
        wrong(program)
    assert str(caught.value).startswith("error[W")


def test_everything_exported_says_what_it_is() -> None:
    assert {*wscc.api.names.__all__, "__version__"} == set(wscc.__all__) == set(dir(wscc))
    for name in set(wscc.__all__) - {"__version__"}:
        thing = getattr(wscc, name)
        doc = inspect.getdoc(thing) or ""
        assert doc, name
        if inspect.isfunction(thing):
            assert "Raises" in doc or "`CompileError`" in doc, name


def test_a_command_imports_what_it_needs_and_no_more() -> None:
    """Help shows no numbers; what compiles neither runs, simulates, searches nor holds a number in bf16."""
    code = """import sys, wscc.cli
assert not {"numpy", "wscc.files", "wscc.driver"} & set(sys.modules)
options = "--set wafer.mesh=1x1 --parallel tatp=1 --dtype bf16 --emit fabric"
wscc.cli.main(["compile", "docs/tour.wsl", *options.split()])
others = {"networkx", "ml_dtypes", "ortools.sat", "wscc.search", "wscc.driver.train", "wscc.backends.simulator"}
assert not others & set(sys.modules), others & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60)


def test_importing_the_package_imports_none_of_it() -> None:
    code = "import sys, wscc; assert not [m for m in sys.modules if m.startswith('wscc.')]; assert 'load' in dir(wscc)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
