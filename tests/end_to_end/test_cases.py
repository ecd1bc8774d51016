"""Faults that users of other parallel-training systems reported, as tests of their whole kind.

Contract of each row: `EQ` the compiled program equals one device (loss, every gradient, weights after two steps);
`REF` compilation refuses with a named error; `EQ|REF` either, and never a third thing. Rows that need the sequence
or the pipeline axis are in the same tables, and run where the axis exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.running import distance, lowered, trained
from tests.passes.test_partition import random_choice
from tests.support.case_programs import ATTENTION, BIASED, EITHER, EQUAL, HAS_PP, HAS_SP, REFUSED, Program
from tests.support.compile_once import artifact_of_file
from tests.support.models import tensors
from tests.support.verdict import DIFFERENT, MASKS, Verdict, faults, verdict
from tests.support.verdict import trained as stepped
from wscc.diagnostics import Code, CompileError
from wscc.driver.check import StepResult
from wscc.driver.compile import load
from wscc.host.compare import relative_errors
from wscc.machine.wafer import Coordinate, Wafer
from wscc.passes.partition import Partition
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec, GroupKind

CAUSAL = ATTENTION.replace("{causal}", ", causal")
# What a user may be told of a model, strategy or wafer that does not fit; other codes are faults of wscc.
NAMED = {"W005", "W201", "W202", "W301", "W302", "W303"}


def holds(
    contract: str, program: Program, folder: Path, *, mask: str = "none", reported: bool = False
) -> Verdict:  # fmt: skip
    """The verdict, which keeps the contract."""
    found = verdict(program.text, folder, mask=mask, reported=reported)
    assert found.what != DIFFERENT, found.why
    assert not found.is_refusal or (found.what in NAMED and any(c.isdigit() for c in found.why)), found.why
    assert contract != EQUAL or not found.is_refusal, found.why
    assert contract != REFUSED or found.is_refusal
    return found


def by(*degrees: dict[str, int]) -> pytest.MarkDecorator:
    """Parametrized over the strategies whose axes exist."""
    exists = {"sp": HAS_SP, "pp": HAS_PP}
    here = [d for d in degrees if all(exists.get(a, True) for a in d)]
    return pytest.mark.parametrize(
        "degrees", here, ids=[" ".join(f"{a}{n}" for a, n in d.items()) for d in here]
    )


# ---- C1: layers that do not divide by the stages


# As 30 layers on 4 stages, 10 on 3: two stages have one more, or one has.
STAGES = [(10, 4, EQUAL), (7, 3, EQUAL), (7, 2, EQUAL), (3, 4, EITHER), (1, 2, EITHER)]
C1 = [(n, {"pp": pp}, c) for n, pp, c in STAGES if HAS_PP] + [(n, {"dp": 2}, EQUAL) for n in (7, 1)]


@pytest.mark.parametrize(("layers", "degrees", "contract"), C1)
def test_c1_every_layer_runs_and_is_counted(
    layers: int, degrees: dict[str, int], contract: str, tmp_path: Path
) -> None:
    """Each layer's gradients and weights are compared; parameters and FLOPs are those of all layers."""
    p = Program(degrees=degrees, layers=layers, batch=2 * prod(degrees.values()))
    found = holds(contract, p, tmp_path, reported=True)
    if not found.is_refusal:
        matrices = layers * 2 * p.d * p.f + p.vocab * p.d
        assert found.report["params"] == matrices + layers * p.d
        assert found.report["flops_per_step"] == 6 * p.batch * p.seq * matrices


# ---- C2, C3: sizes that do not divide


C2_DEGREES = [
    {"tp": 2}, {"tp": 4}, {"tp": 8}, {"tatp": 2}, {"tatp": 4}, {"tatp": 8}, {"tp": 2, "tatp": 2},
    {"tp": 2, "tatp": 4},
]  # fmt: skip
# An odd width everywhere; 1 where each axis is halved; 6 where an axis divides it and the two together do not.
C2 = [(5, d) for d in C2_DEGREES] + [(n, d) for n in (1, 6) for d in C2_DEGREES[0::3]] + [(6, C2_DEGREES[1])]


