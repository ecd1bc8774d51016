"""`lower_collectives`: every reshard, stream and op has the same result on the fabric, on rings, chains and apart."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.fabric import FabricMachine
from tests.oracles.running import distance, lowered, trained
from tests.support.drawing import layouts
from tests.support.models import Shape, gpt, llama, tensors
from wscc.analysis.gather_plan import GatherPlan, Part, chain, ring
from wscc.analysis.reshard_steps import plan, reshard
from wscc.driver.compile import compile_graph
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.ops import OPS
from wscc.ir.per_die import at
from wscc.ir.step import Call, Ref
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.train import Train
from wscc.ir.types import DType, Layout, Reduction, TensorType
from wscc.machine.wafer import Die, Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.lower_collectives import ops as lower_kernels
from wscc.passes.lower_collectives.reshards import arriving
from wscc.passes.partition import Partition
from wscc.passes.partition import streams as partition_streams

AXES = ("dp", "tatp", "tp")
# Positions of 4 logical dies on a 2 x 4 wafer: a closed ring, a path without its closing link, far apart.
RING, CHAIN, APART = (0, 1, 5, 4), (0, 1, 2, 3), (0, 3, 6, 1)


def resharding(
    sizes: dict[str, int], source: Layout, target: Layout, shape: tuple[int, ...], dies: tuple[int, ...]
) -> Module:
    """A module of one procedure that brings `x` from one layout to another."""
    kind = TensorType(shape, DType.F64)
    value = first = Value("x", kind.with_layout(source))
    body: list[Reshard] = []
    for i, step in enumerate(plan(source, target)):
        result = Value(f"x{i}", kind.with_layout(step.after))
        body.append(reshard(step, value, result))
        value = result
    arrays = (
        Array("x", kind.with_layout(source), Kind.CARRIED),
        Array("y", kind.with_layout(target), Kind.CARRIED),
    )
    procedure = Procedure("go", (first,), (Output(value),), tuple(body))
    step = (Call("go", (Ref("x"), Ref("y"))),)
    axes = tuple((a, n) for a, n in sizes.items())
    wafer = Wafer("w", 2, 4)
    return Module("r", Level.SHARDED, axes, Train(1, 1), wafer, arrays, (procedure,), step, dies)


def local(machine: FabricMachine, name: str, die: int, whole: np.ndarray) -> np.ndarray:
    return whole[machine.slices(machine.module.array(name), die)]


@settings(max_examples=30, deadline=None)
@given(source=layouts(2, AXES), target=layouts(2, AXES), cut=st.sampled_from([1, 3]), seed=st.integers(0, 99))
def test_a_reshard_delivers_every_element(source: Layout, target: Layout, cut: int, seed: int) -> None:
    """Over dp x tatp x tp = 2 x 2 x 2: random parts in, the right block (or parts of the right sum) out."""
    sizes = dict.fromkeys(AXES, 2)
    shape = (8 * cut, 8)
    module = LowerCollectives().run(resharding(sizes, source, target, shape, tuple(range(8))))
    machine = FabricMachine(module)
    rng = np.random.default_rng(seed)
    whole = np.zeros(shape)
    addends: dict[str, np.ndarray] = {}
    for i, die in enumerate(machine.memory):
        # Replicas hold equal parts: a part is drawn per coordinate of the partial axes and block.
        coordinates = {a: machine.coords[i][a] for a, _ in source.partial}
        part = addends.setdefault(str(coordinates), rng.normal(size=shape))
        die["x"][...] = local(machine, "x", i, part)
    whole = sum(addends.values())  # type: ignore[assignment]
    machine.step()
    parts: dict[str, np.ndarray] = {}
    for i, die in enumerate(machine.memory):
        key = str({a: machine.coords[i][a] for a, _ in target.partial})
        actual = parts.setdefault(key, np.full(shape, np.nan))
        block = machine.slices(module.array("y"), i)
        assert np.isnan(actual[block]).all() or np.array_equal(actual[block], die["y"])
        actual[block] = die["y"]
    np.testing.assert_allclose(sum(parts.values()), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dies", [RING, CHAIN, APART])
@pytest.mark.parametrize("reduction", ["sum", "max"])
@pytest.mark.parametrize("elements", [1, 5, 8, 8192])
def test_all_reduce_gives_replicas_the_same_bits(
    dies: tuple[int, ...], reduction: str, elements: int
) -> None:
    """Small and large, even and uneven, on every kind of group; 8,192 f64 take the algorithm of large ones."""
    source = Layout(((),)).with_partial({"tatp": reduction})  # type: ignore[dict-item]
    kind = TensorType((elements,), DType.F64)
    x, total = Value("x", kind.with_layout(source)), Value("x0", kind.with_layout(Layout(((),))))
    op = Reshard("all_reduce", "tatp", x, total, reduction=Reduction(reduction))
    module = resharding({"tatp": 4}, Layout(((),)), Layout(((),)), (elements,), dies)
    module = module.with_(procedures=(Procedure("go", (x,), (Output(total),), (op,)),))
    machine = FabricMachine(LowerCollectives().run(module))
    parts = np.random.default_rng(1).normal(size=(4, elements))
    for die, part in zip(machine.memory, parts, strict=True):
        die["x"][...] = part
    machine.step()
    expected = parts.sum(0) if reduction == "sum" else parts.max(0)
    np.testing.assert_allclose(machine.read("y"), expected, rtol=1e-12, atol=1e-12)


def test_a_sum_of_several_arrivals_reaches_its_place_once() -> None:
    """All send at once where few bytes are far apart; the place of the sum may be in slow memory."""
    source, target = Layout(((),)).with_partial({"tatp": Reduction.SUM}), Layout((("tatp",),))
    module = LowerCollectives().run(resharding({"tatp": 4}, source, target, (8,), APART))
    (place,) = (o.value.name for o in module.procedure("go").outputs)
    kernels = [s for s in module.procedure("go").body if isinstance(s, Kernel)]
    assert len([k for k in kernels if any(".in" in v.buffer for v in k.reads)]) == 3
    assert len([k for k in kernels if place in {v.buffer for v in (*k.reads, *k.writes)}]) == 1


# ------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("family", [gpt, llama])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("dies", [RING, CHAIN, APART])
def test_a_stream_is_its_gather_and_its_scatter(family: object, rows: int, dies: tuple[int, ...]) -> None:
    """Batch (4 rows) or sequence (1 row: ring attention, forward and backward) over tatp = 4."""
    shape = Shape(batch=2 * rows, calls=2)
    module = family({"tatp": 4}, shape)  # type: ignore[operator]
    data = tensors(module)
    plain = trained(lowered(module, Partition(stream=False).run, dies=dies), data)
    streamed = trained(lowered(module, dies=dies), data)
    error, name = distance(streamed, plain)
    assert error < 1e-10, name


@pytest.mark.parametrize("dies", [RING, CHAIN])
def test_keys_that_come_in_chunks_to_gradients_that_stay(
    dies: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only keys and values of the gradient of attention travel; what it gives for them is scattered after it."""
    candidates = partition_streams._candidates

    def operands_alone(op: Op, *rest: object) -> list[object]:
        found = candidates(op, *rest)  # type: ignore[arg-type]
        return [c for c in found if not (c.out and op.kind == "attention_bwd")]

    module = llama({"sp": 4}, Shape(batch=2, calls=2), wafer=Wafer("w", 2, 4, Die(tile=1)))
    data = tensors(module)
    plain = trained(lowered(module, Partition(stream=False).run, dies=dies), data)
    monkeypatch.setattr(partition_streams, "_candidates", operands_alone)
    sharded = Partition().run(Differentiate().run(module))
    (op,) = (o for o in sharded.procedure("block.bwd").ops if o.kind == "attention_bwd")
    assert op.stream is not None
    assert (op.stream.moving_in, op.stream.moving_out) == ((1, 2), ())
    error, name = distance(trained(lowered(module, dies=dies), data), plain)
    assert error < 1e-10, name


