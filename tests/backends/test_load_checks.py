"""Refusals of malformed programs before they are run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.small_programs import EXCHANGE, SWAP, code, machine, poke
from wscc.backends.interpreter.kernels.table import SEMANTICS
from wscc.backends.interpreter.load_checks import loaded
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError

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
    "to itself": (EXCHANGE, {"table": [[0, 1], [0, 2]]}, "does not lead from die (0, 0) to die (0, 0)"),
    "to nobody": (EXCHANGE, {"table": [[-1, 1], [0, 2]]}, "which is no die"),
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
    "width of rope": (
        EXCHANGE.replace(
            "copy f32[4]@a0 ",
            "rope f32[1,1,4]@a0 <- f32[1,1,4]@a0 theta=9.0 sign=1.0 start=0 width=6 factor=1.0 low=1.0 high=4.0 "
            "original=0.0 interleaved=0 copy f32[4]@a0 ",
        ),
        {},
        "turns 6 elements of 4",
    ),
    # Instructions of one form are checked together, but for the values of their attributes: True is equal to 1.
    "a number for a flag": (
        EXCHANGE.replace(
            "copy f32[4]@a0 ",
            "gemm f32[2,2]@a0 <- f32[2,2]@0, f32[2,2]@0 scale=1.0 accumulate=true "
            "gemm f32[2,2]@a0 <- f32[2,2]@0, f32[2,2]@0 scale=1.0 accumulate=1 copy f32[4]@a0 ",
        ),
        {},
        "`gemm` has accumulate=1",
    ),
    "half a peer": (
        EXCHANGE.replace(
            'wait channel=0 side="sent"', 'wait channel=0 side="sent" post f32[4]@512 channel=1 peer=0.5'
        ),
        {},
        "`post` has peer=0.5",
    ),
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


def test_dies_that_this_computer_cannot_hold_are_refused() -> None:
    m = machine(EXCHANGE, [0, 0], table=SWAP)
    with pytest.raises(CompileError) as caught:
        Machine(replace(m.streams, arena_bytes=1 << 50), m.manifest)
    assert code(caught.value) is Code.OUT_OF_MEMORY


def test_programs_are_checked_once_and_have_the_kernels_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    m = machine(EXCHANGE, [0, 0], table=SWAP)
    first = loaded(m.streams, m.manifest)
    assert loaded(m.streams, m.manifest) is first
    assert loaded(m.streams, replace(m.manifest)) is not first
    first = loaded(m.streams, m.manifest)
    monkeypatch.setitem(SEMANTICS, "copy", lambda *_: None)
    assert loaded(m.streams, m.manifest) is not first
