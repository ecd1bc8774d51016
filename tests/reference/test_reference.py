"""The reference as a whole: tape, losses of small models and optimizer against independent numbers."""

from __future__ import annotations

import ast
from dataclasses import replace
from math import cos, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wscc.reference
from tests.support.models import Shape, gpt, llama, tensors
from wscc.diagnostics import CompileError
from wscc.ir.array import Array, Kind
from wscc.ir.builder import Builder
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.step import Affine, Call, Loop, Ref
from wscc.ir.train import LrSchedule, Optimizer, Train
from wscc.ir.types import DType, TensorType
from wscc.machine.wafer import Wafer
from wscc.reference import evaluate, train
from wscc.reference.optimizer import rate

FAMILIES = [gpt, llama]


def split(module: Module, data: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = {a.name for a in module.arrays if a.kind is Kind.INPUT}
    return {n: x for n, x in data.items() if n not in inputs}, {n: x for n, x in data.items() if n in inputs}


# ---- the tape


def product_chain(params: DType = DType.F64, training: Train | None = None) -> Module:
    """For each of two micro-batches: x = 1; x = x w[l] for both l, in place; loss += s x x. So the loss is
    2 s (w0 w1)^2."""
    scalar = TensorType((), params)
    b = Builder()
    one = b.one("fill", [], "->", dtypes=[params], attrs={"value": 1.0})
    start = Procedure("start", (), (Output(one),), tuple(b.ops))
    b = Builder()
    x, w = b.input("x", scalar), b.input("w", scalar)
    grow = Procedure("grow", (x, w), (Output(b.one("mul", [x, w], ", ->")),), tuple(b.ops))
    b = Builder()
    x, s = b.input("x", scalar), b.input("s", scalar)
    square = b.one("mul", [b.one("mul", [x, x], ", ->"), s], ", ->")
    end = Procedure("end", (x, s), (Output(square, Mode.ADD),), tuple(b.ops))
    arrays = (
        Array("w", scalar, Kind.PARAM, (2,)), Array("s", scalar, Kind.PARAM),
        Array("unused", scalar, Kind.PARAM), Array("x", scalar, Kind.CARRIED),
        Array("loss", scalar, Kind.SCALAR),
    )  # fmt: skip
    layer = Affine(0, (("l", 1),))
    step = Loop("mb", 2, (
        Call("start", (Ref("x"),)),
        Loop("l", 2, (Call("grow", (Ref("x"), Ref("w", (layer,)), Ref("x"))),)),
        Call("end", (Ref("x"), Ref("s"), Ref("loss"))),
    ))  # fmt: skip
    wafer = Wafer("w", 1, 1)
    training = training or Train(batch=2, microbatches=2, params=params, grads=params)
    return Module("chain", Level.GRAPH, (), training, wafer, arrays, (start, grow, end), (step,))


def test_an_element_written_in_place_keeps_its_histories_apart() -> None:
    params = {"w": np.array([3.0, 5.0]), "s": np.array(0.5), "unused": np.array(7.0)}
    step = evaluate(product_chain(), params, {})
    assert step.loss == 225
    assert step.grads["w"].tolist() == [2 * 0.5 * 2 * 15 * 5, 2 * 0.5 * 2 * 15 * 3]
    assert step.grads["s"] == 450
    assert "unused" not in step.grads
    assert step.norm == pytest.approx(sqrt(150**2 + 90**2 + 450**2))


def test_a_step_that_reads_what_no_call_wrote_is_named() -> None:
    module = gpt()
    params, inputs = split(module, tensors(module))
    for step in (module.step[-1:], ()):
        with pytest.raises(CompileError, match="which no call before has written"):
            evaluate(module.with_(step=step), params, inputs)


def test_a_missing_or_misshapen_tensor_is_named() -> None:
    with pytest.raises(ValueError, match="`w` must be"):
        evaluate(product_chain(), {"w": np.ones(3), "s": np.ones(()), "unused": np.ones(())}, {})
    with pytest.raises(ValueError, match=r"`s` must be .* missing"):
        evaluate(product_chain(), {"w": np.ones(2)}, {})


def test_bf16_values_are_rounded_after_every_op_and_sums_of_gradients_too() -> None:
    """In bf16 (8 bits) 1.5078125^2 = 2.2735 becomes 2.28125, and so on."""
    module = product_chain(DType.BF16)
    params = {"w": np.array([1.5078125, 1.5078125]), "s": np.array(1.0), "unused": np.array(0.0)}
    narrow, exact = evaluate(module, params, {}), evaluate(module, params, {}, DType.F64)
    assert narrow.loss == 2 * 5.21875  # 2.28125^2 = 5.2041, where bf16 has steps of 1/32
    assert exact.loss == pytest.approx(2 * 1.5078125**4, rel=1e-15)
    assert {g.dtype for g in narrow.grads.values()} == {DType.BF16.numpy}
    assert {g.dtype for g in exact.grads.values()} == {np.dtype(np.float64)}


# ---- models

SHAPES = st.builds(
    Shape,
    batch=st.sampled_from([2, 4]), calls=st.sampled_from([1, 2]), seq=st.sampled_from([1, 3, 5]),
    d=st.sampled_from([8, 16]), vocab=st.sampled_from([7, 12]), layers=st.sampled_from([1, 3]),
)  # fmt: skip


@settings(max_examples=2, deadline=None)
@given(family=st.sampled_from(FAMILIES), shape=SHAPES, seed=st.integers(0, 99))
def test_gradients_are_the_slopes_of_the_loss(family: object, shape: Shape, seed: int) -> None:
    module = family({}, shape)  # type: ignore[operator]
    params, inputs = split(module, tensors(module, seed))
    grads = evaluate(module, params, inputs).grads
    assert set(grads) == set(params)
    rng, h = np.random.default_rng(seed), 1e-4
    for name, value in params.items():
        direction = rng.normal(size=value.shape)
        direction /= np.linalg.norm(direction)
        f = {
            i: evaluate(module, {**params, name: value + i * h * direction}, inputs).loss
            for i in (-2, -1, 1, 2)
        }
        slope = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)  # error of order h^4
        derivative = float((grads[name] * direction).sum())
        assert derivative == pytest.approx(slope, rel=1e-6, abs=1e-9), name


