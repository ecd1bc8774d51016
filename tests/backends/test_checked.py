"""Checked mode: every way to touch bytes that nothing has written, or that a message is using, is caught."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.small_programs import (
    EXCHANGE,
    POSTED,
    SENDER,
    SENT,
    SWAP,
    code,
    failure,
    machine,
    one,
    peek,
    poke,
)
from wscc.diagnostics import Code
from wscc.ir.types import DType

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
def test_checked_mode_catches(name: str) -> None:
    text, index, words = CAUGHT[name]
    error = failure(machine(text, [0, 1]))
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


def test_gaps_between_repeated_elements_are_not_read() -> None:
    """Elements 0 and 3, each twice: as many as the bytes from first to last have room for."""
    m = machine(one("fill f32[2;3]@0 value=1.0 copy f32[2,2]@1024 <- f32[2,2;3,0]@0"), [0])
    m.run_step()
    assert peek(m, 0, 1024, 4) == [1] * 4


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