@pytest.mark.parametrize(("dim", "degrees"), C2, ids=str)
def test_c2_a_width_that_does_not_divide(dim: int, degrees: dict[str, int], tmp_path: Path) -> None:
    """The hidden width over one axis and over two at once. The other side of the matrices divides, so that the
    compiler has a way out; it must take it right."""
    seq = degrees.get("tatp", 1)
    holds(EITHER, Program(degrees=degrees, f=dim, layers=1, seq=seq, batch=1), tmp_path)


@by({"tp": 4}, {"tatp": 4}, {"tp": 2, "tatp": 2})
def test_c2_no_width_divides(degrees: dict[str, int], tmp_path: Path) -> None:
    """5 on 4 with no way out. This compiler makes equal parts only, neither [2,2,1,0] nor [2,1,1,1]: it says so."""
    p = Program(degrees=degrees, d=5, f=5, vocab=5, layers=1)
    assert "[5, 5]" in holds(REFUSED, p, tmp_path).why


@by({"tp": 2}, {"tp": 4}, {"tatp": 2})
def test_c3_only_the_contraction_divides_or_not(degrees: dict[str, int], tmp_path: Path) -> None:
    """(255, 130) x (130, 127): K = 130 is the only dimension that 2 divides, and 4 divides none: both get pads."""
    p = Program(
        degrees=degrees, d=130, layer="x = x + relu(x @ w1) @ w2", f=130, vocab=130, layers=1, batch=2, seq=2,
        more="param a : [d, 127] init normal(0.1)  param z : [127, vocab] init normal(0.3)",
        head="(x @ a) @ z",
    )  # fmt: skip
    holds(EQUAL, p, tmp_path)


# ---- C4: fewer heads of keys and values than the degree


C4 = [(8, 2, 4, EQUAL), (8, 1, 8, EQUAL), (8, 4, 8, EQUAL), (6, 3, 2, EITHER), (8, 3, 4, REFUSED)]


@pytest.mark.parametrize(("heads", "kv", "tp", "contract"), C4)
def test_c4_fewer_kv_heads_than_tp(heads: int, kv: int, tp: int, contract: str, tmp_path: Path) -> None:
    """Gradients of `wk` and `wv` show heads that are used twice or not at all; 8 heads in 3 groups are no model."""
    p = Program(degrees={"tp": tp}, layer=CAUSAL, heads=heads, kv=kv, layers=1, batch=2)
    found = holds(contract, p, tmp_path)
    assert contract != REFUSED or found.what == "W005"


# ---- C5, C12: one parameter in several places, sums of parts


@by({"tp": 2}, {"dp": 2, "tp": 2}, {"tatp": 2}, {"pp": 2}, {"pp": 3, "tp": 2}, {"pp": 4})
def test_c5_a_tied_embedding_is_one_parameter(degrees: dict[str, int], tmp_path: Path) -> None:
    """Copies are compared bit for bit after each step; the norm in the weight report counts it once."""
    n = prod(degrees.values())
    p = Program(degrees=degrees, layers=4, batch=2 * max(n, 2), micro=1)
    found = holds(EQUAL, p, tmp_path, reported=True)
    assert found.report["params"] == p.vocab * p.d + p.layers * (2 * p.d * p.f + p.d)


C12 = [
    {"dp": 4}, {"tp": 4}, {"tatp": 4}, {"tp": 2, "tatp": 2}, {"dp": 2, "tp": 2, "tatp": 2}, {"sp": 2},
    {"tp": 2, "sp": 2},
]  # fmt: skip


@by(*C12)
def test_c12_gains_biases_and_tables_get_whole_gradients(degrees: dict[str, int], tmp_path: Path) -> None:
    """Norms, biases, learned positions and both uses of the table, from one sequence per replica and call."""
    p = Program(
        degrees=degrees, layer=BIASED, batch=8, micro=1, more="param wpe : [seq, d] init normal(0.3)",
        head="(x + wpe) @ transpose(wte)",
    )  # fmt: skip
    holds(EQUAL, p, tmp_path, mask="uneven")


# ---- C6, C7, C8: gradients do not depend on how the batch is cut


