"""Programs on tori, systems of wafers and circuits equal one device, and their artifacts keep what `verify` asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.strategies import judged_artifact, reference
from tests.support.compile_once import artifact_of, compile_graph
from tests.support.models import Shape, gpt, llama
from wscc.backends.artifact.files import write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.backends.verify import verify_program
from wscc.diagnostics import CompileError
from wscc.driver.simulate import simulate
from wscc.driver.static_mesh import static_mesh_seconds
from wscc.ir.module import Module
from wscc.ir.routes import Route
from wscc.machine.links import CUT_THROUGH
from wscc.machine.presets import PRESETS
from wscc.machine.wafer import Circuits, Hub, Joint, Leaves, Link, Network, Torus, Wafer

BOTH = Torus(rows=True, cols=True)
SHAPE = Shape(batch=8, calls=1, layers=1)
TORI = {
    "3 x 4, dp x tp": (Wafer("torus", 3, 4, torus=BOTH, dead_dies=frozenset({(1, 1)})), gpt, {"dp": 2, "tp": 4}),
    "3 x 3, pp x sp": (Wafer("odd", 3, 3, torus=BOTH), llama, {"pp": 2, "sp": 4}),
    "1 x 5 with a dead link, sp": (
        Wafer("cut", 1, 5, torus=BOTH, dead_links=frozenset({((0, 1), (0, 2))})), gpt, {"sp": 4}
    ),
    "2 x 2 x 3, dp x tatp": (
        Wafer("cube", 4, 3, torus=Torus(True, True, True), planes=2, dead_dies=frozenset({(0, 1)})), gpt,
        {"dp": 2, "tatp": 4},
    ),
    "3 x 3 x 3, pp x sp": (
        Wafer("cube", 9, 3, torus=Torus(True, True, True), planes=3), llama, {"pp": 2, "sp": 8}
    ),
}  # fmt: skip

PAIR = Wafer("pair", 2, 4, joint=Joint(2, 2, Link(bandwidth=10**12, latency=1.5e-6)))
CORNER = replace(
    PAIR, joint=Joint(2, 2, Link(bandwidth=10**12, latency=1.5e-6), (0,)), torus=Torus(rows=True)
)
# Every axis leads from one wafer of 2 x 2 dies to the other, but tp, whose sums are those of dp.
SYSTEMS = {
    "dp across": (PAIR, gpt, {"dp": 2, "tatp": 4}),
    "pp across": (PAIR, llama, {"pp": 2, "tp": 4}),
    "sp across": (CORNER, gpt, {"sp": 8}),
    "tatp across": (PAIR, llama, {"tatp": 8}),
}
TWO, THREE = Circuits(2, 4, 25e-6), Circuits(3, 4)
SWITCHED = {
    "2 of 4, tatp": (Wafer("w", 2, 4, circuits=TWO), gpt, {"tatp": 8}),
    "2 of 4, dp x tp": (Wafer("w", 2, 4, circuits=TWO), llama, {"dp": 2, "tp": 4}),
    "2 of 4, pp x dp x tatp": (
        Wafer("w", 3, 3, dead_dies=frozenset({(0, 0)}), circuits=TWO), llama, {"pp": 2, "dp": 2, "tatp": 2}
    ),
    "3 of 4 of a torus, sp x tp": (
        Wafer("w", 3, 3, torus=BOTH, dead_links=frozenset({((0, 0), (0, 1))}), circuits=THREE), gpt,
        {"sp": 4, "tp": 2},
    ),
    "2 of 6, dp x tatp": (
        Wafer("cube", 4, 2, planes=2, circuits=Circuits(2, 6)), gpt, {"dp": 2, "tatp": 4}
    ),
}  # fmt: skip
FABRICS = TORI | SYSTEMS | SWITCHED


@pytest.mark.parametrize("case", FABRICS)
def test_a_program_equals_one_device(case: str) -> None:
    wafer, family, degrees = FABRICS[case]
    shape = replace(SHAPE, layers=degrees.get("pp", 1))
    module = family(degrees, shape, wafer=wafer)
    artifact = artifact_of(module)
    check = judged_artifact(artifact, module, reference(family, shape, "adamw"), checked=False)
    assert check.ok, check
    assert not verify_program(artifact).findings
    if case in SYSTEMS:
        wafers = [die % wafer.cols // 2 for die in artifact.streams.dies]
        assert wafers in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4) or len(degrees) == 1


def test_a_ring_has_the_whole_bandwidth_of_links_that_are_up() -> None:
    """All links of the static mesh are up, with half of it each, and a ring of all dies is on two at each die."""
    link, degrees, shape = Link(bandwidth=10**8, latency=1e-9), {"tatp": 8}, replace(SHAPE, d=32)
    artifact = artifact_of(gpt(degrees, shape, wafer=Wafer("w", 2, 4, link=link, circuits=TWO)))
    static = static_mesh_seconds(artifact, CUT_THROUGH)
    half = Wafer("w", 2, 4, link=replace(link, bandwidth=5 * 10**7))
    assert static == simulate(artifact_of(gpt(degrees, shape, wafer=half))).account.seconds
    assert simulate(artifact).account.seconds < 0.6 * static
    assert static_mesh_seconds(artifact_of(gpt({"tp": 2}, SHAPE, wafer=half)), CUT_THROUGH) is None


def test_an_artifact_says_which_links_are_up(tmp_path: Path) -> None:
    artifact = artifact_of(gpt({"dp": 2}, SHAPE, wafer=Wafer("w", 2, 2, circuits=Circuits(1, 4))))
    write_artifact(tmp_path / "a", artifact)
    again = load_artifact(tmp_path / "a")
    # Of the four sides of a square two may be up, and one is between the dies in use.
    assert len(again.manifest.dead_links) == 2
    assert tuple(sorted(artifact.streams.dies)) not in again.manifest.dead_links
    other = replace(artifact, manifest=replace(artifact.manifest, dead_links=()))
    write_artifact(tmp_path / "b", other)
    with pytest.raises(CompileError, match="it has another dead links"):
        load_artifact(tmp_path / "b")


@pytest.mark.parametrize("size", [5])
def test_a_row_of_a_torus_is_a_ring_of_any_length(size: int) -> None:
    """On a mesh it is a chain, which takes longer."""
    seconds = {}
    for torus in (BOTH, Torus()):
        wafer = Wafer("row", 1, size, torus=torus)
        shape = Shape(batch=2 * size, calls=2, layers=1, d=4 * size, ffn=4 * size, vocab=8 * size)
        compiled = compile_graph(gpt({"tatp": size}, shape, wafer=wafer))
        seconds[torus] = simulate(compiled.artifact).account.seconds
    assert seconds[BOTH] < seconds[Torus()]


UNLIKE = [n for n in PRESETS if not n.startswith("temp-6") and not n.endswith(("-shared", "3", "v5p-16x16"))]


def part_of(name: str) -> Wafer:
    """Four dies of a preset, all of its kinds of links among them."""
    whole = PRESETS[name]
    joint = whole.joint and replace(whole.joint, rows=1, cols=2)
    rows, planes = (2, 2) if whole.planes else (1, None)
    return replace(whole, rows=rows, cols=4 // rows, planes=planes, joint=joint)


@pytest.mark.parametrize("name", UNLIKE)
def test_a_part_of_each_preset_is_compiled_and_simulated(name: str) -> None:
    wafer = part_of(name)
    shape = Shape(batch=4, calls=1, seq=4, d=8, heads=2, kv=1, ffn=8, vocab=8, layers=1)
    compiled = compile_graph(gpt({"tatp": 4}, shape, wafer=wafer))
    account = simulate(compiled.artifact).account
    assert account.seconds >= wafer.link.latency * 2
    carried = sum(use.bytes for use in account.links.values())
    if wafer.hub is None and wafer.joint is None:
        assert account.energy()["links"] == pytest.approx(8 * carried * wafer.link.energy)
    around = {link for link in account.links if abs(link[0] - link[1]) == 3 and not wafer.planes}
    assert bool(around) == (wafer.torus.rows and not wafer.planes) or wafer.hub is not None


@pytest.mark.parametrize("name", UNLIKE)
def test_a_part_of_each_preset_equals_one_device(name: str) -> None:
    shape = Shape(batch=4, calls=1, seq=4, d=8, heads=2, kv=1, ffn=8, vocab=8, layers=1)
    family = llama if name in ("dgx-h100", "tpu-v4-4x4x4", "wse2") else gpt
    module = family({"dp": 2, "tp": 2}, shape, wafer=part_of(name))
    artifact = artifact_of(module)
    check = judged_artifact(artifact, module, reference(family, shape, "adamw"), checked=False)
    assert check.ok, check
    assert not verify_program(artifact).findings


NODE = Wafer("node", 1, 5, hub=Hub(10**12, 300e-9), dead_dies=frozenset({(0, 1)}))
NODES = replace(NODE, rows=2, network=Network(Link(bandwidth=10**11, latency=5e-6), 2 * 10**11))
# Its traffic keeps tp on a node and leaves dp to the network.
SMALL, NESTED = (
    Shape(batch=8, calls=1, d=8, heads=2, kv=1, ffn=8, vocab=8, layers=1),
    {"dp": 4, "tp": 2},
)
# The first of two leaves behind 8 dies and 4 switches, and the spine behind both.
LEAF, SPINE = 16, 20
POD = Wafer("pod", 4, 2, hub=Hub(10**12, 300e-9), network=Network(Link(10**11, 5e-6), 4 * 10**11))


def tree(below: int, uplink: int = 10**11) -> Wafer:
    """Four nodes of two dies below leaves of so many nodes, or rails."""
    assert POD.network is not None
    return replace(POD, network=replace(POD.network, leaves=Leaves(below, uplink)))


@pytest.mark.parametrize(
    ("wafer", "family", "degrees"),
    [
        (NODE, gpt, {"dp": 2, "tatp": 2}),
        (NODES, llama, {"pp": 2, "tp": 2}),
        (NODES, gpt, {"sp": 8}),
        (replace(NODE, hub=Hub(), dead_links=frozenset({((0, 0), (0, 2))})), gpt, {"tp": 4}),
        (tree(0), gpt, NESTED),
        (tree(2), gpt, NESTED),
        (tree(0), llama, {"sp": 8}),
        (replace(tree(2), dead_dies=frozenset({(1, 0)})), gpt, {"dp": 2, "tatp": 2}),
    ],
    ids=(
        "switch",
        "nodes, pp",
        "nodes, sp",
        "links of their own",
        "rails",
        "leaves",
        "across rails",
        "a dead die",
    ),
)
def test_nodes_equal_one_device_and_no_die_passes_on_what_a_switch_can(
    wafer: Wafer, family: Callable[..., Module], degrees: dict[str, int]
) -> None:
    has_leaves = wafer.network is not None and wafer.network.leaves is not None
    shape = replace(SMALL if has_leaves else SHAPE, layers=degrees.get("pp", 1))
    module = family(degrees, shape, wafer=wafer)
    artifact = artifact_of(module)
    assert judged_artifact(artifact, module, reference(family, shape, "adamw"), checked=False).ok
    assert not verify_program(artifact).findings
    inner = {v for r in artifact.streams.routes for leg in r.legs for v in leg.path[1:-1]}
    if wafer.switch:
        assert inner
        assert min(inner) >= wafer.dies
    if has_leaves and degrees == NESTED:
        assert artifact.streams.dies == tuple(range(8))


def test_a_narrow_switch_takes_the_time_of_all_that_passes_through_it() -> None:
    shape = Shape(batch=8, calls=1, layers=1)
    seconds, bytes_through = {}, 0
    for capacity in (10**13, 10**9):
        wafer = Wafer("node", 1, 4, link=Link(bandwidth=10**12), hub=Hub(capacity))
        account = simulate(compile_graph(gpt({"tp": 4}, shape, wafer=wafer)).artifact).account
        bytes_through = account.links[4, 5].bytes
        seconds[capacity] = account.seconds
    assert bytes_through > 0
    assert seconds[10**9] >= bytes_through / 10**9 > 2 * seconds[10**13]


def test_an_uplink_holds_up_what_crosses_the_spine_and_nothing_else() -> None:
    """On rails the replicas of a shard are on one leaf; below leaves of two nodes half of each ring is elsewhere."""
    accounts = {
        (below, uplink): simulate(artifact_of(gpt(NESTED, SMALL, wafer=tree(below, uplink)))).account
        for below in (0, 2)
        for uplink in (10**11, 10**9)
    }
    seconds = {case: account.seconds for case, account in accounts.items()}
    assert seconds[0, 10**11] == seconds[0, 10**9]
    assert not any(min(link) >= SPINE for link in accounts[0, 10**9].links)
    crossing = accounts[2, 10**9].links[LEAF, SPINE].bytes
    assert crossing > 0
    assert seconds[2, 10**9] > seconds[2, 10**11] + 0.9 * crossing / 10**9


@pytest.mark.parametrize("below", [0, 2])
def test_a_route_through_the_leaf_of_others_is_refused(below: int) -> None:
    artifact = artifact_of(gpt(NESTED, SMALL, wafer=tree(below)))
    assert not verify_program(artifact).findings

    def bent(route: Route) -> Route:
        swap = {LEAF: LEAF + 2, LEAF + 1: LEAF + 3, LEAF + 2: LEAF, LEAF + 3: LEAF + 1}
        legs = tuple(replace(leg, path=tuple(swap.get(v, v) for v in leg.path)) for leg in route.legs)
        return replace(route, legs=legs)

    routes = tuple(map(bent, artifact.streams.routes))
    assert routes != artifact.streams.routes
    found = verify_program(replace(artifact, streams=replace(artifact.streams, routes=routes))).findings
    assert any("no link of the wafer" in f.message for f in found)


def test_an_artifact_keeps_its_leaves_and_has_no_single_one(tmp_path: Path) -> None:
    artifact = artifact_of(gpt(NESTED, SMALL, wafer=tree(2)))
    write_artifact(tmp_path / "a", artifact)
    network = load_artifact(tmp_path / "a").manifest.network
    assert network == tree(2).network
    one = replace(POD.network or Network(), leaves=Leaves(4, 1))
    write_artifact(tmp_path / "b", replace(artifact, manifest=replace(artifact.manifest, network=one)))
    with pytest.raises(CompileError, match="fewer than two"):
        load_artifact(tmp_path / "b")


def test_an_artifact_of_a_node_has_no_link_between_its_dies() -> None:
    artifact = artifact_of(gpt({"tp": 4}, SHAPE, wafer=NODE))
    flat = replace(artifact, manifest=replace(artifact.manifest, hub=Hub()))
    assert verify_program(flat).findings


def test_an_artifact_says_that_its_mesh_is_a_torus(tmp_path: Path) -> None:
    artifact = artifact_of(gpt({"tp": 2}, SHAPE, wafer=Wafer("torus", 3, 4, torus=BOTH)))
    write_artifact(tmp_path / "a", artifact)
    assert load_artifact(tmp_path / "a").manifest.torus == BOTH


def test_an_artifact_that_says_fewer_planes_has_routes_off_its_links(tmp_path: Path) -> None:
    cube = Wafer("cube", 9, 1, torus=Torus(True, True, True), planes=3)
    artifact = artifact_of(gpt({"tp": 8}, replace(SHAPE, heads=8, kv=8), wafer=cube))
    assert not verify_program(artifact).findings
    flat = replace(artifact, manifest=replace(artifact.manifest, planes=0))
    assert verify_program(flat).findings
