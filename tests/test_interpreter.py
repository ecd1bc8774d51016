"""The engine, by small programs written by hand: what arrives, what is refused, what is caught."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.backends import interpreter
from wscc.backends.host_io import initialise, read, write
from wscc.backends.interpreter import Machine
from wscc.diagnostics import Code, CompileError
from wscc.ir.artifact import HostTensor, Manifest
from wscc.ir.module import Init, Kind
from wscc.ir.program import Streams
from wscc.ir.train import Train
from wscc.ir.types import DType, Layout, Reduction, TensorType
from wscc.ir.wsa import parse_wsa

ARENA = 4096
Links = tuple[tuple[int, int], ...]


def manifest(rows: int, columns: int, **changes: Any) -> Manifest:
    plain = Manifest("test", (("x", rows * columns),), rows, columns, (), (), (), Train(1, 1), "")
    return replace(plain, **changes)


def straight(a: int, b: int, columns: int) -> tuple[int, ...]:
    """Along the row, then along the column."""
    path = [a]
    while path[-1] % columns != b % columns:
        path.append(path[-1] + (1 if path[-1] % columns < b % columns else -1))
    while path[-1] != b:
        path.append(path[-1] + (columns if path[-1] < b else -columns))
    return tuple(path)


def machine(
    text: str,
    roles: list[int],
    *,
    table: list[list[int]] | None = None,
    mesh: tuple[int, int] = (0, 0),
    routes: list[tuple[int, ...]] | None = None,
    checked: bool = True,
    threads: int = 1,
    **facts: Any,
) -> Machine:
    """Logical die i is physical die i of a row; route a * n + b leads from a to b."""
    n = len(roles)
    rows, columns = mesh if mesh[0] else (1, n)
    programs, step = parse_wsa(text)
    paths = routes if routes is not None else [straight(a, b, columns) for a in range(n) for b in range(n)]
    bindings = np.array(table if table is not None else [[]] * n, np.int64).reshape(n, -1)
    streams = Streams(programs, step, tuple(range(n)), tuple(roles), bindings, tuple(paths), ARENA)
    return Machine(streams, manifest(rows, columns, **facts), threads=threads, checked=checked)


def poke(m: Machine, die: int, address: int, *values: float) -> None:
    m.store(die, address, np.array(values, np.float32))


def peek(m: Machine, die: int, address: int, n: int) -> list[float]:
    return list(m.load(die, address, (n,), np.dtype(np.float32)))


def failure(m: Machine) -> CompileError:
    with pytest.raises(CompileError) as caught:
        m.run_step()
    return caught.value


def code(error: CompileError) -> Code:
    return error.diagnostics[0].code


# Two dies swap what they hold at 1024.
EXCHANGE = """
role 0 {
  procedure swap(1) {
    post f32[4]@0 channel=0 peer=$0
    send <- f32[4]@a0 channel=0 peer=$0 route=$1
    wait channel=0 side="received"
    wait channel=0 side="sent"
    copy f32[4]@a0 <- f32[4]@0
  }
}
step { call swap(1024) }
"""
SWAP = [[1, 1], [0, 2]]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_two_dies_exchange_what_they_hold(checked: bool, threads: int) -> None:
    m = machine(EXCHANGE, [0, 0], table=SWAP, checked=checked, threads=threads)
    poke(m, 0, 1024, 1, 2, 3, 4)
    poke(m, 1, 1024, 5, 6, 7, 8)
    m.run_step()
    assert peek(m, 0, 1024, 4) == [5, 6, 7, 8]
    assert peek(m, 1, 1024, 4) == [1, 2, 3, 4]
    m.run_step()
    assert peek(m, 0, 1024, 4) == [1, 2, 3, 4]
    assert m.traffic() == {(0, 1): 32, (1, 0): 32}
    assert m.peak_bytes() == (1040, 1040)


# Every die adds up what comes round: a ring of four on a 2 x 2 mesh. Twice, so that slots are used again.
RING = """
role 0 {
  procedure reduce(2) {
    copy f32[8,16]@0 <- f32[8,16]@a0
    copy f32[8,16]@a1 <- f32[8,16]@a0
    post f32[8,16]@512 channel=0 peer=$0
    send <- f32[8,16]@0 channel=0 peer=$1 route=$2
    wait channel=0 side="received"
    wait channel=0 side="sent"
    add f32[8,16]@a1 <- f32[8,16]@a1, f32[8,16]@512
    copy f32[8,16]@0 <- f32[8,16]@512
    post f32[8,16]@512 channel=1 peer=$0
    send <- f32[8,16]@0 channel=1 peer=$1 route=$2
    wait channel=1 side="sent"
    wait channel=1 side="received"
    add f32[8,16]@a1 <- f32[8,16]@a1, f32[8,16]@512
    copy f32[8,16]@0 <- f32[8,16]@512
    post f32[8,16]@512 channel=0 peer=$0
    send <- f32[8,16]@0 channel=0 peer=$1 route=$2
    wait channel=0 side="received"
    add f32[8,16]@a1 <- f32[8,16]@a1, f32[8,16]@512
    wait channel=0 side="sent"
  }
}
step { loop i 2 { call reduce(1024 + 512*[i], 2048 + 512*[i]) } }
"""
ROUND = [(0, 1), (1, 3), (3, 2), (2, 0)]


def ring(threads: int, checked: bool = False) -> Machine:
    after = {0: 1, 1: 3, 3: 2, 2: 0}
    before = {v: k for k, v in after.items()}
    table = [[before[d], after[d], [a for a, _ in ROUND].index(d)] for d in range(4)]
    m = machine(RING, [0] * 4, table=table, mesh=(2, 2), routes=list(ROUND), threads=threads, checked=checked)
    rng = np.random.default_rng(0)
    for die in range(4):
        poke(m, die, 1024, *rng.standard_normal(256))
    return m


def test_a_ring_relays_until_all_have_the_sum() -> None:
    m = ring(1, checked=True)
    given_ = np.array([peek(m, d, 1024, 256) for d in range(4)])
    m.run_step()
    for die in range(4):
        assert np.allclose(peek(m, die, 2048, 256), given_.sum(0), atol=1e-6)
    assert m.traffic() == {link: 2 * 3 * 512 for link in sorted(ROUND)}


def test_threads_do_not_change_a_bit() -> None:
    results = []
    for threads in (1, 2, 4):
        m = ring(threads)
        for _ in range(5):
            m.run_step()
        results.append([m.load(d, 0, (ARENA,), np.dtype(np.uint8)).tobytes() for d in range(4)])
    assert results[0] == results[1] == results[2]


def test_a_message_keeps_row_major_order_between_views_of_different_shapes() -> None:
    text = """
    role 0 { procedure f(1) { send <- f32[2,3;1,2]@a0 channel=0 peer=1 route=1  wait channel=0 side="sent" } }
    role 1 { procedure f(1) { post f32[3,2;1,4]@a0 channel=0 peer=0  wait channel=0 side="received" } }
    step { call f(1024) }
    """
    m = machine(text, [0, 1])
    poke(m, 0, 1024, *range(6))  # as [2,3]: 0 2 4 / 1 3 5
    m.run_step()
    slot = np.ndarray((3, 2), np.float32, m.load(1, 1024, (3,), np.dtype(np.float32)).data, 0, (4, 0))[:, 0]
    assert list(slot) == [0, 4, 3]
    assert peek(m, 1, 1024 + 16, 3) == [2, 1, 5]


def test_a_message_fills_a_contiguous_slot_in_row_major_order() -> None:
    text = """
    role 0 { procedure f(1) { send <- f32[2,3;1,2]@a0 channel=0 peer=1 route=1  wait channel=0 side="sent" } }
    role 1 { procedure f(1) { post f32[6]@a0 channel=0 peer=0  wait channel=0 side="received" } }
    step { call f(1024) }
    """
    m = machine(text, [0, 1])
    poke(m, 0, 1024, *range(6))
    m.run_step()
    assert peek(m, 1, 1024, 6) == [0, 2, 4, 1, 3, 5]


# Die 0 is a whole call ahead: it sends before die 1 posts, which first has to hear from die 2.
AHEAD = """
role 0 {
  procedure a(0) { fill f32[2]@0 value=1.0  send <- f32[2]@0 channel=0 peer=1 route=1 }
  procedure b(0) {
    wait channel=0 side="sent"
    fill f32[2]@8 value=2.0
    send <- f32[2]@8 channel=0 peer=1 route=1
    wait channel=0 side="sent"
  }
}
role 1 {
  procedure a(0) { post f32[1]@64 channel=5 peer=2  wait channel=5 side="received" }
  procedure b(0) { post f32[2]@1024 channel=0 peer=0  wait channel=0 side="received"
                   post f32[2]@1032 channel=0 peer=0  wait channel=0 side="received" }
}
role 2 {
  procedure a(0) { }
  procedure b(0) {
    fill f32[1]@0 value=0.0
    send <- f32[1]@0 channel=5 peer=1 route=7
    wait channel=5 side="sent"
  }
}
step { call a() call b() }
"""


@pytest.mark.parametrize("checked", [False, True])
def test_a_sender_may_run_ahead_and_messages_keep_their_order(checked: bool) -> None:
    m = machine(AHEAD, [0, 1, 2], checked=checked)
    m.run_step()
    assert peek(m, 1, 1024, 4) == [1, 1, 2, 2]


def test_dies_that_wait_in_a_circle_are_named() -> None:
    text = """
    role 0 { procedure f(0) {
      fill f32[2]@0 value=1.0
      post f32[2]@64 channel=3 peer=$0
      wait channel=3 side="received"
      send <- f32[2]@0 channel=3 peer=$1 route=$2
      wait channel=3 side="sent"
    } }
    step { call f() }
    """
    error = failure(machine(text, [0, 0, 0], table=[[2, 1, 1], [0, 2, 5], [1, 0, 6]]))
    assert code(error) is Code.DEADLOCK
    message = error.diagnostics[0].message
    for die, peer in (("(0, 0)", "(0, 2)"), ("(0, 2)", "(0, 1)"), ("(0, 1)", "(0, 0)")):
        assert f"die {die} in `f` instruction 2 waits on channel 3 for die {peer} to send one" in message


def test_a_die_that_only_waits_for_the_circle_is_not_in_it() -> None:
    text = """
    role 0 { procedure f(0) { post f32[1]@0 channel=$2 peer=$0 wait channel=$2 side="received" } }
    step { call f() }
    """
    error = failure(machine(text, [0, 0, 0], table=[[1, 0, 0], [2, 0, 1], [1, 0, 2]]))
    message = error.diagnostics[0].message
    assert "die (0, 1) in `f`" in message
    assert "die (0, 2) in `f`" in message
    assert "die (0, 0)" not in message


def test_a_message_that_nobody_posts_for_is_named() -> None:
    text = """
    role 0 { procedure f(0) { fill f32[2]@0 value=1.0  send <- f32[2]@0 channel=3 peer=1 route=1
                              wait channel=3 side="sent" } }
    role 1 { procedure f(0) { } }
    step { call f() }
    """
    for threads in (1, 2):
        error = failure(machine(text, [0, 1], threads=threads))
        assert code(error) is Code.DEADLOCK
        assert "die (0, 0) in `f` instruction 2 waits on channel 3 for die (0, 1) to take" in str(error)
        assert "die (0, 1) has ended" in str(error)


def one(body: str, peer: str = 'post f32[2]@1024 channel=0 peer=0 wait channel=0 side="received"') -> str:
    """Die 0 runs `body`, die 1 the other half of an exchange on channel 0."""
    roles = [f"role {i} {{ procedure f(0) {{ {text} }} }}" for i, text in enumerate((body, peer))]
    return " ".join([*roles, "step { call f() }"])


SENT = "fill f32[2]@0 value=1.0 send <- f32[2]@0 channel=0 peer=1 route=1"
POSTED = "post f32[2]@0 channel=0 peer=1"
SENDER = 'fill f32[2]@1024 value=1.0 send <- f32[2]@1024 channel=0 peer=0 route=2 wait channel=0 side="sent"'

CAUGHT = {
    "unwritten local": (one("copy f32[2]@0 <- f32[2]@64"), 0, "`x` reads bytes that nothing has written"),
    "half written": (
        one("fill f32[1]@64 value=0.0 copy f32[2]@0 <- f32[2]@64"), 1, "`x` reads bytes",
    ),
    "accumulates into nothing": (
        one('fill f32[4]@64 value=0.0 sum f32[]@0 <- f32[4]@64 axes="0" accumulate=true'), 1, "`y` reads",
    ),
    "overwrites what is sent": (
        one(SENT + ' fill f32[1]@4 value=0.0 wait channel=0 side="sent"'), 2, "`y` overwrites bytes",
    ),
    "writes into a granted slot": (one(POSTED + " fill f32[1]@4 value=0.0", SENDER), 1, "overwrites a slot"),
    "reads before the wait": (
        one(POSTED + ' copy f32[1]@64 <- f32[1]@4 wait channel=0 side="received"', SENDER), 1, "reads a slot",
    ),
    "grants what is sent": (
        one(SENT + " post f32[2]@4 channel=1 peer=1"), 2, "`slot` overwrites bytes of a message",
    ),
    "sends nothing": (one("send <- f32[2]@0 channel=0 peer=1 route=1"), 0, "`x` reads bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
@pytest.mark.parametrize("threads", [1, 2])
def test_checked_mode_catches(name: str, threads: int) -> None:
    text, index, words = CAUGHT[name]
    error = failure(machine(text, [0, 1], threads=threads))
    assert code(error) is Code.CHECK
    assert f"die (0, 0), `f` instruction {index}: " in str(error)
    assert words in str(error)


def test_bytes_are_free_again_after_the_wait() -> None:
    body = SENT + ' wait channel=0 side="sent" fill f32[2]@0 value=3.0 copy f32[2]@1024 <- f32[2]@0'
    m = machine(one(body), [0, 1])
    m.run_step()
    assert peek(m, 0, 1024, 2) == [3, 3]
    assert peek(m, 1, 1024, 2) == [1, 1]


def test_one_source_may_be_sent_twice_at_once() -> None:
    """The bytes stay pinned until the second message has left too."""
    waits = 'wait channel=0 side="sent" fill f32[1]@0 value=0.0 wait channel=1 side="sent"'
    takes = (
        "post f32[2]@1024 channel=0 peer=0 post f32[2]@1040 channel=1 peer=0 "
        'wait channel=0 side="received" wait channel=1 side="received"'
    )
    both = SENT + " send <- f32[2]@0 channel=1 peer=1 route=1 "
    error = failure(machine(one(both + waits, takes), [0, 1]))
    assert code(error) is Code.CHECK
    machine(one(both + 'wait channel=0 side="sent" wait channel=1 side="sent"', takes), [0, 1]).run_step()


def test_repeated_elements_are_checked_and_sent_as_the_bytes_they_are() -> None:
    takes = 'post f32[2,3]@1024 channel=0 peer=0 wait channel=0 side="received"'
    body = (
        "fill f32[3]@0 value=1.0 send <- f32[2,3;0,1]@0 channel=0 peer=1 route=1 "
        'wait channel=0 side="sent" fill f32[3]@0 value=2.0'
    )
    m = machine(one(body, takes), [0, 1])
    m.run_step()
    assert peek(m, 1, 1024, 6) == [1] * 6
    assert m.traffic() == {(0, 1): 24}


@pytest.mark.parametrize("reader", [0, 1])
def test_locals_are_forgotten_in_every_call_also_after_a_wait(reader: int) -> None:
    """One of the two dies has to wait in `f`, whichever runs first; its call of `g` starts afresh."""
    f = EXCHANGE.split("{", 2)[2].split("}")[0].replace("copy f32[4]@a0 <- f32[4]@0", "")
    roles = [f"role {i} {{ procedure swap(1) {{ {f} }} procedure g(1) {{ %s }} }}" for i in range(2)]
    text = roles[reader] % "copy f32[4]@a0 <- f32[4]@0" + roles[1 - reader] % ""
    m = machine(text + "step { call swap(1024) call g(1024) }", [0, 1], table=SWAP)
    for die in range(2):
        poke(m, die, 1024, 1, 2, 3, 4)
    error = failure(m)
    assert code(error) is Code.CHECK
    assert "`g` instruction 0: `x` reads bytes" in str(error)


def test_the_peak_counts_what_instructions_write() -> None:
    m = machine("role 0 { procedure f(1) { fill f32[2,2;8,1]@a0+64 value=1.0 } } step { call f(1024) }", [0])
    assert m.peak_bytes() == (0,)
    m.run_step()
    assert m.peak_bytes() == (1024 + 64 + 32 + 8,)


def test_what_an_earlier_call_left_is_unwritten_again() -> None:
    text = """role 0 {
      procedure f(0) { fill f32[2]@0 value=1.0 }
      procedure g(0) { copy f32[2]@64 <- f32[2]@0 }
      procedure h(1) { copy f32[2]@64 <- f32[2]@a0 }
    }
    step { call f() call %s }"""
    error = failure(machine(text % "g()", [0]))
    assert code(error) is Code.CHECK
    assert "`g` instruction 0" in str(error)
    m = machine(text % "h(1024)", [0])
    poke(m, 0, 1024, 1, 2)
    m.run_step()


def test_poison_shows_where_checks_do_not_look() -> None:
    m = machine(one(""), [0, 1])
    arena = m._memories[0].arena
    assert np.isnan(arena.view(np.float32)).all()
    assert np.isnan(arena.view(np.float64)).all()
    assert np.isnan(arena.view(DType.BF16.numpy).astype(np.float32)).all()
    assert (arena.view(np.int32) < -1000).all()


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "dead link": (EXCHANGE, {"dead_links": ((0, 1),)}, "dead"),
    "wrong way": (EXCHANGE, {"table": [[1, 2], [0, 1]]}, "does not lead from die (0, 0) to die (0, 1)"),
    "no such route": (EXCHANGE, {"table": [[1, 9], [0, 2]]}, "route 9 of 4"),
    "no link": (
        EXCHANGE,
        {"mesh": (1, 4), "axes": (("x", 2),), "routes": [(), (0, 2, 1), (1, 0)]},
        "no link of the wafer",
    ),
    "off the mesh": (EXCHANGE, {"mesh": (1, 2), "routes": [(), (0, -1, 1), (1, 0)]}, "no link of the wafer"),
    "to itself": (EXCHANGE, {"table": [[0, 1], [0, 2]]}, "no other die"),
    "to nobody": (EXCHANGE, {"table": [[-1, 1], [0, 2]]}, "no other die"),
    "no such column": (EXCHANGE, {"table": [[1], [0]]}, "column 1"),
    "dead die": (EXCHANGE, {"dead_dies": (1,)}, "dead"),
    "no role": (EXCHANGE.replace("role 0", "role 7"), {}, "role"),
    "another number of dies": (EXCHANGE, {"axes": (("x", 3),)}, "3 dies"),
    "no procedure": (EXCHANGE.replace("call swap", "call swop"), {}, "no procedure `swop` of 1"),
    "arguments": (EXCHANGE.replace("(1024)", "(1024, 0)"), {}, "no procedure `swap` of 2"),
    "beyond the arena": (EXCHANGE.replace("(1024)", "(4088)"), {}, "4088 to 4104"),
    "one operand beyond": (
        EXCHANGE.replace("copy f32[4]@a0", "fill f32[1]@a0+3072 value=0.0 copy f32[4]@a0"),
        {},
        "1024 to 4100",
    ),
    "before the arena": (EXCHANGE.replace("(1024)", "(-8)"), {}, "-8 to 8"),
    "local beyond": (EXCHANGE.replace("<- f32[4]@0", "<- f32[4]@4096"), {}, "4096 to 4112"),
    "stride beyond": (EXCHANGE.replace("<- f32[4]@0", "<- f32[4;1000]@0"), {}, "0 to 12004"),
    "not aligned": (EXCHANGE.replace("<- f32[4]@0", "<- f32[4]@2"), {}, "not aligned"),
    "argument not aligned": (EXCHANGE.replace("(1024)", "(1026)"), {}, "not aligned"),
    "shapes": (EXCHANGE.replace("copy f32[4]@a0", "copy f32[3]@a0"), {}, "`*` is [3] and [4]"),
    "argument number": (EXCHANGE.replace("copy f32[4]@a0", "copy f32[4]@a1"), {}, "argument 1 of 1"),
    "side": (EXCHANGE.replace('"sent"', '"gone"'), {}, "not `gone`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_load_refuses(name: str) -> None:
    text, facts, words = REFUSED[name]
    with pytest.raises(CompileError) as caught:
        machine(text, [0, 0], **{"table": SWAP, **facts})
    assert code(caught.value) is Code.ARTIFACT
    assert words in str(caught.value)


def test_a_route_may_go_around_a_dead_link() -> None:
    facts: dict[str, Any] = {
        "mesh": (2, 2),
        "dead_links": ((0, 1),),
        "routes": [(), (0, 2, 3, 1), (1, 3, 2, 0)],
    }
    m = machine(EXCHANGE, [0, 0], table=SWAP, axes=(("x", 2),), **facts)
    poke(m, 0, 1024, 1, 2, 3, 4)
    poke(m, 1, 1024, 5, 6, 7, 8)
    m.run_step()
    assert m.traffic() == {link: 16 for link in [(0, 2), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)]}


MISUSED = {
    "another size": (one(SENT + ' wait channel=0 side="sent"').replace(
        "post f32[2]", "post f32[3]"), "arrives in a slot of 3"),
    "another type": (one(SENT + ' wait channel=0 side="sent"').replace("post f32", "post i32"), "int32"),
    "second send": (one(SENT + " send <- f32[2]@0 channel=0 peer=1 route=1"), "second `send` on channel 0"),
    "wait for nothing": (one('wait channel=0 side="sent"'), "nothing was begun"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSED)
def test_an_instruction_that_cannot_be_executed_is_named(name: str) -> None:
    text, words = MISUSED[name]
    error = failure(machine(text, [0, 1], checked=False))
    assert code(error) is Code.ARTIFACT
    assert words in str(error)
    assert "`f` instruction" in str(error)


def test_operands_that_no_kernel_can_use_are_an_error_with_a_place() -> None:
    text = (
        "role 0 { procedure f(0) { fill i32[2]@0 value=0 cast f32[2]@8 <- i32[2]@0 %s } } step { call f() }"
    )
    error = failure(machine(text % "add i32[2]@16 <- f32[2]@8, f32[2]@8", [0]))
    assert code(error) is Code.ARTIFACT
    assert "die (0, 0), `f` instruction 2: its operands do not fit it" in str(error)


def test_columns_give_attributes_and_addresses_by_die() -> None:
    text = """role 0 { procedure f(1) {
      fill f32[2]@$0 value=$1
      copy f32[2]@a0+$2 <- f32[2]@$0
    } } step { call f(1024) }"""
    m = machine(text, [0, 0], table=[[0, 5, 8], [64, 6, 16]])
    m.run_step()
    assert peek(m, 0, 1032, 2) == [5, 5]
    assert peek(m, 1, 1040, 2) == [6, 6]


def test_prepared_instructions_may_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_KEPT", 4)
    m, n = ring(1), ring(1)
    monkeypatch.setattr(interpreter, "_KEPT", 1 << 20)
    for each in (m, n):
        each.run_step()
        each.run_step()
    assert peek(m, 2, 2048, 256) == peek(n, 2, 2048, 256)


# ------------------------------------------------------------------------------------------------ the host
AXES = (("a", 2), ("b", 3))


def host(type: TensorType, std: float = 0.0) -> Machine:
    init = Init("normal", std) if std else Init()
    t = HostTensor("w", Kind.PARAM, type, (2,), 256, 512, init)
    return machine("role 0 { } step { }", [0] * 6, axes=AXES, tensors=(t,), mesh=(2, 3))


@given(
    st.permutations(["a", "b"]).flatmap(
        lambda order: st.tuples(
            *[st.sampled_from([0, 1, 2]) for _ in order], st.just(tuple(order)), st.booleans(), st.booleans()
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_what_the_host_writes_it_reads(where: tuple[int, int, tuple[str, ...], bool, bool]) -> None:
    """Axes split dimension 0 or 1, or (2) neither: then they hold replicas, or parts of a sum."""
    *dims, order, partial, maximum = where
    split = tuple(tuple(a for a in order if dims[order.index(a)] == d) for d in (0, 1))
    rest = sorted(a for a in order if dims[order.index(a)] == 2)
    kind = Reduction.MAX if maximum else Reduction.SUM
    layout = Layout(split, tuple((a, kind) for a in rest) if partial else ())
    m = host(TensorType((6, 12), DType.F32, layout))
    value = np.arange(72, dtype=np.float32).reshape(6, 12) - 30
    write(m, "w", (1,), value)
    assert np.array_equal(read(m, "w", (1,)), value)
    with pytest.raises(CompileError, match="nothing wrote"):
        read(m, "w", (0,))


def test_slices_follow_the_coordinates_major_axis_first() -> None:
    m = host(TensorType((6,), DType.F32, Layout((("b", "a"),))))
    write(m, "w", (0,), np.arange(6, dtype=np.float64))
    assert [m.load(d, 256, (1,), np.dtype(np.float32))[0] for d in range(6)] == [0, 2, 4, 1, 3, 5]


def test_replicas_that_differ_are_an_error() -> None:
    m = host(TensorType((6,), DType.F32, Layout((("a",),))))
    write(m, "w", (0,), np.arange(6.0))
    poke(m, 4, 256, 3, 4, 99)
    with pytest.raises(CompileError, match=r"die \(1, 1\) holds another replica of `w`"):
        read(m, "w", (0,))


def test_partial_parts_are_summed_and_checked_as_replicas() -> None:
    m = host(TensorType((2,), DType.F32, Layout(((),), (("a", Reduction.SUM),))))
    for die in range(6):
        poke(m, die, 256, die // 3 + 1, 10)
    assert list(read(m, "w", (0,))) == [3, 20]


def test_weights_are_the_same_whatever_the_layout() -> None:
    layouts = [Layout(((), ())), Layout((("b",), ("a",))), Layout((("a", "b"), ()))]
    machines = [host(TensorType((6, 4), DType.F32, layout), std=0.1) for layout in layouts]
    for m in machines:
        initialise(m, 7)
    values = [[read(m, "w", (i,)) for i in range(2)] for m in machines]
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2])
    assert not np.array_equal(values[0][0], values[0][1])
    assert 0.03 < np.std(values[0]) < 0.3


def test_the_host_refuses_names_shapes_and_elements_that_are_not_there() -> None:
    m = host(TensorType((6,), DType.F32))
    for call in (
        lambda: write(m, "v", (0,), np.zeros(6)),
        lambda: write(m, "w", (0,), np.zeros(5)),
        lambda: write(m, "w", (2,), np.zeros(6)),
        lambda: read(m, "w", ()),
    ):
        with pytest.raises(CompileError):
            call()


def test_a_failure_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    failure(machine(CAUGHT["unwritten local"][0], [0, 1], threads=2))
    assert threading.active_count() == before
