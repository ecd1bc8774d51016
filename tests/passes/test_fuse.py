"""`fuse`: additions fold into the product before them, and no value changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.running import lowered, trained
from tests.support.models import Shape, gpt, llama, tensors
from wscc.ir.module import Module
from wscc.passes.differentiate import Differentiate
from wscc.passes.fuse import Fuse
from wscc.passes.partition import Partition


@settings(max_examples=3, deadline=None)
@given(
    family=st.sampled_from([gpt, llama]),
    degrees=st.sampled_from([{}, {"dp": 2}, {"tp": 2}, {"tatp": 2}, {"tatp": 4}, {"tp": 2, "tatp": 2}]),
    recompute=st.sampled_from(["none", "full"]),
)
def test_fusing_changes_no_bit(family: object, degrees: dict[str, int], recompute: str) -> None:
    module = family(degrees, Shape(batch=8), recompute=recompute)  # type: ignore[operator]
    data = tensors(module)
    plain, fused = (trained(lowered(module, fuse=f), data) for f in (False, True))
    for name, value in plain.items():
        assert fused[name].tobytes() == value.tobytes(), name


def kinds(module: Module, procedure: str) -> list[str]:
    return [s.kind for s in module.procedure(procedure).statements]


def test_every_bias_of_a_block_folds_on_one_device() -> None:
    module = Fuse().run(Partition().run(Differentiate().run(gpt({}))))
    assert kinds(module, "block.fwd").count("matmul_add") == 4
    assert "matmul" not in kinds(module, "block.fwd")


@pytest.mark.parametrize("procedure", ["block.fwd"])
def test_a_partial_product_is_left_alone(procedure: str) -> None:
    """Row-parallel products are partial: adding a bias on every die would count it twice."""
    module = Fuse().run(Partition().run(Differentiate().run(gpt({"tp": 2}, Shape(d=32, ffn=128, seq=16)))))
    ops = module.procedure(procedure).statements
    assert [op.kind for op in ops if op.results[0].type.layout and op.results[0].type.layout.partial] == [
        "matmul"
    ] * 2
    assert kinds(module, procedure).count("matmul_add") == 2