@pytest.mark.parametrize("moving_out", [True, False])
def test_what_rows_sum_in_bf16_is_taken_once_for_all_keys(
    moving_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """<dO, O> of a row does not depend on the keys: with four shards of keys, and a second time for each tile only."""
    candidates = partition_streams._candidates

    def some(op: Op, *rest: object) -> list[object]:
        found = candidates(op, *rest)  # type: ignore[arg-type]
        return [c for c in found if bool(c.out) == moving_out or op.kind != "attention_bwd"]

    monkeypatch.setattr(partition_streams, "_candidates", some)
    module = lowered(llama({"sp": 4}, Shape(batch=2, calls=2), dtype=DType.BF16))
    kernels = [s for s in module.procedure("block.bwd").body if isinstance(s, Kernel)]
    assert sum(k.opcode == "rowdot" for k in kernels) == 1
    assert sum(k.opcode == "rowmean" for k in kernels) == 4


@pytest.mark.parametrize("dies", [RING, CHAIN])
def test_tatp_transfers_are_one_hop(dies: tuple[int, ...]) -> None:
    """Those of streams, and with `ring` those of reshards."""
    module = lowered(gpt({"tatp": 4}), dies=dies, allgather="ring")
    hops = 0
    for procedure in module.procedures:
        for t in procedure.body:
            if isinstance(t, Transfer):
                assert t.one_hop
                for i, j in t.pairs(4):
                    (ra, ca), (rb, cb) = divmod(dies[i], 4), divmod(dies[j], 4)
                    assert abs(ra - rb) + abs(ca - cb) == 1
                    hops += 1
    assert hops


# ------------------------------------------------------------------------------------------- gather plans


def deliveries(p: GatherPlan) -> list[dict[int, float]]:
    """The fraction of each shard that has arrived at each position; asserts that senders have what they send."""
    arrived: list[dict[int, float]] = [{i: 1.0} for i in range(p.size)]
    for moves in p.rounds:
        arrivals = []
        for move in moves:
            shard, arrives = arriving(move)
            for sender, q in enumerate(move.to):
                if q >= 0:
                    assert arrived[sender].get(move.shard[sender], 0) == 1.0
            arrivals += [
                (q, shard[q], 1.0 if move.part is Part.WHOLE else 0.5) for q in range(p.size) if arrives[q]
            ]
        for q, s, fraction in arrivals:
            arrived[q][s] = arrived[q].get(s, 0) + fraction
    return arrived


@pytest.mark.parametrize(("make", "size"), [*product([ring], range(2, 10)), *product([chain], range(2, 10))])
def test_a_plan_delivers_every_shard_once(make: object, size: int) -> None:
    p = make(size)  # type: ignore[operator]
    assert all(shards == {s: 1.0 for s in range(size)} for shards in deliveries(p))
    assert all(sorted(row[i] for row in p.order) == list(range(size)) for i in range(size))


@pytest.mark.parametrize("size", [4, 6, 8, 16])
def test_a_closed_ring_is_bandwidth_optimal(size: int) -> None:
    """(T-1)/2 shards per link and direction in T/2 rounds."""
    p = ring(size)
    sent = sum(1.0 if m.part is Part.WHOLE else 0.5 for moves in p.rounds for m in moves)
    assert (len(p.rounds), sent / 2) == (size // 2, (size - 1) / 2)


@pytest.mark.parametrize("size", [3, 5, 8])
def test_a_chain_sends_one_shard_per_link_direction_and_round(size: int) -> None:
    p = chain(size)
    assert len(p.rounds) == size - 1
    for moves in p.rounds:
        links = [(s, q) for m in moves for s, q in enumerate(m.to) if q >= 0]
        assert len(links) == len(set(links))
        assert all(abs(s - q) == 1 for s, q in links)


def test_every_op_has_a_lowering() -> None:
    """Of its own, or the instruction of its name."""
    direct = OPS.keys() - lower_kernels.SPECIAL.keys()
    assert all(OPS[name].view or name in INSTRUCTIONS for name in direct)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(2, 3)), unique_by=lambda t: t[0], max_size=3))
