"""A bounded part of `make fuzz`: random models, wafers and strategies are equal to one device, or refused as
foreseen; and the parts of the fuzzer itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.draw import AXES, Draw, Line, Part, drawn
from tests.fuzz.hints import attempt
from tests.fuzz.hints import faults as untrue_helps
from tests.fuzz.hunt import any_draw, hunt
from tests.fuzz.searched import proposed
from tests.fuzz.shrink import shrunk
from tests.oracles.predicate import Expected, expected
from tests.support.verdict import DIFFERENT, EQUAL, MASKS, Mask, faults, trained, verdict
from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter.kernels import table as kernels
from wscc.driver.check import StepResult
from wscc.driver.compile import compile_file
from wscc.driver.train import Trainer, initial_parameters
from wscc.host.compare import relative_errors
from wscc.ir.types import DType
from wscc.reference.training import train


def test_random_programs_are_equal_or_refused_as_foreseen() -> None:
    """Always the same draws; a compiler that refuses more than it must fails as one that computes wrongly."""
    summary = hunt(seed=2000, draws=4, shrink=False)
    assert not summary.failures, summary.failures[0]
    assert summary.counts[EQUAL] >= 0.7 * summary.draws, summary


def test_what_the_search_proposes_for_a_random_program_equals_one_device() -> None:
    """Always the same draw; each plan that was simulated compiles and verifies as well."""
    found = proposed(seed=3, draws=1)
    assert not found.faults, found.faults[0]
    assert found.plans >= 2


def test_draws_are_various() -> None:
    """Every axis, piece and option turns up, and most programs should be accepted."""
    draws = [any_draw(random.Random(seed)) for seed in range(300)]
    assert sum(not expected(d).codes for d in draws) >= 0.7 * len(draws)
    axes = {a for d in draws for a, _ in d.degrees}
    assert axes == set(AXES)
    codes = {c for seed in range(1500) for c in expected(drawn(random.Random(seed))).codes}
    assert codes == {"W101", "W201", "W202", "W301", "W302", "W401"}
    for name in (
        "dtype",
        "recompute",
        "zero",
        "interleave",
        "stages",
        "tile",
        "level",
        "mask",
        "pool",
        "optimizer",
        "is_tied",
    ):
        assert len({getattr(d, name) for d in draws}) >= 2, name
    assert any(sum(n > 1 for _, n in d.degrees) == 3 for d in draws)


@pytest.mark.parametrize("number", [67, 71, 76, 78])
def test_what_a_refusal_proposes_or_asks_for_is_true(number: int) -> None:
    """A few draws of `make fuzz-hints`: a word, pins of a search, an option of an op and a strategy."""
    counts = Counter[str]()
    assert not list(untrue_helps(attempt(random.Random(number)), counts))
    assert counts["proposals followed"] + counts["words followed"], "a draw with nothing to follow"


# ---- the predicate


PLAIN = Draw(rows=2, cols=4, parts=(Part(2, (Line("mlp"),)),))

MIXTURE = (Part(2, (Line("mixture"),)),)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"degrees": (("tp", 8),)}, set()),
        ({"degrees": (("tp", 3),)}, set()),  # 8 as 9
        ({"degrees": (("tp", 7),)}, {"W201"}),  # 8 as 14 would be too much
        ({"degrees": (("tp", 16),)}, {"W201", "W301"}),
        ({"degrees": (("dp", 3),), "extra": 1}, {"W201"}),
        ({"degrees": (("tatp", 8),), "seq": 3}, {"W201"}),
        ({"degrees": (("tatp", 8),), "seq": 8}, set()),
        ({"degrees": (("tatp", 4),), "d": 5, "f": 6, "vocab": 8}, {"W202"}),
        ({"degrees": (("dp", 8),), "dead_dies": frozenset({(0, 0)})}, {"W301"}),
        ({"degrees": (("dp", 4),), "dead_dies": frozenset({(0, 2), (1, 1), (1, 3)})}, {"W302"}),
        ({"degrees": (("tatp", 4),), "dead_dies": frozenset({(0, 0), (1, 1), (0, 2), (1, 3)})}, {"W302"}),
        ({"degrees": (("tatp", 5),), "rows": 3, "cols": 3, "seq": 5, "d": 5, "vocab": 5,
          "dead_dies": frozenset({(0, 0), (0, 2), (2, 0), (2, 2)})}, set()),  # no path: routed
        ({"degrees": (("ep", 2),), "micro": 2}, {"W201"}),  # no experts
        ({"degrees": (("ep", 2), ("tp", 2)), "micro": 2, "parts": MIXTURE}, set()),
        ({"degrees": (("ep", 2),), "micro": 2, "experts": 3, "parts": MIXTURE}, {"W201"}),
        ({"sram": 1000}, {"W401"}),
    ],
    ids=lambda v: " ".join(f"{k}={sorted(x) if isinstance(x, frozenset) else x}" for k, x in v.items())
    if isinstance(v, dict)
    else " ".join(sorted(v)),
)  # fmt: skip
def test_the_predicate_and_the_compiler_agree(
    changes: dict[str, object], codes: set[str], tmp_path: Path
) -> None:
    draw = replace(PLAIN, **changes)  # type: ignore[arg-type]
    assert expected(draw).codes == codes
    assert expected(draw).allows(verdict(draw.text, tmp_path).what)


def test_a_program_that_cannot_be_must_be_refused() -> None:
    assert not Expected(frozenset({"W301"})).allows(EQUAL)
    assert not Expected().allows("W201")
    assert not Expected(frozenset({"W301"})).allows("W201")
    assert not any(
        e.allows(w)
        for e in (Expected(), Expected(frozenset({"W401"}), True))
        for w in ("different", "KeyError")
    )


# ---- the verdict


@pytest.mark.parametrize("kind", ["losses", "grads", "weights"])
def test_a_program_that_is_a_little_wrong_is_different(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last loss, a gradient of the first step or a last weight, 1 + 1e-8 times what it should be."""

    def wrong(
        artifact: Artifact, mask: Mask, *, checked: bool, steps: int = 2
    ) -> tuple[Trainer, list[StepResult]]:
        trainer, done = trained(artifact, mask, checked=checked, steps=steps)
        if kind == "losses":
            done[-1] = replace(done[-1], loss=done[-1].loss * (1 + 1e-8))
        elif kind == "grads":
            done[0].grads["part0.v0"][1] *= 1 + 1e-8
        else:
            done[-1].weights["part0.v0"][1] *= 1 + 1e-8
        return trainer, done

    assert verdict(PLAIN.text, tmp_path, mask="uneven").what == EQUAL
    monkeypatch.setattr("tests.support.verdict.trained", wrong)
    assert verdict(PLAIN.text, tmp_path, mask="uneven").what == DIFFERENT


