"""The engine, by small programs written by hand: what arrives, in which order, and who is stuck."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
import pytest

from tests.support.small_programs import ARENA, EXCHANGE, SENT, SWAP, code, failure, machine, one, peek, poke
from wscc.backends.interpreter import blas, dies
from wscc.backends.interpreter.blas import limit_blas_to_one_thread
from wscc.backends.interpreter.kernels.table import SEMANTICS
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code


@pytest.mark.parametrize(("checked", "threads"), [(True, 1), (False, 1), (False, 2)])
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


@pytest.mark.parametrize("checked", [True, False])
def test_the_memory_of_a_machine_goes_with_it(checked: bool) -> None:
    """At once: nothing waits for a search for cycles, which tests never do and a long search for strategies seldom."""
    m = machine(EXCHANGE, [0, 0], table=SWAP, checked=checked)
    for die in (0, 1):
        poke(m, die, 1024, 1, 2, 3, 4)
    m.run_step()
    memory = weakref.ref(m._arenas)
    del m
    assert memory() is None


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


@pytest.mark.parametrize("threads", [1, 2])
def test_a_message_keeps_row_major_order_between_views_of_different_shapes(threads: int) -> None:
    text = """
    role 0 { procedure f(1) { send <- f32[2,3;1,2]@a0 channel=0 peer=1 route=1  wait channel=0 side="sent" } }
    role 1 { procedure f(1) { post f32[3,2;1,4]@a0 channel=0 peer=0  wait channel=0 side="received" } }
    step { call f(1024) }
    """
    m = machine(text, [0, 1], checked=threads == 1, threads=threads)
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


@pytest.mark.parametrize(("checked", "threads"), [(True, 1), (False, 1), (False, 2), (False, 3)])
def test_a_sender_may_run_ahead_and_messages_keep_their_order(checked: bool, threads: int) -> None:
    m = machine(AHEAD, [0, 1, 2], checked=checked, threads=threads)
    m.run_step()
    assert peek(m, 1, 1024, 4) == [1, 1, 2, 2]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_dies_that_wait_in_a_circle_are_named(threads: int) -> None:
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
    table = [[2, 1, 1], [0, 2, 5], [1, 0, 6]]
    error = failure(machine(text, [0, 0, 0], table=table, checked=False, threads=threads))
    assert code(error) is Code.DEADLOCK
    message = error.diagnostics[0].message
    for die, peer in (("(0, 0)", "(0, 2)"), ("(0, 2)", "(0, 1)"), ("(0, 1)", "(0, 0)")):
        assert f"die {die} in `f` instruction 2 waits on channel 3 for die {peer} to send one" in message


def test_a_die_that_only_waits_for_the_circle_is_not_in_it() -> None:
    text = """
    role 0 { procedure f(0) { post f32[1]@0 channel=0 peer=$0 wait channel=0 side="received" } }
    step { call f() }
    """
    error = failure(machine(text, [0, 0, 0], table=[[1], [2], [1]]))
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
        error = failure(machine(text, [0, 1], checked=False, threads=threads))
        assert code(error) is Code.DEADLOCK
        assert "die (0, 0) in `f` instruction 2 waits on channel 3 for die (0, 1) to take" in str(error)
        assert "die (0, 1) has ended" in str(error)


def test_the_peak_counts_what_instructions_write() -> None:
    m = machine("role 0 { procedure f(1) { fill f32[2,2;8,1]@a0+64 value=1.0 } } step { call f(1024) }", [0])
    assert m.peak_bytes() == (0,)
    m.run_step()
    assert m.peak_bytes() == (1024 + 64 + 32 + 8,)


def test_blas_runs_on_one_thread() -> None:
    if limit_blas_to_one_thread():
        libraries = [ctypes.CDLL(path) for path in blas._libraries()]
        getters = [getattr(x, "scipy_openblas_get_num_threads64_", None) for x in libraries]
        assert all(get() == 1 for get in getters if get is not None)


MISUSED = {
    "another size": (one(SENT + ' wait channel=0 side="sent"').replace(
        "post f32[2]", "post f32[3]"), "arrives in a slot of 3"),
    "another type": (one(SENT + ' wait channel=0 side="sent"').replace("post f32", "post i32"), "int32"),
    "second send": (one(SENT + " send <- f32[2]@0 channel=0 peer=1 route=1"), "second `send` on channel 0"),
    "wait for nothing": (one('wait channel=0 side="sent"'), "nothing was begun"),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MISUSED)
def test_an_instruction_that_cannot_be_executed_is_named(name: str, threads: int) -> None:
    text, words = MISUSED[name]
    error = failure(machine(text, [0, 1], checked=False, threads=threads))
    assert code(error) is Code.ARTIFACT
    assert words in str(error)
    assert "`f` instruction" in str(error)


def test_what_a_kernel_cannot_do_is_an_error_with_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("shapes")

    monkeypatch.setitem(SEMANTICS, "copy", fails)
    text = "role 0 { procedure f(0) { fill f32[2]@0 value=0 copy f32[2]@8 <- f32[2]@0 } } step { call f() }"
    error = failure(machine(text, [0]))
    assert code(error) is Code.ARTIFACT
    assert "die (0, 0), `f` instruction 1: its operands do not fit it" in str(error)


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
    monkeypatch.setattr(dies, "_MOST_PREPARED", 4)
    m, n = ring(1), ring(1)
    monkeypatch.setattr(dies, "_MOST_PREPARED", 1 << 20)
    for each in (m, n):
        each.run_step()
        each.run_step()
    assert peek(m, 2, 2048, 256) == peek(n, 2, 2048, 256)