def gpt_loss(p: dict[str, np.ndarray], tokens: np.ndarray, labels: np.ndarray) -> float:
    """The same GPT written straight down, one sequence at a time; softmax with no care for overflow."""

    def norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b

    total, seq = 0.0, tokens.shape[-1]
    for ids, targets in zip(tokens.reshape(-1, seq), labels.reshape(-1, seq), strict=True):
        x = p["wte"][ids] + p["wpe"]
        for layer in range(len(p["block.wqkv"])):
            w = {n.removeprefix("block."): a[layer] for n, a in p.items() if n.startswith("block.")}
            q, k, v = np.moveaxis(np.tensordot(norm(x, w["g1"], w["b1"]), w["wqkv"], 1) + w["bqkv"], 1, 0)
            heads = []
            for h in range(q.shape[1]):
                s = np.exp(q[:, h] @ k[:, h].T / sqrt(q.shape[-1])) * np.tri(seq)
                heads.append(s / s.sum(-1, keepdims=True) @ v[:, h])
            x = x + np.tensordot(np.stack(heads, 1), w["wo"], 2) + w["bo"]
            u = norm(x, w["g2"], w["b2"]) @ w["w1"] + w["c1"]
            u = 0.5 * u * (1 + np.tanh(sqrt(2 / pi) * (u + 0.044715 * u**3)))
            x = x + u @ w["w2"] + w["c2"]
        logits = norm(x, p["gf"], p["bf"]) @ p["wte"].T
        chosen = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        total += sum(-chosen[i, t] for i, t in enumerate(targets) if t != -100)
    return total / max(1, int((labels != -100).sum()))


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_a_gpt_is_that_of_one_written_straight_down(seed: int) -> None:
    module = gpt()
    params, inputs = split(module, tensors(module, seed))
    want = gpt_loss(params, inputs["tokens"], inputs["labels"])
    assert evaluate(module, params, inputs).loss == pytest.approx(want, rel=1e-13)


@pytest.mark.parametrize("family", FAMILIES)
def test_micro_batches_add_up_to_the_batch(family: object) -> None:
    one, four = (family({}, Shape(batch=4, calls=n)) for n in (1, 4))  # type: ignore[operator]
    params, inputs = split(one, tensors(one))
    whole = evaluate(one, params, inputs)
    parts = evaluate(four, params, {n: x.reshape(4, 1, -1) for n, x in inputs.items()})
    assert parts.loss == pytest.approx(whole.loss, rel=1e-13)
    for name, grad in whole.grads.items():
        assert np.allclose(parts.grads[name], grad, rtol=1e-10, atol=1e-14), name


@pytest.mark.parametrize("family", FAMILIES)
def test_without_valid_labels_loss_and_gradients_are_zero(family: object) -> None:
    module = family()  # type: ignore[operator]
    params, inputs = split(module, tensors(module))
    step = evaluate(module, params, {**inputs, "labels": np.full_like(inputs["labels"], -100)})
    assert step.loss == step.norm == 0.0


