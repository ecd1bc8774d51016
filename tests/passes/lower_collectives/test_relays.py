"""Gathers and reductions along relays and trees: every element arrives, over links between neighbours, and no later
than round a ring."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.oracles.fabric import FabricMachine
from tests.passes.lower_collectives.one_reshard import module_of, simulated, wafer_of
from tests.passes.test_lower_collectives import local, resharding
from wscc.analysis.cost import LinkRates
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.op import Reshard, Value
from wscc.ir.types import DType, Layout, Reduction, TensorType
from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer, dead_link
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.lower_collectives.algorithm import Algorithm
from wscc.passes.lower_collectives.algorithm import Reduction as Steps
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.lower_collectives.relays import Relays
from wscc.passes.lower_collectives.trees import Trees

# Two groups each, by position: squares, paths, and stars with one die in the middle, on 3 x 6 dies; five in a T, alone.
WAFER = Wafer("w", 3, 6)
GROUPS = {
    "squares": ((0, 1, 7, 6), (4, 5, 11, 10)),
    "paths": ((0, 1, 2), (17, 16, 15)),
    "stars": ((7, 1, 6, 8, 13), (10, 4, 9, 11, 16)),
    "a ladder": ((0, 1, 2, 6, 7, 8, 12, 13, 14),),
}
SPLIT, WHOLE = Layout((("tatp",),)), Layout(((),))
PARTIAL = WHOLE.with_partial({"tatp": Reduction.SUM})


def summing(module: Module, elements: int) -> Module:
    """The module with an all_reduce of so many elements along `tatp` in place of its reshard."""
    tensor = TensorType((elements,), DType.F64)
    x, y = Value("x", tensor.with_layout(PARTIAL)), Value("y", tensor.with_layout(WHOLE))
    op = Reshard("all_reduce", "tatp", x, y, reduction=Reduction.SUM)
    return module.with_(procedures=(Procedure("go", (x,), (Output(y),), (op,)),))


def lowered(kind: str, group: str, pieces: int, monkeypatch: pytest.MonkeyPatch, way: str) -> Module:
    """One reshard along `tatp`, of 48 numbers a die at least, along relays of so many pieces, or trees of 8 times as
    many."""
    groups = GROUPS[group]
    size, topology = len(groups[0]), Topology.mesh(WAFER)
    relays = Relays(topology, groups, LinkRates.of(WAFER.link))

    def along(*_: object, backwards: bool) -> Algorithm:
        found = next(f for f in relays.plans(384, (48,), backwards=backwards) if f.plan.pieces == pieces)
        return Algorithm(found.plan, (), one_hop=True)

    gather, scatter = along(backwards=False), along(backwards=True)
    monkeypatch.setattr(Algorithms, "gather", lambda *_: gather)
    monkeypatch.setattr(Algorithms, "scatter", lambda *_: scatter)
    trees = None
    if way == "along trees" and relays.common:
        plans = Trees(relays.common, relays.model).plans(384, 48, 1)
        trees = next(plan for plan in plans if plan.pieces == 8)
    monkeypatch.setattr(
        Algorithms, "reduction", lambda *_: Steps(scatter if way == "in two" else None, gather, trees)
    )
    source, target = {
        "all_gather": (SPLIT, WHOLE), "reduce_scatter": (PARTIAL, SPLIT), "all_reduce": (PARTIAL, WHOLE)
    }[kind]  # fmt: skip
    elements = 48 * size
    sizes = {"dp": len(groups), "tatp": size} if len(groups) > 1 else {"tatp": size}
    dies = tuple(d for g in groups for d in g)
    module = resharding(sizes, source, target, (elements,), dies).with_(machine=WAFER)
    if kind == "all_reduce":
        module = summing(module, elements)
    return LowerCollectives().run(module)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize(
    "kind",
    ["all_gather", "reduce_scatter", "all_reduce in one", "all_reduce in two", "all_reduce along trees"],
)
def test_relays_deliver_every_element_over_single_links(
    kind: str, group: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = lowered(kind.split()[0], group, pieces, monkeypatch, kind.partition(" ")[2])
    topology = Topology.mesh(WAFER)
    for t in (s for s in module.procedures[0].body if isinstance(s, Transfer)):
        assert t.one_hop
        assert all(
            topology.are_adjacent(module.dies[a], module.dies[b]) for a, b in t.pairs(module.dies_used)
        )
    machine = FabricMachine(module)
    rng = np.random.default_rng(1)
    whole = rng.normal(size=module.array("y").type.shape)
    size = module.sizes["tatp"]
    parts = rng.normal(size=(size, *whole.shape))
    for i, die in enumerate(machine.memory):
        part = whole if kind == "all_gather" else parts[machine.coords[i]["tatp"]]
        die["x"][...] = local(machine, "x", i, part)
    machine.step()
    expected = whole if kind == "all_gather" else parts.sum(0)
    for i, die in enumerate(machine.memory):
        np.testing.assert_allclose(die["y"], local(machine, "y", i, expected), rtol=1e-12, atol=1e-12)
    if kind.endswith("trees"):
        assert max(t.read.elements for t in module.procedures[0].body if isinstance(t, Transfer)) == 6 * size
    if kind.startswith("all_reduce"):  # replicas hold the same bits
        for a, b in pairwise(machine.memory):
            assert np.array_equal(a["y"], b["y"])


def test_groups_that_damage_leaves_unlike_have_the_links_of_all() -> None:
    """The second square lacks a link: positions 0 and 1 are no neighbours in any plan."""
    cut = Wafer("w", 3, 6, dead_links=frozenset({dead_link((0, 4), (0, 5))}))
    relays = Relays(Topology.mesh(cut), GROUPS["squares"], LinkRates.of(cut.link))
    (plan, *_) = (f.plan for f in relays.plans(1 << 20, (1 << 18,), backwards=False))
    pairs = {(p, q) for moves in plan.rounds for m in moves for p, q in enumerate(m.to) if q >= 0}
    assert pairs == {(0, 3), (3, 0), (1, 2), (2, 1), (2, 3), (3, 2)}


@pytest.mark.parametrize(("rows", "cols"), [(1, 4), (2, 4), (3, 3)])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("size", [1 << 16, 1 << 22, 1 << 27])
def test_no_reshard_is_slower_than_its_ring(kind: str, rows: int, cols: int, size: int) -> None:
    module = module_of(wafer_of(rows, cols), kind, (("dp", rows * cols),), size)
    assert simulated(module) <= 1.005 * simulated(module, "ring")
    if rows == 3:  # no ring of neighbours through nine dies
        assert simulated(module) <= 0.75 * simulated(module, "ring")


@pytest.mark.parametrize(("rows", "cols", "most"), [(1, 4, 0.8), (2, 4, 0.95)])
def test_large_all_reduces_share_all_links_both_ways(rows: int, cols: int, most: float) -> None:
    """A ring uses links of a mesh in part, and one way at a time on a line."""
    wafer = wafer_of(rows, cols)
    module = module_of(wafer, "all_reduce", (("dp", rows * cols),), 1 << 26)
    trees = simulated(module)
    assert trees <= most * simulated(module, "ring")
    lengths = LinkRates.of(wafer.link).busy(1 << 26)
    links = 2 * (rows * (cols - 1) + cols * (rows - 1))
    assert trees >= 2 * (rows * cols - 1) / links * lengths


@pytest.mark.parametrize(("rows", "cols"), [(9, 9), (12, 14)])
@pytest.mark.parametrize("divides", [True, False])
def test_messages_of_large_groups_grow_with_their_dies(rows: int, cols: int, divides: bool) -> None:
    """A ring has a message from every die in as many rounds as there are dies."""
    n = rows * cols
    elements = 2 * n if divides else 2 * n + 1
    module = resharding({"tatp": n}, WHOLE, WHOLE, (elements,), tuple(range(n)))
    module = LowerCollectives().run(summing(module.with_(machine=Wafer("w", rows, cols)), elements))
    transfers = [s for s in module.procedures[0].body if isinstance(s, Transfer)]
    assert sum(len(t.pairs(n)) for t in transfers) <= 16 * n
    machine = FabricMachine(module)
    parts = np.random.default_rng(1).normal(size=(n, elements))
    for die, part in zip(machine.memory, parts, strict=True):
        die["x"][...] = part
    machine.step()
    for die in machine.memory:
        assert np.array_equal(die["y"], machine.memory[0]["y"])
    np.testing.assert_allclose(machine.memory[0]["y"], parts.sum(0), rtol=1e-12, atol=1e-12)


def test_large_groups_wait_for_the_height_of_a_tree_and_not_for_all_their_dies() -> None:
    module = module_of(wafer_of(9, 10), "all_reduce", (("dp", 90),), 1 << 16)
    assert simulated(module) <= 0.5 * simulated(module, "ring")
