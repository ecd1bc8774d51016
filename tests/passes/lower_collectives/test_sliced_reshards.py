"""`lower_collectives`: streams gather weights that ZeRO shares out, and reduce their gradients, slice by slice."""

from __future__ import annotations

import re
import sys
from math import prod

import pytest

from tests.oracles.running import distance, lowered, trained
from tests.support.models import Shape, gpt, llama, tensors
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, at
from wscc.machine.wafer import Die, Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition

SHAPE = Shape(calls=1, layers=1)
# Positions of 8 logical dies on a 2 x 4 wafer: neighbours in rings, and far apart.
ORDERS = ((0, 1, 2, 3, 7, 6, 5, 4), (0, 3, 6, 1, 4, 7, 2, 5))


def program(family: str, degrees: dict[str, int], sram: int, tile: int = 1, shape: Shape = SHAPE) -> Module:
    wafer = Wafer("w", 2, 4, Die(sram=sram, hbm_bandwidth=10**9, tile=tile))
    return {"gpt": gpt, "llama": llama}[family](degrees, shape, wafer=wafer, zero=3)


def whole_weights(module: Module) -> dict[str, int]:
    """Elements on a die of each value that a gather over replicas gives, or a reduce_scatter over them takes."""
    sharded = Partition().run(Differentiate().run(module))
    return {
        v.name: prod(v.type.local_shape(sharded.sizes))
        for p in sharded.procedures
        for s in p.statements
        for v in (*s.operands, *s.results)
        if s.kind in ("all_gather", "reduce_scatter") and len(v.type.shape) > 1
    }


@pytest.mark.parametrize(
    ("family", "degrees", "sram", "tile", "dies"),
    [
        ("llama", {"sp": 4, "tatp": 2}, 8_000, 1, ORDERS[0]),
        ("llama", {"sp": 2, "tatp": 4}, 3_000, 1, ORDERS[1]),
        ("llama", {"dp": 2, "sp": 2, "tatp": 2}, 2_000, 3, ORDERS[0]),
        ("gpt", {"dp": 4, "tatp": 2}, 3_000, 3, ORDERS[1]),
        ("gpt", {"sp": 2, "tp": 2, "tatp": 2}, 1_500, 1, ORDERS[0]),
    ],
)
def test_slices_give_what_the_whole_gives(
    family: str, degrees: dict[str, int], sram: int, tile: int, dies: tuple[int, ...]
) -> None:
    """Any number of slices, across and along what is gathered: losses, gradients and weights of two steps.

    Within 1e-10: AdamW makes much of the noise in the gradient of a bias of keys, which is zero.
    """
    whole, cut = program(family, degrees, 10**9), program(family, degrees, sram, tile)
    data = tensors(whole)
    error, name = distance(trained(lowered(cut, dies=dies), data), trained(lowered(whole, dies=dies), data))
    assert error < 1e-10, name


@pytest.mark.parametrize("degrees", [{"sp": 4, "tatp": 2}, {"dp": 4, "tatp": 2}])
def test_no_die_holds_all_of_a_weight_that_it_streams(degrees: dict[str, int]) -> None:
    """Those of the feed-forward network have 16 x 32 elements, 256 on a die of a ring of two, gathered over four."""
    module = program("llama", degrees, 8_000)
    whole = {name for name, elements in whole_weights(module).items() if elements == 256}
    blocks = [p for p in lowered(module).procedures if p.name.startswith("block.")]
    parts = [
        b for p in blocks for b in p.buffers if re.sub(r"\.\d+$", "", b.name) in whole | {"wu.sp", "wu.dp"}
    ]
    assert parts
    assert max(b.elements for b in parts) < 256


def test_a_slice_is_gathered_while_the_one_before_it_is_worked_on() -> None:
    """Between the first and the last message of each slice but the first stands a product with the slice before."""
    module = lowered(program("llama", {"sp": 4, "tatp": 2}, 8_000), allgather="ring")
    body = module.procedure("block.fwd").body
    messages: dict[str, list[int]] = {}
    for i, s in enumerate(body):
        if isinstance(s, Transfer) and s.group.startswith("wu.sp"):
            messages.setdefault(s.group, []).append(i)
    products = [i for i, s in enumerate(body) if isinstance(s, Kernel) and s.opcode == "gemm"]
    first, *others = messages.values()
    assert len(others) >= 2
    assert not any(first[0] < i < first[-1] for i in products)
    assert all(any(at[0] < i < at[-1] for i in products) for at in others)


@pytest.mark.parametrize("axis", ["sp", "dp"])
@pytest.mark.parametrize(
    ("family", "procedure", "sliced"),
    [
        ("llama", "block.fwd", r"w[gu]"),
        ("gpt", "block.bwd", r"wo|d\.gelu\.1|d\.layernorm\.1\.1"),
    ],
)
def test_every_die_gives_a_part_of_each_slice(
    axis: str, family: str, procedure: str, sliced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are cut along `tatp` in one dimension, along replicas in another, and in slices not along that one: none
    is one die's own, which all others would wait for. Blocks of chains are cut along what chains share."""
    lowering = sys.modules["wscc.passes.lower_collectives"]
    monkeypatch.setattr(lowering, "losing_least", lambda choices, *_: choices[0]())
    senders: dict[str, set[int]] = {}
    for s in lowered(program(family, {axis: 4, "tatp": 2}, 8_000)).procedure(procedure).body:
        if isinstance(s, Transfer) and re.match(rf"({sliced})\.{axis}\.\d", s.group):
            sending = {die for die in range(8) if at(s.to, die) != NOBODY}
            senders.setdefault(s.group, set()).update(sending)
    assert len(senders) >= 4
    assert all(dies == set(range(8)) for dies in senders.values())


def test_streams_go_along_the_axis_that_is_for_them() -> None:
    """What is gathered or reduced along replicas besides stands apart from the op, in whatever order dimensions are."""
    module = Partition().run(Differentiate().run(program("llama", {"sp": 4, "tatp": 2}, 10**9)))
    streams = [op.stream.axis for p in module.procedures for op in p.ops if op.kind == "matmul" and op.stream]
    assert len(streams) >= 12
    assert set(streams) == {"tatp"}