def test_f32_runs_near_f64() -> None:
    module = gpt(dtype=DType.F32)
    params, inputs = split(module, tensors(module))
    single, double = evaluate(module, params, inputs), evaluate(module, params, inputs, DType.F64)
    assert single.loss == pytest.approx(double.loss, rel=1e-6)
    assert single.loss != double.loss
    assert {g.dtype for g in single.grads.values()} == {np.dtype(np.float32)}


# ---- the optimizer


def test_two_steps_of_adamw_by_hand() -> None:
    """The gradients of 2 s (w0 w1)^2 put through the published update, number by number."""
    o = Optimizer("adamw", lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.2)
    module = product_chain(training=Train(2, 2, o, LrSchedule(warmup=4), params=DType.F64, grads=DType.F64))
    w, m, v = [3.0, 5.0, 0.5], [0.0] * 3, [0.0] * 3
    params = {"w": np.array(w[:2]), "s": np.array(w[2]), "unused": np.array(7.0)}
    history = train(module, params, lambda step: {}, 2)
    losses = []
    for t in (1, 2):
        a, b, s = w
        losses.append(2 * s * (a * b) ** 2)
        for i, g in enumerate((4 * s * a * b * b, 4 * s * a * a * b, 2 * (a * b) ** 2)):
            m[i] = 0.8 * m[i] + 0.2 * g
            v[i] = 0.9 * v[i] + 0.1 * g * g
            lr = 0.1 * t / 4
            w[i] -= lr * 0.2 * w[i]
            w[i] -= lr * (m[i] / (1 - 0.8**t)) / (sqrt(v[i] / (1 - 0.9**t)) + 1e-3)
    assert history.losses == pytest.approx(losses, rel=1e-14)
    assert [*history.weights["w"], history.weights["s"]] == pytest.approx(w, rel=1e-14)
    assert history.weights["unused"] == 7.0
    assert history.first_grads["w"].tolist() == [150, 90]


def test_sgd_clips_the_global_norm() -> None:
    o = Optimizer("sgd", lr=0.1)
    plain = Train(2, 2, o, params=DType.F64, grads=DType.F64)
    params = {"w": np.array([3.0, 5.0]), "s": np.array(0.5), "unused": np.array(7.0)}
    free = train(product_chain(training=plain), params, lambda step: {}, 1)
    assert free.weights["w"].tolist() == [3 - 15, 5 - 9]
    clipped = train(product_chain(training=replace(plain, clip=2.0)), params, lambda step: {}, 1)
    moved = [params[n] - clipped.weights[n] for n in ("w", "s")]
    length = sqrt(sum(float(np.square(d).sum()) for d in moved))
    assert length == pytest.approx(0.1 * 2.0, rel=1e-8)
    loose = train(product_chain(training=replace(plain, clip=1e6)), params, lambda step: {}, 1)
    assert loose.weights["w"].tolist() == free.weights["w"].tolist()


def test_the_learning_rate_warms_up_then_falls_as_half_a_cosine() -> None:
    plain, warm, whole = LrSchedule(), LrSchedule(warmup=4), LrSchedule(warmup=4, decay=12, floor=0.1)
    assert [rate(plain, t) for t in (1, 100)] == [1, 1]
    assert [rate(warm, t) for t in (1, 2, 4, 5, 900)] == [0.25, 0.5, 1, 1, 1]
    assert [rate(whole, t) for t in (2, 4)] == [0.5, 1]
    assert rate(whole, 8) == pytest.approx(0.1 + 0.9 * 0.5)
    assert rate(whole, 6) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + cos(pi / 4)))
    assert [rate(whole, t) for t in (12, 13, 1000)] == pytest.approx([0.1] * 3)
    none_left = LrSchedule(warmup=4, decay=4, floor=0.1)
    assert [rate(none_left, t) for t in (3, 4, 5)] == pytest.approx([0.75, 0.1, 0.1])


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_training_lowers_the_loss_of_a_repeated_batch(kind: str) -> None:
    module = gpt(optimizer=kind)
    params, inputs = split(module, tensors(module))
    steps: list[int] = []

    def batches(step: int) -> dict[str, np.ndarray]:
        steps.append(step)
        return inputs

    history = train(module, params, batches, 5)
    assert steps == [0, 1, 2, 3, 4]
    assert list(history.losses) == sorted(history.losses, reverse=True)
    again = train(module, params, lambda step: inputs, 5)
    assert again.losses == history.losses


def test_the_reference_shares_nothing_with_what_it_judges() -> None:
    for path in Path(wscc.reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wscc"):
                allowed = ("wscc.diagnostics", "wscc.ir", "wscc.reference")
                assert (node.module or "").startswith(allowed), f"{path.name} imports {node.module}"
