"""Parameter groups when programs run: what is frozen stays, to the last bit; `verify` knows whose rates are whose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import chain

import numpy as np
import pytest

from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt
from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter.kernels.table import SEMANTICS
from wscc.driver.train import RunOptions, Trainer, initial_parameters
from wscc.equivalence import check_semantics
from wscc.ir.array import Kind
from wscc.ir.streams.program import Instruction
from wscc.ir.train import Rates

FROZEN = "wte"


@cache
def grouped() -> Artifact:
    """A GPT on two stages whose table, which both hold, is frozen, and whose weights of rank 1 do not decay."""
    graph = gpt({"pp": 2}, Shape(batch=4, layers=2))
    optimizer = replace(graph.train.optimizer, weight_decay=0.1)

    def rates(name: str, rank: int) -> Rates:
        return Rates(0.0, 0.1) if name == FROZEN else Rates(optimizer.lr, 0.1 if rank > 1 else 0.0)

    arrays = tuple(
        replace(a, rates=rates(a.name, len(a.type.shape))) if a.kind is Kind.PARAM else a
        for a in graph.arrays
    )
    return artifact_of(graph.with_(arrays=arrays, train=replace(graph.train, optimizer=optimizer)))


def with_decays(change: dict[float, float], only: int | None = None) -> Artifact:
    """The program with other decays in its updates; in that of one number, if it is given."""
    artifact, number = grouped(), 0

    def changed(x: Instruction) -> Instruction:
        nonlocal number
        if x.opcode != "adamw":
            return x
        number += 1
        decay = dict(x.attrs)["weight_decay"]
        if only is not None and number != only:
            return x
        return replace(
            x, attrs=tuple((n, change.get(decay, v) if n == "weight_decay" else v) for n, v in x.attrs)
        )

    programs = tuple(
        replace(p, procedures=tuple(replace(c, body=tuple(map(changed, c.body))) for c in p.procedures))
        for p in artifact.streams.programs
    )
    return replace(artifact, streams=replace(artifact.streams, programs=programs))


def test_a_frozen_parameter_stays_to_the_last_bit_and_others_do_not() -> None:
    trainer = Trainer(grouped(), RunOptions(steps=2, threads=1))
    list(trainer.steps())
    before, after = initial_parameters(trainer.graph, trainer.seed), trainer.arrays(Kind.PARAM)
    assert [n for n in before if before[n].tobytes() == after[n].tobytes()] == [FROZEN]
    assert trainer.gradients()[FROZEN].any()


@pytest.mark.parametrize("opcode", ["adamw", "sgd"])
def test_a_rate_of_zero_leaves_signs_of_zero_whatever_the_gradient(opcode: str) -> None:
    w = np.array([-0.0, 0.0, 5e-324, 1.0])
    g = np.array([1.0, -1.0, np.inf, np.nan])
    out, state = np.empty(4), [np.zeros(4) for _ in range(4 * (opcode == "adamw"))]
    half = len(state) // 2
    operands = [out, *state[:half], w, *state[half:], g, np.array(1.0), np.array(1, np.int32)]
    own = (0.9, 0.95, 1e-8, 0.1) if opcode == "adamw" else ()
    with np.errstate(all="ignore"):
        SEMANTICS[opcode](*operands, 0.0, *own, 0.0, 0, 0, 0.0)
    assert out.tobytes() == w.tobytes()


def test_the_verifier_knows_whose_rates_are_whose() -> None:
    assert check_semantics(grouped()).findings == ()
    unknown = check_semantics(with_decays({0.1: 0.09, 0.0: 0.09}, only=3)).findings
    assert any("`adamw` has weight_decay=0.09, and the graph" in f.message for f in unknown)
    # Rates that the graph has, but for other parameters: what should not decay does, and the other way round.
    found = [check_semantics(with_decays({0.1: 0.0, 0.0: 0.1}, only=n)).findings for n in (1, 2, 3, 4)]
    assert all(found)
    assert sum("after 2 steps differs from one device" in f.message for f in chain(*found)) >= 3