def test_blocks_of_all_axes_number_the_dies(axes: list[tuple[str, int]]) -> None:
    mesh = LogicalMesh(tuple(axes))
    assert mesh.block([a for a, _ in axes]) == list(range(prod(n for _, n in axes)))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_on_a_chain_a_die_adds_only_to_accumulators_that_it_sends(size: int) -> None:
    """Backwards, an end of the chain sends one way only: its other accumulator is never written nor read."""
    module = gpt(
        {"tatp": size}, Shape(batch=2 * size, d=60, ffn=60, vocab=60, heads=4), wafer=Wafer("w", 1, 8)
    )
    fabric = lowered(module, dies=range(size))
    for procedure in fabric.procedures:
        written = {b.name: [False] * size for b in procedure.buffers}
        for stmt in procedure.body:
            if not isinstance(stmt, Kernel):
                continue
            for i in range(size):
                if not at(stmt.where, i):
                    continue
                for view in stmt.reads:
                    assert ".acc" not in view.buffer or written[view.buffer][i], (procedure.name, stmt)
                for view in stmt.writes:
                    if view.buffer in written:
                        written[view.buffer][i] = True


@pytest.mark.parametrize("degrees", [{"tp": 2}, {"tatp": 4}], ids=str)
def test_a_gradient_is_accumulated_in_its_array(degrees: dict[str, int]) -> None:
    """A product that is only added to an array accumulates there: a weight's gradient has no temporary."""
    modules = compile_graph(gpt(degrees)).modules
    sharded, lowered = (modules[name].procedure("block.bwd") for name in ("place", "lower_collectives"))
    producer = {v.name: op.kind for op in sharded.statements for v in op.results}
    kernels = [k for k in lowered.body if isinstance(k, Kernel)]
    accumulations = []
    for before, after in zip(sharded.outputs, lowered.outputs, strict=True):
        if after.mode is Mode.ADD and producer[before.value.name] == "matmul":
            writers = [k for k in kernels if any(v.buffer == after.value.name for v in k.writes)]
            accumulations += [k for k in writers if k.opcode == "gemm" and k.attr("accumulate")]
            # What others contributed on the way still has to be added where weights stream.
            assert {k.opcode for k in writers} == ({"gemm", "add"} if "tatp" in degrees else {"gemm"})
    assert len(accumulations) == 4


