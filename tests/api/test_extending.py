"""Own passes and own ops, written outside the package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import wscc
from tests.support.paths import ROOT
from wscc.ir.module import Procedure
from wscc.ir.op import Op
from wscc.ir.rule import parse_rule
from wscc.ir.types import DType

GPT = ROOT / "samples" / "gpt-tiny.wsl"
SMALL = {
    "model.layers": 1,
    "model.d": 16,
    "model.seq": 8,
    "train.batch": 4,
    "train.microbatch": 2,
    "wafer.mesh": "2x2",
}

TANH: dict[str, Any] = {
    "forward": np.tanh,
    "backward": lambda x, dy: dy * (1 - np.tanh(x) ** 2),
    "reference": lambda x: 1 - 2 / (np.exp(2 * x) + 1),
    "reference_backward": lambda x, dy: dy / np.cosh(x) ** 2,
}


def model_with(call: str, folder: Path) -> Path:
    path = folder / "own.wsl"
    path.write_text(GPT.read_text().replace("gelu(h @ wup + bup)", call).replace('data "tiny-text.txt"', ""))
    return path


def passes_check(path: Path) -> bool:
    check = wscc.compile(path, SMALL, parallel="tp=2,tatp=2", dtype="f64").run(2, check=True).check
    assert check is not None
    return check.ok


def test_an_own_op_trains_like_one_device(tmp_path: Path) -> None:
    path = model_with("tanh(h @ wup + bup)", tmp_path)
    with wscc.registered_op("tanh", **TANH):
        assert passes_check(path)
    with pytest.raises(wscc.CompileError, match="`tanh`"):
        wscc.compile(path, SMALL, parallel="tp=1")


def test_an_own_op_has_options_operands_and_rows(tmp_path: Path) -> None:
    with wscc.registered_op(
        "gate", "a b", options={"gain": 2.0}, rows=True,
        forward=lambda a, b, gain: gain * a * b,
        backward=lambda a, b, dy, gain: (gain * dy * b, gain * dy * a),
        reference=lambda a, b, gain: a * (b * gain),
        reference_backward=lambda a, b, dy, gain: (dy * b * gain, dy * a * gain),
    ):  # fmt: skip
        assert passes_check(model_with("gate(h @ wup, h @ wup + bup, gain = 0.5)", tmp_path))


def test_workers_and_python_models_know_an_own_op() -> None:
    m = wscc.Model("own", d=8)
    tokens, labels = (m.input(name, m.batch, 4) for name in ("tokens", "labels"))
    wte = m.param("wte", (16, m.d), wscc.normal(0.5))
    x = m.let("x", wscc.nn.call("tanh", wscc.nn.embedding(tokens, wte)))
    m.loss(wscc.nn.cross_entropy(x @ wscc.nn.transpose(wte), labels))
    wafer = wscc.Wafer(mesh=(1, 2), preset="temp-4x8")
    given: dict[str, Any] = {"batch": 4, "microbatch": 2, "optimizer": wscc.sgd(lr=0.1), "dtype": "f32"}
    with wscc.registered_op("tanh", **TANH):
        program = wscc.compile(wscc.Train(m, wafer, parallel="dp=2", **given))
        assert (program.run(2, processes=2).losses == program.run(2, processes=1).losses).all()


def test_a_wrong_derivative_of_an_own_op_is_found(tmp_path: Path) -> None:
    with wscc.registered_op("tanh", **(TANH | {"backward": lambda x, dy: dy * (1 - np.tanh(x))})):
        assert not passes_check(model_with("tanh(h @ wup + bup)", tmp_path))


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("relu", {}, "in use"),
        ("gemm", {}, "in use"),
        ("adamw", {}, "in use"),
        ("causal", {}, "in use"),
        ("tan h", {}, "not a name"),
        ("tanh", {"reference": np.tanh}, "one function"),
        ("tanh", {"backward": None}, "no function"),
        ("tanh", {"forward": lambda x: x.sum()}, "gives shapes"),
        ("tanh", {"forward": lambda x, y: x}, "fails on arrays"),
        ("tanh", {"options": {"x": 1.0}}, "different names"),
        ("tanh", {"options": {"a": "b"}}, "must be a number"),
        ("tanh", {"options": ["a"]}, "must be a dict"),
        ("tanh", {"arguments": 3}, "must be a list"),
    ],
)
def test_an_op_that_is_not_whole_is_refused(name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(wscc.CompileError, match=says):
        wscc.register_op(name, **(TANH | changes))


@dataclass(frozen=True, slots=True)
class Turned(wscc.Pass):
    """Logical dies in reverse order."""

    name: ClassVar[str] = "turned"
    requires: ClassVar[frozenset[wscc.Fact]] = frozenset({wscc.Fact.PLACED})

    def run(self, module: wscc.Module) -> wscc.Module:
        return module.with_(dies=module.dies[::-1])


def test_an_own_pass_runs_in_its_place() -> None:
    program = wscc.compile(GPT, SMALL, parallel="tp=2", passes=[wscc.insert(Turned(), after="place")])
    names = list(program.modules)
    assert names[names.index("place") + 1] == "turned"
    placed = program.modules["place"].module.dies
    assert program.placement.dies == tuple(program.wafer.coordinate(d) for d in placed[::-1])
    check = program.run(1, check=True).check
    assert check is not None
    assert check.ok


@dataclass(frozen=True, slots=True)
class Coarse(wscc.Pass):
    """What each procedure computes first goes through bf16."""

    name: ClassVar[str] = "coarse"

    def run(self, module: wscc.Module) -> wscc.Module:
        return module.with_(procedures=tuple(map(self._coarse, module.procedures)))

    def _coarse(self, p: Procedure) -> Procedure:
        """With a conversion there and back behind the first matrix product."""
        at = next((i for i, op in enumerate(p.ops) if op.kind == "matmul"), -1)
        if at < 0:
            return p
        op = p.ops[at]
        (result,) = op.results
        wide, narrow = (replace(result, name=f"{result.name}.{n}") for n in ("wide", "narrow"))
        narrow = replace(narrow, type=replace(narrow.type, dtype=DType.BF16))
        term = " ".join("abcdefgh"[: len(result.type.shape)])
        there, back = (
            Op("cast", (x,), (y,), parse_rule(f"{term} -> {term}"))
            for x, y in ((wide, narrow), (narrow, result))
        )
        return replace(p, body=(*p.ops[:at], replace(op, results=(wide,)), there, back, *p.ops[at + 1 :]))


def test_an_own_pass_that_rounds_more_than_the_file_says_is_told() -> None:
    program = wscc.compile(GPT, SMALL, parallel="dp=1", passes=[wscc.insert(Coarse(), after="differentiate")])
    with pytest.raises(wscc.CompileError, match=r"W504.*no op of the graph does"):
        program.run(1, check=True)


def test_a_large_program_of_own_passes_is_not_compared_with_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an own pass did is not known when a program is verified: neither right nor wrong is said of it."""
    own, plain = (
        wscc.compile(GPT, SMALL, parallel="tp=2", passes=passes)
        for passes in ([wscc.insert(Turned(), after="place")], [])
    )
    assert own.verify(semantics=True).semantics.startswith("run in f64")
    monkeypatch.setattr("wscc.equivalence.fits", lambda streams: False)
    own.save(tmp_path / "own")
    for program in (own, wscc.load(tmp_path / "own")):
        with pytest.raises(wscc.CompileError, match=r"W003.*`turned`"):
            program.verify(semantics=True)
    assert plain.verify(semantics=True).semantics.startswith("too large to run")


@pytest.mark.parametrize(("after", "code"), [("plaec", "W006"), ("stages", "W603")])
def test_an_own_pass_in_a_place_where_it_cannot_be_is_named(after: str, code: str) -> None:
    with pytest.raises(wscc.CompileError, match=code):
        wscc.compile(GPT, SMALL, parallel="tp=2", passes=[wscc.insert(Turned(), after=after)])
