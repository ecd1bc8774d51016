"""The verdict of `wscc run --check`: right programs pass in all element types, and what is one rounding off does not.

`tests/fuzz/verdicts.py` draws more programs and more mistakes than the suite does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.verdicts import MISTAKES, Mistake, Program, artifact, check, roundings_in
from tests.support.compile_once import artifact_of_file
from tests.support.paths import CASES
from wscc.backends.artifact.files import Artifact
from wscc.diagnostics import CompileError
from wscc.driver.train import RunOptions, Trainer, run

# Params and gradients coarser and wider than compute, in each kind of sum over dies and micro-batches.
RIGHT = [
    Program("llama", "dp = 1", "f32", "f32", "bf16", calls=2),
    Program("gpt", "dp = 2", "f32", "bf16", "f32", "sgd(lr = 1e-2)", more="zero 3"),
    Program("llama", "tatp = 2", "f64", "f32", "bf16", more="clip 0.5"),
    Program("gpt", "tp = 2", "f64", "bf16", "f64", recompute="full"),
    Program("llama", "pp = 2", "bf16", "bf16", "bf16", calls=2),
    Program("gpt", "sp = 4", "bf16", "f64", "f32", more="clip 1.0"),
]


@pytest.mark.parametrize("program", RIGHT, ids=str)
def test_right_programs_pass_in_any_types(program: Program, tmp_path: Path) -> None:
    verdict = check(artifact(program, tmp_path), steps=2, checked=True)
    assert verdict.ok, verdict


@pytest.mark.parametrize(("params", "grads"), [("bf16", "f32"), ("f32", "f32"), ("bf16", "f64")])
def test_gradients_of_weights_that_are_read_by_element_have_their_type_from_the_start(
    params: str, grads: str, tmp_path: Path
) -> None:
    """They used to be rounded to bf16 on the way, in norms to f32; where `params` is bf16 the compiler broke off.

    In f64 one product makes each: a sum of two numbers of f32 would have more bits as well.
    """
    text = (CASES / "read_by_element.wsl").read_text(encoding="utf-8")
    model = tmp_path / "model.wsl"
    text = text.replace("params bf16, grads f32", f"params {params}, grads {grads}")
    if grads == "f64":
        text = text.replace("batch 4", "batch 2").replace("parallel dp = 2,", "parallel")
    model.write_text(text, encoding="utf-8")
    outcome = run(artifact_of_file(model), RunOptions(steps=2), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """bf16 with weights and gradients in f32, as models are trained, on four dies."""
    program = Program("gpt", "dp = 2, tp = 2", "bf16", "f32", "f32", calls=2)
    return artifact(program, tmp_path_factory.mktemp("mixed"))


def test_one_loss_is_not_judged_by_chance(mixed: Artifact) -> None:
    """One number, which one device has exactly right in some seeds."""
    for seed in range(4):
        verdict = check(mixed, steps=1, seed=seed)
        assert verdict.ok, (seed, verdict)


@pytest.mark.parametrize("mistake", MISTAKES[:-1], ids=str)
def test_one_mistake_more_is_seen(mistake: Mistake, mixed: Artifact) -> None:
    assert mistake.applies("bf16", "f32", "f32")
    with mistake.made(mixed) as wrong:
        assert not check(wrong, steps=1).ok


# Their results are numbers of bf16, or powers of two.
EXACT = ("copy", "count", "fill", "maximum", "mean_bwd", "nll_bwd", "pick", "rowmax")


def test_one_rounding_more_inside_a_step_in_bf16_is_seen(tmp_path: Path) -> None:
    """Of anything in f32: scores, statistics that dies merge, sums over dies."""
    made = artifact(Program("gpt", "sp = 2, tp = 2", "bf16", "f32", "f32"), tmp_path)
    mistakes = [m for m in roundings_in(made) if m.rounding and m.name.split()[2] not in EXACT]
    assert len(mistakes) > 12
    for mistake in mistakes:
        with mistake.made(made) as wrong:
            trainer = Trainer(wrong, RunOptions(threads=1, checked=True))
            with pytest.raises(CompileError, match="rounds more than once"):
                list(trainer.steps())


def test_a_cast_to_bf16_and_back_is_seen_whatever_is_cast(tmp_path: Path) -> None:
    made = artifact(Program("llama", "tatp = 2", "f32", "bf16", "f32"), tmp_path)
    cast = [("gemm", 0), ("softmax", 1), ("nll", 0), ("cast", 0), ("swiglu_bwd", 1)]
    mistakes = [m for m in roundings_in(made) if m.casts in cast]
    assert len(mistakes) == len(cast)
    for mistake in mistakes:
        with mistake.made(made) as wrong:
            trainer = Trainer(wrong, RunOptions(threads=1, checked=True))
            with pytest.raises(CompileError, match="widens to f32 what is computed in bf16"):
                list(trainer.steps())


WEIGHTED = """
wafer w {
  mesh 1 x 2
  die { peak 1 TFLOP/s, sram 80 MB }
  link { bandwidth 1 TB/s, latency 100 ns }
}
model m(d = 8, vocab = 16, seq = 8) {
  input tokens : i32[batch, seq]  input labels : i32[batch, seq]  input shares : f32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  loss cross_entropy(embedding(tokens, wte) @ transpose(wte), labels, shares)
}
train m on w {
  batch 2  microbatch 2
  optimizer sgd(lr = 1e-2)
  dtype compute bf16, params f32, grads f32
  parallel sp = 2
}
"""


def test_a_model_that_rounds_numbers_and_widens_them_passes(tmp_path: Path) -> None:
    """The data are converted to bf16, and the weights of labels to the type of the loss."""
    model = tmp_path / "model.wsl"
    model.write_text(WEIGHTED, encoding="utf-8")
    assert check(artifact_of_file(model), steps=2, checked=True).ok