def cuts(pp: int = 1) -> list[tuple[dict[str, int], int]]:
    """Every (strategy, micro-batch) that cuts 8 sequences."""
    stages = {"pp": pp} if pp > 1 else {}
    return [
        ({"dp": dp, **stages}, 8 // dp // calls)
        for dp in (1, 2, 4, 8)
        for calls in (1, 2, 4, 8)
        if dp * calls <= 8 and dp * pp <= 16
    ]


C6 = [cut for pp in ((1, 2) if HAS_PP else (1,)) for cut in cuts(pp)]


def test_c6_no_cut_of_the_batch_changes_the_gradient(tmp_path: Path) -> None:
    """Sequences with different numbers of valid labels; in the second, micro-batches without any. Gradients of
    all cuts are those of the first, which equals one device. Not clipped: a clipped gradient has no scale."""
    runs: dict[str, list[Sequence[StepResult]]] = {"uneven": [], "first half": []}
    for i, (degrees, micro) in enumerate(C6):
        p = Program(degrees=degrees, layers=2, batch=8, micro=micro, optimizer="sgd(lr = 0.1)", clip="")
        (tmp_path / "m.wsl").write_text(p.text)
        made = artifact_of_file(tmp_path / "m.wsl")
        for mask in ("uneven", "first half") if i % 2 == 0 else ("uneven",):
            trainer, steps = stepped(made, MASKS[mask], checked=True)
            assert not [*faults(trainer, steps)], (p, mask)
            runs[mask].append(steps)
    for first, *others in runs.values():
        for other in others:
            assert max(relative_errors(other[0].grads, first[0].grads).values()) < 1e-11
            for got, want in zip(other, first, strict=True):
                assert np.isclose(got.loss, want.loss, rtol=1e-12)


@by({"dp": 1}, {"dp": 2}, {"pp": 3})
def test_c7_micro_batches_that_do_not_divide_the_batch(degrees: dict[str, int], tmp_path: Path) -> None:
    """8 sequences in micro-batches of 3: weights 3/8 3/8 2/8, or a refusal that says 8 and 3."""
    found = holds(EITHER, Program(degrees=degrees, batch=8, micro=3, layers=3), tmp_path)
    assert not found.is_refusal or ("8" in found.why and "3" in found.why)


C8 = [({"dp": 8}, 1), ({"dp": 4, "tp": 2}, 1)]
C8 += [({"pp": 8}, 1), ({"pp": 4}, 2), ({"pp": 4}, 3)] if HAS_PP else []


@pytest.mark.parametrize(("degrees", "calls"), C8)
def test_c8_fewer_micro_batches_than_dies(degrees: dict[str, int], calls: int, tmp_path: Path) -> None:
    """Replicas (or stages) wait for nobody that has no work to send."""
    dp = degrees.get("dp", 1)
    holds(EQUAL, Program(degrees=degrees, layers=8, batch=dp * calls, micro=1), tmp_path)


# ---- C9: sequences that do not divide


@pytest.mark.parametrize("layer", [CAUSAL, ATTENTION], ids=["causal", "full"])
@pytest.mark.parametrize("seq", [7, 1, 8])
@by({"tatp": 2}, {"tatp": 4}, {"sp": 2}, {"sp": 4})
def test_c9_a_sequence_that_does_not_divide_by_the_ring(
    degrees: dict[str, int], seq: int, layer: str, tmp_path: Path
) -> None:
    """Rotary positions; one sequence per call, so that nothing else than the sequence can be split."""
    p = Program(degrees=degrees, layer=layer, layers=1, seq=seq, batch=2, micro=1)
    found = holds(EQUAL if seq == 8 else EITHER, p, tmp_path)
    assert not found.is_refusal or str(seq) in found.why


# ---- C10: vocabularies that do not divide


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("vocab", [257, 17, 5])
def test_c10_a_vocabulary_with_logits_far_below_zero(vocab: int, tp: int, tmp_path: Path) -> None:
    """A column too many with logit 0 beside others at -20 would be nearly all of the sum of exponentials. The
    gradients of the table and of the bias are compared, so none reaches a row that is not there."""
    more = "param head : [d, vocab] init normal(0.1)  param low : [vocab] init ones"
    p = Program(
        degrees={"tp": tp}, vocab=vocab, layers=1, batch=2, micro=1, seq=3, more=more,
        head="x @ head + low * (-20)",
    )  # fmt: skip
    assert (
        holds(EQUAL, p, tmp_path, mask="uneven", reported=True).report["params"]
        == (2 * p.d + 1) * vocab + 2 * p.d * p.f + p.d
    )


# ---- C11: meshes without a ring

C11: list[tuple[int, int, set[Coordinate], bool, bool]] = [
    (1, 8, set(), False, True), (1, 2, set(), True, True), (2, 2, set(), True, True), (2, 4, set(), True, True),
    (3, 4, set(), True, True), (4, 8, set(), True, True), (3, 3, set(), False, True), (5, 5, set(), False, True),
    (3, 3, {(0, 0)}, True, True), (3, 3, {(1, 1)}, True, True), (3, 3, {(0, 1)}, False, False),
    (5, 5, {(0, 1)}, False, False), (4, 4, {(0, 0)}, False, True), (4, 4, {(0, 0), (0, 3)}, True, True),
    (4, 4, {(0, 0), (3, 3)}, False, False), (4, 4, {(1, c) for c in range(4)}, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "cols", "dead", "ring", "path"), C11)
def test_c11_a_ring_where_there_is_one_else_a_path_else_a_refusal(
    rows: int, cols: int, dead: set[Coordinate], ring: bool, path: bool
) -> None:
    """One streaming group of all live dies. Two dies are a ring of one exchange, whatever a table of closed
    walks says. Consecutive dies of the answer are neighbours: a position in the ring is no die number."""
    wafer = Wafer("w", rows, cols, dead_dies=frozenset(dead))
    shape = (AxisSpec("tatp", wafer.live_dies, ring=True),)
    if not path:
        with pytest.raises(CompileError) as refused:
            place_on(wafer, shape)
        assert refused.value.diagnostics[0].code in (Code.NO_PATH, Code.DISCONNECTED)
        return
    placement = place_on(wafer, shape)
    assert sorted(map(wafer.coordinate, placement.dies)) == sorted({*np.ndindex(rows, cols)} - dead)
    steps = [*pairwise(placement.dies), *([(placement.dies[-1], placement.dies[0])] if ring else [])]
    assert all(wafer.joins(wafer.coordinate(a), wafer.coordinate(b)) for a, b in steps)
    assert placement.axis("tatp").kind is (GroupKind.RING if ring else GroupKind.PATH)


@pytest.mark.parametrize(("mesh", "tatp"), [("1 x 8", 8), ("3 x 3", 9), ("1 x 3", 3)])
def test_c11_without_a_ring_the_program_is_as_right(mesh: str, tatp: int, tmp_path: Path) -> None:
    p = Program(degrees={"tatp": tatp}, d=tatp, f=tatp, layers=1, seq=tatp, batch=2, micro=1, mesh=mesh)
    holds(EQUAL, p, tmp_path)


# ---- C13: operations that do not commute

OPS = ["a - m", "m - a", "a / z", "z / a", "a - m / z"]


def uncommuting(op: str, degrees: dict[str, int]) -> Program:
    """`m` is a product whose columns `tp` may split, `a` one whose rows it may, `z` positive and small."""
    layer = f"m = x @ w1  a = gelu(m) @ sq + c  z = c + m * m  x = x + ({op}) @ w2"
    more = "param c : [f] init ones  param sq : [f, f] init normal(0.1)"
    return Program(degrees=degrees, layer=layer, layers=1, batch=4, more=more)


@pytest.mark.parametrize("op", OPS)
@by({"tp": 2}, {"tp": 2, "tatp": 2})
def test_c13_operands_are_not_exchanged(op: str, degrees: dict[str, int], tmp_path: Path) -> None:
    holds(EQUAL, uncommuting(op, degrees), tmp_path)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("seed", range(2))
def test_c13_operands_that_lie_on_different_axes(op: str, seed: int, tmp_path: Path) -> None:
    """With any legal split of every op, drawn, so that operands come together from all axes and parts of sums."""
    path = tmp_path / "m.wsl"
    path.write_text(uncommuting(op, {}).text)
    graph = load(str(path))
    data = tensors(graph, seed)
    split = graph.with_(axes=(("tp", 2), ("tatp", 2)), machine=replace(graph.machine, rows=2, cols=2))
    want = trained(lowered(graph), data)
    got = trained(lowered(split, lambda m: Partition().run_with(m, random_choice(seed, 1.0))), data)
    error, name = distance(got, want)
    assert error < 1e-10, name
