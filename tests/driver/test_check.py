"""The verdict of `wscc run --check`: right programs pass in all element types, and what is one rounding off does not.

`tests/fuzz/verdicts.py` draws more programs and more mistakes than the suite does.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.kinds import NAMES, Drawn, drawn
from tests.fuzz.narrow_buffers import with_narrow_buffers
from tests.fuzz.narrowings import narrowings
from tests.fuzz.verdicts import MISTAKES, Mistake, Program, artifact, check, narrowed, passes, roundings_in
from tests.support.compile_once import artifact_of_file
from tests.support.paths import CASES
from wscc.backends.artifact.files import Artifact
from wscc.backends.verify import verify_program
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


def test_a_right_program_with_an_absurd_learning_rate_passes() -> None:
    """Its logits are 1e13, and its loss falls again: nothing overflows on one device, so nothing does in its draws."""
    program = Drawn("graphs", "tatp=2", ("bf16", "bf16", "bf16"), ("train.optimizer=sgd(lr = 1e4)",))
    verdict = check(program.artifact(), steps=4, checked=True)
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
    mistakes = [m for m in roundings_in(made) if m.name.split()[2] not in EXACT]
    assert len(mistakes) > 12
    for mistake in mistakes:
        with mistake.made(made) as wrong:
            trainer = Trainer(wrong, RunOptions(threads=1, checked=True))
            with pytest.raises(CompileError, match="rounds more than once"):
                list(trainer.steps())


@pytest.mark.parametrize("kind", NAMES)
def test_a_narrower_program_is_refused_or_ends_its_checked_run(kind: str) -> None:
    """Of any kind of model, in drawn types: right it passes, and narrower in ways drawn from all it does not."""
    rng = random.Random(kind)
    assert not list(narrowed(drawn(rng, kind), rng, Counter(), steps=1, most=3))


def test_a_recomputed_sum_of_activations_allows_none_of_gradients() -> None:
    """The class token is taken again in the backward pass, in bf16, where gradients are summed in f32."""
    more = ("train.recompute=selective",)
    made = Drawn("images", "sp=2", ("bf16", "bf16", "f32"), more).artifact()
    narrow = dict(narrowings(made))["`y` of sum is stored in bf16 and summed"]
    assert passes(made, steps=1, checked=True)
    assert not passes(narrow(made), steps=1, checked=True)


def test_verify_finds_memory_that_is_narrower_than_its_numbers(mixed: Artifact) -> None:
    found = verify_program(with_narrow_buffers(mixed, ("softmax", 1))).findings
    assert any("`m` of `softmax` is bf16" in str(f) and "at least f32 there" in str(f) for f in found), found


# Numbers computed in one type have another one after a cast of the graph's own: data that are converted twice, the
# gradient of a parameter that nothing is summed for, one of parameters alone, a product of activations.
GRAPHS = {
    "weights of labels": """
  input shares : f32[batch, seq]
  param bias : [vocab] init normal(0.3)
  x = embedding(tokens, wte)
  loss cross_entropy(x @ transpose(wte) + bias, labels, shares)
""",
    "shaped as activations": """
  param wpe : [batch, seq, d] init normal(0.3)
  x = embedding(tokens, wte) + wpe
  loss cross_entropy(x @ transpose(wte), labels)
""",
    "parameters alone": """
  param a : [d, 2] init normal(0.3)
  param b : [2, d] init normal(0.3)
  x = embedding(tokens, wte)
  loss cross_entropy((x + x @ (a @ b)) @ transpose(wte), labels)
""",
}


@pytest.mark.parametrize("types", ["bf16, params bf16, grads f32", "f32, params f32, grads bf16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_what_a_graph_itself_converts_is_right_and_no_more_than_that(
    graph: str, types: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.wsl"
    model.write_text(SMALL.format(graph=GRAPHS[graph], types=types), encoding="utf-8")
    made = artifact_of_file(model)
    assert check(made, steps=2, checked=True).ok
    for name, narrow in random.Random(0).sample(narrowings(made), 6):
        assert not passes(narrow(made), steps=1, checked=True), name


SMALL = """
wafer w {{
  mesh 1 x 2
  die {{ peak 1 TFLOP/s, sram 80 MB }}
  link {{ bandwidth 1 TB/s, latency 100 ns }}
}}
model m(d = 8, vocab = 16, seq = 8) {{
  input tokens : i32[batch, seq]  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  {graph}
}}
train m on w {{
  batch 2  microbatch 2
  optimizer sgd(lr = 1e-2)
  dtype compute {types}
  parallel sp = 2
}}
"""
