"""Models and wafers built in Python are the programs that their printed text is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import wscc
from tests.support.paths import ROOT
from tests.support.python_models import gpt_tiny, llama_tiny, tray
from wscc import nn
from wscc.files import read_source
from wscc.frontend.elaborate import elaborate
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve


def small(**settings: object) -> wscc.Train:
    m = wscc.Model("small", d=8, vocab=16, seq=4)
    tokens, labels = (m.input(name, m.batch, m.seq) for name in ("tokens", "labels"))
    mlp = wscc.Block("mlp", "x", d=None, f=16)
    w = mlp.param("w", (mlp.d, mlp.f), wscc.normal(0.1))
    v = mlp.param("v", (mlp.f, mlp.d), wscc.normal(0.1))
    mlp.returns(nn.relu(mlp.tensor("x") @ w) @ v * 0.5)
    wte = m.param("wte", (m.vocab, m.d), wscc.normal(0.1))
    x = m.let("x", nn.embedding(tokens, wte))
    x = m.let("x", x - -(mlp(x, m.d) + mlp(x, m.d, f=8)))
    m.loss(nn.cross_entropy(x @ nn.transpose(wte), labels))
    defaults = {
        "batch": 2,
        "microbatch": 2,
        "optimizer": wscc.sgd(lr=0.1),
        "dtype": "f64",
        "parallel": "tp=2",
        **settings,
    }
    return wscc.Train(m, wscc.Wafer("two", mesh=(1, 2), preset="temp-4x8"), **defaults)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("built", "sample"), [(gpt_tiny, "gpt-tiny"), (llama_tiny, "llama-tiny")], ids=["gpt", "llama"]
)
def test_a_sample_built_in_python_is_the_program_of_its_file(
    built: Callable[[], wscc.Train], sample: str
) -> None:
    """The forward module decides everything behind it; spans and the path of the data apart."""
    of_file = elaborate(resolve(parse(read_source(str(ROOT / "samples" / f"{sample}.wsl")))))
    of_python = elaborate(resolve(parse(built().source)))
    train = of_python.train
    assert of_python.with_(train=of_file.train) == of_file
    assert (train.optimizer, train.microbatches, train.compute) == (
        of_file.train.optimizer, of_file.train.microbatches, of_file.train.compute,
    )  # fmt: skip


def test_layers_of_stages_are_a_list_of_numbers() -> None:
    assert "\n  stages 0 2\n" in small(parallel={"pp": 2}, stages=[0, 2]).to_wsl()


@pytest.mark.parametrize("built", [gpt_tiny, llama_tiny, small])
def test_what_is_printed_is_canonical(built: Callable[[], wscc.Train]) -> None:
    text = built().to_wsl()
    assert fmt(parse(built().source)) == text


def test_the_text_compiles_to_the_same_artifact(tmp_path: Path) -> None:
    built = small()
    path = tmp_path / "small.wsl"
    path.write_text(built.to_wsl())
    wscc.compile(built).save(tmp_path / "a")
    wscc.compile(path).save(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        if file.name != "report.json":
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_a_model_with_blocks_runs_like_one_device() -> None:
    check = wscc.compile(small()).run(2, check=True).check
    assert check is not None
    assert check.ok


def test_a_shape_mistake_shows_the_printed_line() -> None:
    m = wscc.Model("bad", d=8)
    tokens, labels = (m.input(name, m.batch, 4) for name in ("tokens", "labels"))
    x = nn.embedding(tokens, m.param("table", (16, m.d)))
    m.loss(nn.cross_entropy(x @ m.param("w", (9, 16)), labels))
    with pytest.raises(wscc.CompileError) as caught:
        wscc.compile(
            wscc.Train(
                m, tray(), batch=1, microbatch=1, optimizer="sgd(lr = 0.1)", dtype="f32", parallel="tp=1"
            )
        )
    assert caught.value.diagnostics[0].code == "W101"
    assert "loss cross_entropy(embedding(tokens, table) @ w, labels)" in str(caught.value)
    assert "bad.wsl" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda: wscc.Model("a b"), "W001"),
        (lambda: wscc.Model("m", d=float("nan")), "W005"),
        (lambda: wscc.Model("m", d=True), "W005"),
        (lambda: list(wscc.Model("m", d=1).d), "W103"),
        (lambda: small(bach=2), ""),
        (lambda: small(optimizer="sgd(lr = "), "W001"),
        (lambda: tray(die={"hbm": "72 parsecs"}), ""),
        (lambda: tray(dead=[(1, 2, 3, 4)]), "W006"),
        (lambda: tray(dead=[3]), "W006"),
        (lambda: tray(mesh=3), "W006"),
        (lambda: tray(die=["hbm"]), "W006"),
        (lambda: wscc.Train(1, 2), "W006"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_while_building_is_named(wrong: Callable[[], object], code: str) -> None:
    with pytest.raises(wscc.CompileError) as caught:
        wrong()
    assert code in ("", caught.value.diagnostics[0].code)


def test_damage_of_a_wafer_is_printed() -> None:
    assert "dead die (1, 2)" in wscc.Train(wscc.Model("m"), tray(dead=[(1, 2), "link:0,0-0,1"])).to_wsl()
