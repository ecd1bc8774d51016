"""Sequences in zigzag: an order of the host's, equal work under a causal mask, chosen where it pays."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.end_to_end.test_equality import judged, reference
from tests.fuzz.compositions import FAMILIES, WAFERS, gemm_flops
from tests.support.case_programs import ATTENTION, Program
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt
from tests.support.verdict import EQUAL, verdict
from wscc.analysis.index_ranges import Coordinates
from wscc.backends.interpreter import host_io
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, Trainer
from wscc.ir.array import Kind
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.ir.zigzag import fits, order
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition

SHAPE = Shape(batch=4, calls=2, seq=16)


def test_shard_i_holds_pieces_i_and_its_mirror() -> None:
    assert order(12, 3) == [0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7]


@given(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 3))
def test_runs_are_the_order_shard_by_shard(shards: int, inner: int, piece: int) -> None:
    """Also where another axis cuts each shard further, and where the sequence was gathered."""
    size = 2 * shards * inner * piece
    assert fits(size, shards, inner)
    mesh = LogicalMesh((("z", shards), ("t", inner)))
    places = order(size, shards)
    for axes, folded in ((("z", "t"), ""), (("z",), ""), ((), "z")):
        runs = Coordinates(mesh, ("z",)).runs(axes, size, folded=folded)
        own = sum(r.size for r in runs)
        for die, block in enumerate(mesh.block(axes)):
            starts = [r.start if isinstance(r.start, int) else r.start[die] for r in runs]
            said = [s + i for s, r in zip(starts, runs, strict=True) for i in range(r.size)]
            assert said == places[block * own : (block + 1) * own]


def order_of(module: Module) -> tuple[str, ...]:
    return Partition().run(Differentiate().run(module)).zigzag


def test_it_is_chosen_where_it_pays() -> None:
    """Not where a piece of half a shard fills a tile no better than a shard, nor without a ring, nor for sequences
    that cannot be halved."""
    fine, coarse = WAFERS[1], WAFERS[128]
    assert order_of(gpt({"sp": 4}, SHAPE, wafer=fine)) == ("sp",)
    assert order_of(gpt({"sp": 4}, SHAPE, wafer=coarse)) == ()
    assert order_of(gpt({"tatp": 4}, replace(SHAPE, batch=8), wafer=fine)) == ()
    assert order_of(gpt({"sp": 3}, Shape(batch=4, seq=9), wafer=fine)) == ()


@pytest.mark.parametrize(("sp", "share"), [(2, Fraction(5, 8)), (4, Fraction(9, 16))])
def test_every_die_does_the_same_work_and_no_more(sp: int, share: Fraction) -> None:
    """(2 T + 1) / 4 T of attention on every die; in order, the last die alone does all of it.

    Of its seven products, two are done twice in f64."""
    zigzag, plain = (
        compile_graph(gpt({"sp": sp}, SHAPE, wafer=WAFERS[tile])).modules["plan_memory"] for tile in (1, 128)
    )
    s = SHAPE
    attention = 18 * s.layers * s.batch * s.seq * s.seq * s.d // sp
    rest = 6 * s.batch * s.seq * (s.layers * (4 * s.d * s.d + 2 * s.d * s.ffn) + s.vocab * s.d) // sp
    assert {gemm_flops(zigzag, die) for die in range(sp)} == {rest + attention * share}
    assert [gemm_flops(plain, die) for die in range(sp)] == [
        rest + attention * (die + 1) // sp for die in range(sp)
    ]


@pytest.mark.parametrize(
    ("family", "degrees", "zero"),
    [
        ("llama", {"sp": 4, "dp": 2}, 1), ("llama", {"sp": 2, "tatp": 2}, 3),
        ("gpt", {"pp": 2, "sp": 4}, 3), ("llama", {"sp": 2, "tp": 2}, 0),
    ],
    ids=str,
)  # fmt: skip
def test_the_order_changes_no_result(family: str, degrees: dict[str, int], zero: int) -> None:
    """Rotary positions, learned ones and labels find their tokens, and what replicas share out lies as it is; in
    checked mode against one device."""
    module = FAMILIES[family](degrees, SHAPE, wafer=WAFERS[1], recompute="full", zero=zero)
    assert order_of(module) == ("sp",)
    check = judged(module, reference(FAMILIES[family], SHAPE, "adamw"))
    assert check.ok, check


@pytest.mark.parametrize(
    ("family", "degrees", "recompute"),
    [
        ("gpt", {"tatp": 4}, "none"),
        ("llama", {"tp": 2, "tatp": 4}, "selective"), ("llama", {"dp": 2, "tatp": 4}, "full"),
    ],
    ids=str,
)  # fmt: skip
def test_weights_that_are_streamed_in_shards_lie_as_they_are(
    family: str, degrees: dict[str, int], recompute: str
) -> None:
    """The axis cuts positions and, at rest, weights: only positions are in zigzag, learned ones as well."""
    shape = replace(SHAPE, batch=4 * degrees.get("dp", 1))
    module = FAMILIES[family](degrees, shape, wafer=WAFERS[1], recompute=recompute)
    assert order_of(module) == ("tatp",)
    check = judged(module, reference(FAMILIES[family], shape, "adamw"))
    assert check.ok, check


@pytest.mark.parametrize(
    ("made", "degrees"),
    [("wpe", {"tatp": 4}), ("wpe + wpe", {"sp": 4}), ("gelu(wpe)", {"sp": 4}), ("gelu(wpe)", {"tatp": 4})],
    ids=str,
)
def test_what_is_made_of_learned_positions_finds_its_tokens(
    made: str, degrees: dict[str, int], tmp_path: Path
) -> None:
    """What it is, only its use tells: it may be cut in the order of the positions before."""
    p = Program(
        degrees=degrees, layer=ATTENTION.replace("{causal}", ", causal"), seq=16, micro=1, tile=1,
        more="param wpe : [seq, d] init normal(0.3)", head=f"(x + ({made})) @ transpose(wte)",
    )  # fmt: skip
    found = verdict(p.text, tmp_path, reported=False)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("degrees", [{"sp": 4}, {"tatp": 4}, {"dp": 2, "sp": 2, "zero": 1}], ids=str)
def test_learned_positions_lie_with_their_tokens(degrees: dict[str, int]) -> None:
    """The table, its gradient and its moments; other tables lie as they are, although the axis cuts them too."""
    zero = degrees.get("zero", 0)
    axes = {a: n for a, n in degrees.items() if a != "zero"}
    module = Partition().run(Differentiate().run(gpt(axes, SHAPE, wafer=WAFERS[1], zero=zero)))
    kinds = (Kind.PARAM, Kind.GRAD, Kind.STATE)
    ordered = {a.name: a.zigzag for a in module.arrays if a.kind in kinds and a.zigzag}
    assert {n: d for n, d in ordered.items() if not n.endswith(".partial")} == {
        "wpe": (0,), "wpe.grad": (0,), "wpe.m": (0,), "wpe.v": (0,),
    }  # fmt: skip


def test_the_host_reads_what_it_wrote_and_dies_hold_it_in_zigzag() -> None:
    artifact = artifact_of(gpt({"sp": 4}, SHAPE, wafer=WAFERS[1]))
    trainer = Trainer(artifact, RunOptions(threads=1))
    tokens = np.arange(2 * 16, dtype=np.int32).reshape(2, 16)
    host_io.write(trainer.machine, "tokens", (0,), tokens)
    assert (host_io.read(trainer.machine, "tokens", (0,)) == tokens).all()
    t = host_io.tensor(artifact.manifest, "tokens")
    ((_, address),) = host_io.addresses(t, (0,))
    held = trainer.machine.load(1, address, (2, 4), np.dtype(np.int32))
    assert held.tolist() == [[2, 3, 12, 13], [18, 19, 28, 29]]


def test_initial_weights_are_those_of_one_device() -> None:
    artifact = artifact_of(gpt({"sp": 4}, SHAPE, wafer=WAFERS[1]))
    alone = artifact_of(gpt({}, SHAPE, wafer=WAFERS[1]))
    both = [Trainer(a, RunOptions(threads=1)).arrays(Kind.PARAM)["wpe"] for a in (artifact, alone)]
    assert both[0].tobytes() == both[1].tobytes()


def test_pieces_of_a_single_position_see_themselves() -> None:
    """The last query of a piece is its first key too: a mask that hides one more than it must shows here."""
    shape = Shape(batch=4, calls=2, seq=8)
    module = gpt({"sp": 4}, shape, wafer=WAFERS[1])
    assert order_of(module) == ("sp",)
    check = judged(module, reference(gpt, shape, "adamw"))
    assert check.ok, check


@pytest.mark.parametrize(
    "layer",
    [ATTENTION.replace("{causal}", ", causal, alibi, window = 6"), "x = x + dropout(gelu(x), rate = 0.3)"],
    ids=["heads", "widths"],
)
def test_only_positions_are_in_zigzag_not_what_else_has_coordinates(layer: str, tmp_path: Path) -> None:
    """Slopes of heads and masks of widths are those of one device where the sequence lies in zigzag."""
    both = f"{ATTENTION.replace('{causal}', ', causal')}\n{layer}"
    found = verdict(
        Program(degrees={"sp": 2}, layer=both, seq=16, micro=1, tile=1).text, tmp_path, reported=False
    )
    assert found.what == EQUAL, found.why