# A key's bias has an exactly zero gradient, and this `eps` divides its rounding noise by itself.
NOISY = replace(
    PLAIN, parts=(Part(1, (Line("mha"),)),), degrees=(("tp", 2),),
    optimizer="adamw(lr = 1e-2, beta1 = 0.8, eps = 1e-30, weight_decay = 0.1)", clip="clip 0.1",
    lr_schedule="lr_schedule warmup(2)",
)  # fmt: skip
# What follows the views in `kernels.SEMANTICS["adamw"]`, each wrong in its own way.
ADAMW = ("norm2", "t", "lr", "beta1", "beta2", "eps", "weight_decay", "clip", "warmup", "decay", "floor")
MISTAKES: dict[str, Callable[[Any], Any]] = {
    "norm2": lambda n: 4 * n,
    "t": lambda t: t + 1,
    "lr": lambda lr: lr * (1 + 1e-8),
    "beta1": lambda b: b * (1 + 1e-8),
    "beta2": lambda b: b * (1 + 1e-8),
    "eps": lambda eps: 1e-8,
    "weight_decay": lambda d: 0.0,
    "clip": lambda c: 0.0,
    "warmup": lambda w: 0,
}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("noisy") / "m.wsl"
    path.write_text(NOISY.text)
    return compile_file(str(path)).artifact


def test_what_a_step_makes_of_rounding_is_no_fault(noisy: Artifact) -> None:
    """Weights compared with those of a whole run on one device were off by their rate; in f64 by 2e-10 of a bias
    in models without norms, whose second step moves its gradients a thousand times as far as its weights."""
    trainer, done = trained(noisy, MASKS["none"], checked=True)
    assert not list(faults(trainer, done))
    alone = train(trainer.graph, initial_parameters(trainer.graph, 0), trainer.batches.batch, 2, DType.F64)
    assert max(relative_errors(done[1].weights, alone.weights).values()) > 1e-3


@pytest.mark.parametrize("scalar", MISTAKES)
def test_a_wrong_step_of_the_optimizer_is_a_fault(
    scalar: str, noisy: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, position = kernels.SEMANTICS["adamw"], ADAMW.index(scalar) - len(ADAMW)

    def wrong(*args: Any) -> None:
        changed = list(args)
        changed[position] = MISTAKES[scalar](changed[position])
        right(*changed)

    monkeypatch.setitem(kernels.SEMANTICS, "adamw", wrong)
    fault = next(faults(*trained(noisy, MASKS["none"], checked=False)), "")
    assert fault.startswith(("weight", "first moment", "second moment"))


# ---- making failures small


def test_what_is_not_needed_for_a_failure_goes_away() -> None:
    """Programs fail that hold a gate in a repeat and split by tp: all else becomes plain."""

    def fails(draw: Draw) -> bool:
        lines = [line.piece for part in draw.parts if part.layers for line in part.lines]
        return "gate" in lines and dict(draw.degrees).get("tp", 1) > 1

    seed = next(s for s in range(10_000) if fails(drawn(random.Random(s))))
    small = shrunk(drawn(random.Random(seed)), fails, tries=1000)
    assert small == Draw(parts=(Part(1, (Line("gate"),)),), degrees=(("tp", 2),))
