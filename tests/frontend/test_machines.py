"""Tori and systems in the language: what they mean, how they are written again, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wscc.diagnostics import Code, CompileError, Source
from wscc.frontend.fmt import fmt
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.machine.presets import PRESETS
from wscc.machine.wafer import Circuits, Hub, Joint, Leaves, Link, Network, Torus, Wafer

DIE = (
    "die { peak 1 TFLOP/s, sram 1 MB }  link { bandwidth 4 TB/s, latency 200 ns, energy 3 pJ/bit, flit 32 B }"
)
MODEL = """
model m(d = 4) {
  input tokens : i32[batch, d]  input labels : i32[batch, d]
  param w : [8, 8] init zeros
  loss cross_entropy(embedding(tokens, w) @ w, labels)
}
train m on %s { batch 1  microbatch 1  optimizer sgd(lr = 0.1)  parallel dp = 1 }
"""
JOINED = "joined edge to edge { bandwidth 9 TB/s, latency 1.5 us }"


def machine(text: str, name: str = "w", overrides: Overrides | None = None) -> Wafer:
    file = parse(Source("t.wsl", text + MODEL % name))
    assert fmt(parse(Source("t.wsl", fmt(file)))) == fmt(file)
    return resolve(file, overrides or NO_OVERRIDES).wafer


def refusal(text: str, name: str = "pod") -> tuple[Code, str]:
    with pytest.raises(CompileError) as refused:
        machine(text, name)
    (found,) = refused.value.diagnostics
    return found.code, f"{found.message} {found.help}"


@pytest.mark.parametrize(
    ("words", "torus"),
    [("", Torus()), ("torus", Torus(True, True)), ("torus along rows", Torus(rows=True)),
     ("torus along columns", Torus(cols=True))],
)  # fmt: skip
def test_a_torus_joins_the_ends_of_rows_and_columns(words: str, torus: Torus) -> None:
    assert machine(f"wafer w {{ mesh 4 x 8 {words} {DIE} }}").torus == torus
    changed = Overrides(sets=(f"wafer.mesh=3x5 {words}",))
    wafer = machine(f"wafer w {{ mesh 4 x 8 {DIE} }}", overrides=changed)
    assert (wafer.rows, wafer.cols, wafer.torus) == (3, 5, torus)


def test_links_can_be_circuits_of_which_so_many_are_up() -> None:
    slow, switched = f"wafer w {{ mesh 2 x 4 {DIE} }}", Circuits(2, 4, 25e-6)
    text = slow.replace("flit 32 B", "circuits 2 of 4, reconfiguration 25 us")
    assert machine(text).circuits == switched
    assert machine(text).link == Link(4 * 10**12, 200e-9, energy=3e-12)
    changed = Overrides(sets=("wafer.link.circuits=3 of 4",))
    assert machine(text, overrides=changed).circuits == replace(switched, up=3)
    assert machine(text.replace("2 x 4", "2 x 2 x 2").replace("2 of 4", "2 of 6")).circuits == replace(
        switched, of=6
    )
    for old, new, words in (
        ("2 of 4", "3 of 2", "`circuits 2 of 4`"),
        ("mesh 2 x 4", "dies 4 all to all", "remove it"),
        ("circuits 2 of 4, ", "", "only circuits have a `reconfiguration`"),
    ):
        assert words in refusal(text.replace(old, new), "w")[1]
    system = f"{text} system pod {{ wafers 1 x 2 of w {JOINED} }}"
    assert refusal(system)[0] is Code.CHOICE
    assert machine(system.replace("1 x 2", "1 x 1"), "pod").circuits == switched


def test_a_link_around_a_torus_can_be_dead() -> None:
    wafer = machine(f"wafer w {{ mesh 2 x 4 torus {DIE} dead link (1, 3) - (1, 0) }}")
    assert wafer.dead_links == {((1, 0), (1, 3))}
    code, words = refusal(f"wafer w {{ mesh 2 x 4 {DIE} dead link (1, 3) - (1, 0) }}", "w")
    assert code is Code.OFF_MESH
    assert "share an edge" in words


def test_a_system_is_a_mesh_of_wafers_with_their_damage() -> None:
    body = f"wafers 2 x 2 of w torus along rows {JOINED} ports corners dead die (0, 5)"
    wafer = machine(f"wafer w {{ mesh 3 x 4 {DIE} dead die (1, 1) }} system pod {{ {body} }}", "pod")
    assert (wafer.name, wafer.rows, wafer.cols, wafer.torus) == ("pod", 6, 8, Torus(rows=True))
    assert wafer.dead_dies == {(1, 1), (1, 5), (4, 1), (4, 5), (0, 5)}
    assert isinstance(wafer.joint, Joint)
    assert (wafer.joint.rows, wafer.joint.cols, wafer.joint.ports) == (3, 4, (0, -1))
    edge = wafer.joint.link
    assert (edge.bandwidth, edge.latency, edge.energy, edge.flit) == (9 * 10**12, 1.5e-6, 3e-12, 32)
    more = machine(
        f"wafer w {{ mesh 3 x 4 {DIE} }} system pod {{ {body} }}", "pod", Overrides(dead=("die:5,7",))
    )
    assert more.dead_dies == {(0, 5), (5, 7)}


def test_a_system_of_one_wafer_is_that_wafer() -> None:
    wafer = f"wafer w {{ mesh 3 x 4 {DIE} dead die (1, 1) }}"
    assert machine(f"{wafer} system pod {{ wafers 1 x 1 of w {JOINED} }}", "pod") == machine(wafer)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("wafers 1 x 2 of w", Code.MISSING, "joined"),
        (f"{JOINED}", Code.MISSING, "wafers"),
        (f"wafers 1 x 2 of v {JOINED}", Code.UNKNOWN_NAME, "`v`"),
        (f"wafers 0 x 2 of w {JOINED}", Code.NUMBER, "at least one"),
        (f"wafers 999 x 999 of w {JOINED}", Code.LIMIT, "1,048,576"),
        (f"wafers 1 x 2 of w {JOINED} ports 3", Code.OFF_MESH, "0 to 2"),
        (f"wafers 1 x 2 of w {JOINED} ports corner", Code.CHOICE, "corners"),
        (f"wafers 1 x 2 of ring {JOINED}", Code.CHOICE, "torus"),
        (f"wafers 1 x 2 of w torus along lines {JOINED}", Code.CHOICE, "columns"),
        (f"wafers 1 x 2 of w {JOINED} {JOINED}", Code.DUPLICATE, "joined"),
        (f"wafers 1 x 2 of w {JOINED} ports 0 dead link (1, 3) - (1, 4)", Code.OFF_MESH, "port"),
        ("wafers 1 x 2 of w joined edge to edge { bandwidth 9 TB/s }", Code.MISSING, "latency"),
    ],
)
def test_a_system_that_cannot_be_is_refused(body: str, code: Code, words: str) -> None:
    wafers = f"wafer w {{ mesh 3 x 4 {DIE} }} wafer ring {{ mesh 1 x 4 torus {DIE} }}"
    found, message = refusal(f"{wafers} system pod {{ {body} }}")
    assert found is code
    assert words in message


def test_dies_of_three_dimensions_are_named_by_plane_row_and_column() -> None:
    wafer = machine(
        f"wafer w {{ mesh 2 x 3 x 4 torus {DIE} dead die (1, 0, 2) dead link (0, 2, 0) - (0, 0, 0) }}",
        overrides=Overrides(dead=("die:1,2,3", "link:0,0,0-1,0,0")),
    )
    assert (wafer.dies, wafer.torus, wafer.size) == (24, Torus(True, True, True), "2 x 3 x 4")
    assert {wafer.place_of(c) for c in wafer.dead_dies} == {(1, 0, 2), (1, 2, 3)}
    links = {frozenset(map(wafer.place_of, link)) for link in wafer.dead_links}
    assert links == {frozenset({(0, 2, 0), (0, 0, 0)}), frozenset({(0, 0, 0), (1, 0, 0)})}
    code, words = refusal(f"wafer w {{ mesh 2 x 3 x 4 {DIE} dead die (1, 2) }}", "w")
    assert code is Code.OFF_MESH
    assert "planes are 0 to 1" in words


NODE = f"wafer node {{ dies 4 all to all through switch {{ capacity 6 TB/s, latency 300 ns }} {DIE} }}\n"
NETWORK = "joined through switch { bandwidth 50 GB/s, latency 5 us }"


def test_nodes_are_rows_of_dies_joined_by_switches() -> None:
    pod = machine(f"{NODE} system pod {{ wafers 3 x 1 of node {NETWORK} dead die (2, 1) }}", "pod")
    assert (pod.rows, pod.cols, pod.dead_dies) == (3, 4, frozenset({(2, 1)}))
    assert pod.hub == Hub(6 * 10**12, 300e-9)
    assert pod.network is not None
    assert (pod.network.link.bandwidth, pod.network.capacity) == (50 * 10**9, 12 * 50 * 10**9)
    assert machine(f"wafer w {{ dies 3 all to all {DIE} dead link (0, 0) - (0, 2) }}").hub == Hub()
    part = machine('wafer w = preset "dgx-h100" { dies 2 all to all }')
    assert part.dies == 2
    assert part.switch == PRESETS["dgx-h100"].switch


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (f"{NODE} system pod {{ wafers 2 x 1 of node {JOINED} }}", Code.CHOICE, "joined through switches"),
        (
            f"wafer w {{ mesh 2 x 2 {DIE} }} system pod {{ wafers 2 x 1 of w {NETWORK} }}",
            Code.CHOICE, "switches join nodes",
        ),
        (
            f"{NODE} system pod {{ wafers 2 x 1 of node {NETWORK} dead link (0, 0) - (0, 1) }}",
            Code.OFF_MESH, "no links between dies",
        ),
    ],
    ids=("edges", "mesh", "dead link"),
)  # fmt: skip
def test_nodes_that_cannot_be_joined_are_refused(text: str, code: Code, words: str) -> None:
    found, message = refusal(text)
    assert found is code
    assert words in message


@pytest.mark.parametrize("mesh", ["2 x 2 x 2 x 2", "2x2x2x2", "1 x 2 x 3 x 4 x 5"])
def test_a_mesh_of_four_dimensions_is_refused_by_name(mesh: str) -> None:
    code, message = refusal(f"wafer w {{ mesh {mesh} {DIE} }}", "w")
    assert code is Code.SYNTAX
    assert "two dimensions or three" in message
    assert "mesh 4 x 4 x 4" in message


TREE = "joined through %s { bandwidth 50 GB/s, latency 5 us%s }"


@pytest.mark.parametrize(
    ("words", "fields", "network"),
    [
        ("rails", "", Network(capacity=5 * 50 * 10**9, leaves=Leaves(0, 5 * 50 * 10**9))),
        ("rails", ", capacity 90 GB/s", Network(capacity=90 * 10**9, leaves=Leaves(0, 90 * 10**9))),
        (
            "leaves of 2", ", capacity 800 GB/s, uplink 90 GB/s",
            Network(capacity=800 * 10**9, leaves=Leaves(2, 90 * 10**9)),
        ),
        ("leaves of 2", ", uplink 90 GB/s", Network(capacity=8 * 50 * 10**9, leaves=Leaves(2, 90 * 10**9))),
    ],
)  # fmt: skip
def test_nodes_are_joined_by_leaves_below_a_spine(words: str, fields: str, network: Network) -> None:
    pod = machine(f"{NODE} system pod {{ wafers 5 x 1 of node {TREE % (words, fields)} }}", "pod")
    assert pod.network == replace(network, link=Link(50 * 10**9, 5e-6, energy=3e-12, flit=32))


@pytest.mark.parametrize(
    ("tree", "code", "words"),
    [
        (TREE % ("leaves of 0", ""), Code.NUMBER, "1 at least"),
        (TREE % ("leaves of 1.5", ""), Code.NUMBER, "whole number"),
        (TREE % ("leaves of 3", ""), Code.NUMBER, "one switch does it write `joined through switch"),
        (TREE % ("leaves", ""), Code.MISSING, "leaves of 2"),
        (TREE % ("rails of 2", ""), Code.CHOICE, "`rails` has no `of`"),
        (TREE % ("rail", ""), Code.CHOICE, "did you mean `rails`?"),
        (TREE % ("hubs", ""), Code.CHOICE, "`through leaves of 2`"),
        (TREE % ("switch", ", uplink 9 GB/s"), Code.UNKNOWN_KEY, "`through rails`"),
        (TREE % ("rails", ", capacity 8 GB/s, uplink 9 GB/s"), Code.NUMBER, "leave `uplink` out"),
        (TREE % ("rails", ", uplinks 9 GB/s"), Code.UNKNOWN_KEY, "did you mean `uplink`?"),
    ],
)
def test_leaves_that_cannot_be_are_refused(tree: str, code: Code, words: str) -> None:
    found, message = refusal(f"{NODE} system pod {{ wafers 3 x 1 of node {tree} }}")
    assert found is code
    assert words in message


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("dies 4 all to all", "nodes with a switch"),
        ("dies 1 all to all through switch { capacity 6 TB/s }", "one rail"),
    ],
)
def test_nodes_without_rails_are_refused(node: str, words: str) -> None:
    text = f"wafer node {{ {node} {DIE} }} system pod {{ wafers 3 x 1 of node {TREE % ('rails', '')} }}"
    assert words in refusal(text)[1]
