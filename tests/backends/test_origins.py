"""Checked mode tells that a number is cast to a narrower type and back, which rounds it, though each cast is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.small_programs import code, failure, machine
from wscc.backends.interpreter.machine import Machine
from wscc.backends.interpreter.origins import GraphTypes
from wscc.diagnostics import Code
from wscc.ir.types import DType

X, Y, OUT = 0, 1024, 2048  # addresses of f32, bf16, f32
NARROW, WIDEN = "cast bf16[64]@a1 <- f32[64]@a0", "cast f32[64]@a2 <- bf16[64]@a1"


def loaded(*instructions: str) -> Machine:
    body = " ".join(instructions)
    m = machine(f"role 0 {{ procedure f(3) {{ {body} }} }} step {{ call f({X}, {Y}, {OUT}) }}", [0])
    fill(m, 0)
    return m


def fill(m: Machine, die: int) -> None:
    numbers = np.random.default_rng(0).normal(size=128).astype(np.float32)
    m.store(die, X, numbers[:64])
    m.store(die, Y, numbers.astype(DType.BF16.numpy))


ROUND_TRIPS = {
    "at once": (NARROW, WIDEN),
    "in parts": (NARROW, "cast f32[4]@a2 <- bf16[4]@a1+120"),
    "by another path": (NARROW, "copy bf16[64]@a1+256 <- bf16[64]@a1", "cast f32[64]@a2 <- bf16[64]@a1+256"),
    "what an instruction makes in bf16": ("gelu bf16[64]@a1 <- f32[64]@a0", WIDEN),
    "in place": (NARROW, "cast f32[64]@a0 <- bf16[64]@a1"),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_what_is_narrowed_and_widened_is_told(name: str) -> None:
    error = failure(loaded(*ROUND_TRIPS[name]))
    assert code(error) is Code.CHECK
    last = len(ROUND_TRIPS[name]) - 1
    assert f"die (0, 0), `f` instruction {last}: `cast` widens to f32" in str(error)


@pytest.mark.parametrize(
    "instructions",
    [
        (WIDEN,),  # what the host has written
        ("copy bf16[64]@a1+256 <- bf16[64]@a1", "cast f32[64]@a2 <- bf16[64]@a1+256"),
        (NARROW, "cast f32[4]@a2 <- bf16[4]@a1+128"),  # the bytes behind it
        (WIDEN, NARROW),  # another order
        (NARROW, "fill bf16[64]@a1 value=0.0", WIDEN),  # no rounding, whatever was there
    ],
)
def test_other_casts_pass(instructions: tuple[str, ...]) -> None:
    loaded(*instructions).run_step()


SUMS = "gemm f32[8,8]@a0 <- bf16[8,8]@a1, bf16[8,8]@a1 scale=1.0 accumulate=false"


@pytest.mark.parametrize(
    ("instructions", "says"),
    [
        ((SUMS, NARROW), ""),  # where they end
        ((SUMS, NARROW, WIDEN), "instruction 2: `cast` widens"),
        ((SUMS, "gelu f32[64]@a0 <- f32[64]@a0", NARROW), "instruction 2: `cast` narrows"),
        (("gelu f32[64]@a0 <- f32[64]@a0", NARROW), "instruction 1: `cast` narrows"),
    ],
)
def test_sums_of_products_are_rounded_once(instructions: tuple[str, ...], says: str) -> None:
    """In a graph whose products of bf16 are bf16."""
    m = replace(loaded(*instructions), types=GraphTypes(rounded=frozenset({DType.BF16})))
    fill(m, 0)
    if says:
        assert says in str(failure(m))
    else:
        m.run_step()


def test_the_host_may_write_over_what_is_narrowed() -> None:
    m = loaded(WIDEN, NARROW)
    for _ in range(2):
        fill(m, 0)
        m.run_step()
    assert code(failure(m)) is Code.CHECK  # now nothing has


def test_a_program_whose_graph_asks_for_it_passes() -> None:
    m = replace(loaded(), streams=loaded(NARROW, WIDEN).streams, types=None)
    fill(m, 0)
    m.run_step()


@pytest.mark.parametrize("narrows", [True, False])
def test_it_is_told_on_the_die_that_gets_it(narrows: bool) -> None:
    """The second message of a channel, where the first one is right."""
    first = f'{NARROW} send <- bf16[64]@a1 channel=0 peer=1 route=1 wait channel=0 side="sent"'
    other = first if narrows else first.removeprefix(NARROW)
    get = 'post bf16[8,8]@a1 channel=0 peer=0 wait channel=0 side="received"'
    m = machine(
        f"role 0 {{ procedure f(3) {{ {first.removeprefix(NARROW)} {other} }} }}"
        f"role 1 {{ procedure f(3) {{ {get} {WIDEN} {get} {WIDEN} }} }}"
        f"step {{ call f({X}, {Y}, {OUT}) }}",
        [0, 1],
    )
    fill(m, 0)
    if not narrows:
        m.run_step()
    else:
        assert "die (0, 1), `f` instruction 5: `cast` widens" in str(failure(m))
