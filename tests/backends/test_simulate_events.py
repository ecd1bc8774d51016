"""The event loop against times worked out by hand: two dies and a router between them, in nanoseconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from wscc.backends.simulator.calls import ALONE_TREE, Builder, Cargo, DieCall
from wscc.backends.simulator.compose import Composer, Entry
from wscc.backends.simulator.costs import SECOND, Costs, work_of
from wscc.backends.simulator.drafts import POST, SEND, WAIT, Part, draft_of
from wscc.backends.simulator.events import Simulation
from wscc.backends.simulator.scripts import Scripts
from wscc.backends.simulator.whole import whole
from wscc.diagnostics import Code, CompileError
from wscc.ir.routes import Leg, Route
from wscc.ir.streams.program import Instruction, Operand, Streams
from wscc.ir.streams.wsa import parse_wsa
from wscc.ir.types import DType
from wscc.machine.links import CUT_THROUGH, LINK_MODELS, STORE_AND_FORWARD
from wscc.machine.wafer import Die, Link, Wafer

NS = SECOND // 10**9

# 512 FLOP/ns, 1 byte/ns of HBM above address 4096, 2 bytes/ns of link, 100 ns of latency, tiles of 4.
WAFER = Wafer(
    "w",
    1,
    3,
    Die(peak=512 * 10**9, sram=4096, hbm=10**6, hbm_bandwidth=10**9, tile=4, efficiency=1e9),
    Link(bandwidth=2 * 10**9, latency=100e-9, flit=64),
)
GEMM = "gemm f32[8,8]@{c} <- f32[8,4]@256, f32[4,8]@512 scale=1.0 accumulate=false"


def ends(first: str, second: str, kind: str, wafer: Wafer = WAFER) -> list[float]:
    """When logical dies 0 and 1, at both ends of a row of three, are through with their programs: in ns."""
    text = " ".join(f"role {i} {{ procedure f(0) {{ {body} }} }}" for i, body in enumerate((first, second)))
    programs, steps = parse_wsa(f"{text} step {{ call f() }}")
    routes = (Route.along((0, 1, 2)), Route.along((2, 1, 0)), Route.along((0,)))
    streams = Streams(programs, steps, (0, 2), (0, 1), np.zeros((2, 0), np.int64), routes, 10**6)
    return [n / NS for n in Composer(Builder(streams, Costs.of(wafer, kind))).run().now]


SEND_100 = 'send <- f32[25]@{at} channel=0 peer=1 route=0 wait channel=0 side="sent"'
TAKE_100 = 'post f32[25]@{at} channel=0 peer=0 wait channel=0 side="received"'


@pytest.mark.parametrize(
    ("kind", "left", "arrived"),
    [
        # A gemm of 512 FLOPs: 1 ns. 100 bytes are 2 flits, 128 bytes, 64 ns of a link; two links of 100 ns.
        (CUT_THROUGH, 1 + 64, 1 + 100 + 100 + 64),
        # The second link starts after the first has all of it; the sender's memory is free once the bytes are out.
        (STORE_AND_FORWARD, 1 + 64, 1 + (100 + 64) + (100 + 64)),
    ],
)
def test_two_dies_to_the_nanosecond(kind: str, left: int, arrived: int) -> None:
    sender = f"{GEMM.format(c=0)} {SEND_100.format(at=0)}"
    # 8 x 4 floats read from SRAM, 64 floats written to HBM: 256 ns of its port, and 1 ns of compute beside it.
    receiver = f"{TAKE_100.format(at=1024)} {GEMM.format(c=8192)}"
    assert ends(sender, receiver, kind) == [left, arrived + 256]


def test_a_message_waits_for_its_slot() -> None:
    late = f"{GEMM.format(c=8192)} {TAKE_100.format(at=1024)}"
    assert ends(SEND_100.format(at=0), late, CUT_THROUGH) == [256 + 64, 256 + 264]


def test_a_message_from_and_to_hbm_moves_at_its_pace() -> None:
    """100 bytes take 100 ns of an HBM, more than the 64 of a link; both ends work on it at once."""
    assert ends(SEND_100.format(at=8192), TAKE_100.format(at=0), CUT_THROUGH) == [100, 300]
    assert ends(SEND_100.format(at=0), TAKE_100.format(at=8192), CUT_THROUGH) == [64, 300]
    assert ends(SEND_100.format(at=8192), TAKE_100.format(at=8192), CUT_THROUGH) == [100, 300]


@pytest.mark.parametrize("order", [(0, 8192), (8192, 0)])
@pytest.mark.parametrize("roles", ["0", "01"])
def test_dies_of_one_code_take_what_their_own_operands_take(order: tuple[int, int], roles: str) -> None:
    """Results in SRAM on one die and in HBM on the other: what they have in common is the code alone."""
    text = " ".join(f"role {r} {{ procedure f(0) {{ {GEMM.format(c='$0')} }} }}" for r in roles)
    programs, steps = parse_wsa(f"{text} step {{ call f() }}")
    bindings = np.array([[at] for at in order])
    of_die = (int(roles[0]), int(roles[-1]))
    streams = Streams(programs, steps, (0, 2), of_die, bindings, (), 10**6)
    times = {0: 1.0, 8192: 256.0}
    now = Composer(Builder(streams, Costs.of(WAFER))).run().now
    assert [n / NS for n in now] == [times[at] for at in order]


@pytest.mark.parametrize("kind", LINK_MODELS)
@pytest.mark.parametrize("side", ["sent", "received"])
def test_a_copy_within_a_die_takes_its_hbm_and_no_link_and_hides_work(side: str, kind: str) -> None:
    def copy(source: int, target: int) -> list[float]:
        begun = f"post f32[25]@{target} channel=0 peer=0 send <- f32[25]@{source} channel=0 peer=0 route=2"
        other = "received" if side == "sent" else "sent"
        waits = f'wait channel=0 side="{side}" wait channel=0 side="{other}"'
        return ends(f"{begun} {GEMM.format(c=0)} {waits}", GEMM.format(c=0), kind)

    assert copy(8192, 1024) == [100, 1], "in"
    assert copy(1024, 8192) == [100, 1], "out: what is sent must stay until it is written"
    assert copy(8192, 9216) == [200, 1], "the port reads and writes"
    assert copy(1024, 2048) == [1, 1], "nothing has a time of its own but HBM"


def test_an_hbm_serves_instructions_and_messages_one_after_the_other() -> None:
    """What a die does at once comes first: 256 bytes are written in 256 ns, then the message is read, in 100."""
    sender = "send <- f32[25]@8192 channel=0 peer=1 route=0 fill f32[64]@16384 value=0.0"
    assert ends(f'{sender} wait channel=0 side="sent"', TAKE_100.format(at=0), CUT_THROUGH) == [356, 556]


@pytest.mark.parametrize("size", [0, 1, 64, 2**31 + 1, 2**63 + 5])
@pytest.mark.parametrize("kind", LINK_MODELS)
def test_times_of_any_size_are_exact(size: int, kind: str) -> None:
    """Zero bytes cost latency only; 2^63 of them are not rounded."""
    (run, message_legs) = one_message(size, kind, (0, 1, 2))
    on_link = Fraction(-(-size // 64) * 64 * SECOND, 2 * 10**9)
    latency = 100 * NS
    times = 2 if kind == STORE_AND_FORWARD else 1
    assert run.leave[1] == 2 * latency + times * on_link
    assert sum(use.bytes for use in run.links.values()) == 2 * size
    assert message_legs == 1


def one_message(size: int, kind: str, path: tuple[int, ...]) -> tuple[Simulation, int]:
    costs = Costs.of(WAFER, kind)
    legs = costs.legs(Route.along(path), size)
    cargo = Cargo(0, 1, size, legs, ALONE_TREE)
    scripts = {
        0: [(0, call([Part(SEND, channel=0, peer=1), Part(WAIT, channel=0, sent=True)], cargo))],
        1: [(0, call([Part(POST, channel=0, peer=0), Part(WAIT, channel=0)]))],
    }
    return Simulation(costs, {0: 0, 1: 2}, Scripts.of(scripts), {0: 0, 1: 0}).run(), len(legs)


def call(parts: list[Part], *cargos: Cargo) -> DieCall:
    """The call of instructions on a die; every message is from die 0."""
    draft = draft_of("f", parts, lambda part: part)
    return DieCall(draft, tuple((0, m.channel, False) for m in draft.messages), cargos, 0)


def send_all(routes: list[Route], size: int, merged: bool = False) -> Simulation:
    """Die 0 sends to dies 1, 2, ... on channels 0, 1, ...; all wait."""
    costs = Costs.of(replace(WAFER, rows=2), CUT_THROUGH)
    tree = (0, 1) if merged else ALONE_TREE
    cargos = [Cargo(0, i + 1, size, costs.legs(r, size), tree) for i, r in enumerate(routes)]
    scripts = {0: [(0, call([Part(SEND, channel=i, peer=i + 1) for i in range(len(routes))], *cargos))]}
    for i in range(len(routes)):
        scripts[i + 1] = [(0, call([Part(POST, channel=i, peer=0), Part(WAIT, channel=i)]))]
    return Simulation(costs, {0: 0}, Scripts.of(scripts), dict.fromkeys(scripts, 0)).run()


def test_a_link_serves_one_message_after_the_other() -> None:
    run = send_all([Route.along((0, 1)), Route.along((0, 1, 2))], 128)
    assert [run.leave[1] / NS, run.leave[2] / NS] == [164, 64 + 264]
    link = run.links[0, 1]
    assert (link.bytes, link.messages, link.busy, link.queueing, link.conflicts) == (
        256, 2, 128 * NS, 64 * NS, 1,
    )  # fmt: skip


def test_branches_of_a_tree_cross_a_link_once_and_wait_for_nobody() -> None:
    routes = [Route((Leg((0, 1, 2)),), 0), Route((Leg((0, 1, 4)),), 0)]
    run = send_all(routes, 128, merged=True)
    assert [run.leave[1] / NS, run.leave[2] / NS] == [264, 264]
    assert {link: use.bytes for link, use in run.links.items()} == {(0, 1): 128, (1, 2): 128, (1, 4): 128}
    assert all(use.conflicts == 0 for use in run.links.values())


def test_a_tree_reads_what_it_sends_once() -> None:
    """Two sends of the same 100 bytes of HBM count once, two messages of their own twice."""
    counts = []
    for number in (0, -1):
        sends = " ".join(f"send <- f32[25]@8192 channel={i} peer=1 route={i}" for i in (0, 1))
        programs, steps = parse_wsa(f"role 0 {{ procedure f(0) {{ {sends} }} }} step {{ call f() }}")
        routes = (Route((Leg((0, 1, 2)),), number), Route((Leg((0, 1, 4)),), number))
        streams = Streams(programs, steps, (0, 2), (0, 0), np.zeros((2, 0), np.int64), routes, 10**6)
        counts.append(Builder(streams, Costs.of(WAFER)).call(0, "f", ()).hbm_bytes)
    assert counts == [100, 200]


def test_each_call_sends_its_trees_again() -> None:
    """A step simulated whole takes two calls to be two sends: their bytes count twice."""
    sends = " ".join(f"send <- f32[25]@0 channel={i} peer={i + 1} route={i}" for i in (0, 1))
    takes = [f'post f32[25]@0 channel={i} peer=0 wait channel={i} side="received"' for i in (0, 1)]
    roles = " ".join(f"role {i} {{ procedure f(0) {{ {body} }} }}" for i, body in enumerate((sends, *takes)))
    programs, steps = parse_wsa(f"{roles} step {{ call f() call f() }}")
    routes = (Route((Leg((0, 1, 2)),), 0), Route((Leg((0, 1, 4)),), 0))
    streams = Streams(programs, steps, (0, 2, 4), (0, 1, 2), np.zeros((3, 0), np.int64), routes, 10**6)
    builder = Builder(streams, Costs.of(replace(WAFER, rows=2)))
    composed: Counter[tuple[int, int]] = Counter()
    for entry, times in Composer(builder).run().tally.items():
        assert isinstance(entry, Entry)
        composed.update({link: times * use.bytes for link, use in entry.links()})
    assert {link: use.bytes for link, use in whole(builder).links.items()} == composed
    assert composed == {(0, 1): 200, (1, 2): 200, (1, 4): 200}


def test_parts_of_a_message_arrive_when_the_last_does() -> None:
    """Two thirds along the row, one third around: 256 bytes are 170 and 86, 3 and 2 flits."""
    run = send_all([Route((Leg((0, 1, 2), 0, 2), Leg((0, 3, 4, 5, 2), 0, 1)))], 256)
    assert run.leave[1] / NS == max(200 + 96, 400 + 64)
    assert run.links[0, 1].bytes == 170
    assert run.links[0, 3].bytes == 86


def view(*shape: int, strides: tuple[int, ...] | None = None) -> Operand:
    dense = tuple(int(np.prod(shape[i + 1 :], dtype=object)) for i in range(len(shape)))
    return Operand(-1, 0, shape, strides or dense, DType.F32)


def gemm(c: Operand, a: Operand, b: Operand, accumulate: bool = False) -> Instruction:
    return Instruction("gemm", (c,), (a, b), (("scale", 1.0), ("accumulate", accumulate)))


def test_flops_and_tiles_of_a_gemm() -> None:
    did = work_of(gemm(view(2, 5, 9), view(2, 5, 4), view(2, 4, 9)), 4)
    assert (did.flops, did.tiled) == (2 * 2 * 5 * 9 * 4, 2 * 2 * 8 * 12 * 4)
    assert [r.bytes for r in did.reaches] == [360, 160, 288]


def test_rows_that_share_an_operand_are_one_product() -> None:
    """Three rows of one each with the same right side fill one tile, not three."""
    did = work_of(gemm(view(3, 1, 4), view(3, 1, 4), view(3, 4, 4, strides=(0, 4, 1))), 4)
    assert (did.flops, did.tiled) == (2 * 3 * 16, 2 * 4 * 16)
    assert [r.bytes for r in did.reaches] == [48, 48, 64]


def test_flops_and_bytes_beyond_63_bits_are_exact() -> None:
    n = 2**22 + 1
    did = work_of(gemm(view(n, n), view(n, n), view(n, n), accumulate=True), 1)
    assert did.flops == 2 * n**3 > 2**63
    assert did.reaches[0].bytes == 2 * 4 * n**2
    assert Costs.of(WAFER).compute(did.flops) == -(-did.flops * SECOND // (512 * 10**9))


def test_dies_that_wait_for_one_another_are_named() -> None:
    with pytest.raises(CompileError) as caught:
        ends(TAKE_100.format(at=0).replace("peer=0", "peer=1"), TAKE_100.format(at=0), CUT_THROUGH)
    assert caught.value.diagnostics[0].code is Code.DEADLOCK
    assert "die (0, 0) in instruction 1 waits on channel 0" in str(caught.value)