# 2 kB of SRAM for the temporaries of an op.
CRAMPED = gpt({"tatp": 4}, wafer=Wafer("w", 2, 2, Die(sram=16_000, hbm_bandwidth=10**9, tile=1)))


def _kernels(source: str, module: Module = CRAMPED) -> list[Kernel]:
    body = lowered(module).procedure("block.bwd").body
    return [s for s in body if isinstance(s, Kernel) and s.source == source]


def test_a_slice_of_a_growing_result_begins_when_the_one_before_is_half_done() -> None:
    """Five slices of columns, of four chunks each: while a message of one is on its way, another is worked on."""
    gemms = [k for k in _kernels("d.gelu.1.tatp") if k.opcode == "gemm"]
    assert [k.reads[1].offset for k in gemms] == [
        0,
        0,
        0,
        3,
        0,
        3,
        3,
        6,
        3,
        6,
        6,
        9,
        6,
        9,
        9,
        12,
        9,
        12,
        12,
        12,
    ]


def test_slices_of_heads_are_as_narrow_as_a_tile() -> None:
    """Heads of 4 columns and tiles of 4: a head is a slice of the gradient of `wqkv`, not all four."""
    die = Die(sram=16_000, hbm_bandwidth=10**9, tile=4)
    module = gpt({"tatp": 4}, Shape(d=16, heads=4), wafer=Wafer("w", 2, 2, die))
    gemms = [k for k in _kernels("d.layernorm.2.tatp", module) if k.opcode == "gemm"]
    assert {k.reads[1].offset for k in gemms} == {0, 4, 8, 12}


def test_what_does_not_fit_is_worked_on_in_pieces() -> None:
    """Three times 2 kB: four pieces of 8 of the 32 columns, each index once."""
    pieces = [k for k in _kernels("d.add.3") if k.opcode == "gelu_bwd"]
    assert [v.offset for k in pieces for v in k.writes] == [0, 8, 16, 24]
    assert {v.shape[-1] for k in pieces for v in (*k.reads, *k.writes)} == {8}
    assert all(sum(v.bytes for v in (*k.reads, *k.writes)) <= 2000 for k in pieces)
