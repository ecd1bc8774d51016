"""`schedule`: in any interleaving of dies and messages, memory ends as in the order of the input."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.fabric_engine import assert_same, initial_state, run_in_order, run_scheduled
from tests.support.fabric_modules import CASES, DTYPE, Case, module_of, some
from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, at, per_die
from wscc.ir.views import View
from wscc.passes.base import Pass
from wscc.passes.form_phases import FormPhases
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule

schedules = st.builds(Schedule, overlap=st.booleans(), ahead=st.integers(0, 3), window=st.integers(0, 9))


def run(module: Module, *passes: Pass) -> Module:
    for p in passes:
        module = p.run(module)
    return module


@some
@given(CASES, schedules, st.booleans(), st.integers(0, 999))
def test_the_outcome_is_that_of_the_sequential_body(
    case: Case, schedule: Schedule, merge: bool, seed: int
) -> None:
    module = case.module
    scheduled = run(module, FormPhases(merge=merge), Route(), schedule)
    state = initial_state(module, seed)
    assert_same(run_in_order(module, state), run_scheduled(scheduled, state, Random(seed)))


@some
@given(CASES, schedules)
def test_posts_and_sends_stand_above_their_waits(case: Case, schedule: Schedule) -> None:
    """With this, no interleaving can deadlock (see the docstring of `Schedule`)."""
    module = case.module
    for before, after in zip(
        module.procedures, run(module, FormPhases(), Route(), schedule).procedures, strict=True
    ):
        position: dict[tuple[type, int, bool], int] = {}
        for i, s in enumerate(after.body):
            if isinstance(s, Post | Send | Wait):
                key = (type(s), s.channel, isinstance(s, Wait) and s.sent)
                assert key not in position
                position[key] = i
        sent = [s for s in before.body if isinstance(s, Transfer) and s.pairs(module.dies_used)]
        assert len(position) == 4 * len(sent)
        for t in sent:
            first_wait = min(position[Wait, t.channel, side] for side in (True, False))
            assert max(position[Post, t.channel, False], position[Send, t.channel, False]) < first_wait
        assert [s for s in after.body if isinstance(s, Kernel)] == [
            s for s in before.body if isinstance(s, Kernel)
        ]


@some
@given(CASES, schedules)
def test_both_ends_of_each_message_agree(case: Case, schedule: Schedule) -> None:
    module = case.module
    scheduled = run(module, FormPhases(), Route(), schedule)
    for before, after in zip(module.procedures, scheduled.procedures, strict=True):
        expected = {
            (s.channel, i, j)
            for s in before.body
            if isinstance(s, Transfer)
            for i, j in s.pairs(module.dies_used)
        }
        dies = range(module.dies_used)
        ends: dict[str, set[tuple[int, int, int]]] = {"post": set(), "send": set()}
        waits = {True: set(), False: set()}
        for s in after.body:
            match s:
                case Post():
                    ends["post"] |= {(s.channel, i, d) for d in dies if (i := at(s.sender, d)) != NOBODY}
                case Send():
                    ends["send"] |= {(s.channel, d, j) for d in dies if (j := at(s.to, d)) != NOBODY}
                    path_ends = [
                        (module.dies[d], module.dies[at(s.to, d)]) for d in dies if at(s.to, d) != NOBODY
                    ]
                    paths = [scheduled.routes[at(s.route, d)] for d in dies if at(s.to, d) != NOBODY]
                    assert [p.ends for p in paths] == path_ends
                case Wait():
                    waits[s.sent] |= {(s.channel, d) for d in dies if at(s.where, d)}
        assert ends["post"] == ends["send"] == expected
        assert waits[True] == {(c, i) for c, i, _ in expected}
        assert waits[False] == {(c, j) for c, _, j in expected}


@some
@given(CASES, schedules)
def test_sends_follow_the_arrivals_of_earlier_phases(case: Case, schedule: Schedule) -> None:
    module = case.module
    phased = run(module, FormPhases(), Route())
    for before, after in zip(phased.procedures, schedule.run(phased).procedures, strict=True):
        phase = {s.channel: s.phase for s in before.body if isinstance(s, Transfer)}
        arrived: set[int] = set()
        for s in after.body:
            if isinstance(s, Wait) and not s.sent:
                arrived.add(s.channel)
            if isinstance(s, Send):
                earlier = {s2.channel for s2 in after.body if isinstance(s2, Send)}
                assert {c for c in earlier if phase[c] < phase[s.channel]} <= arrived


def whole(buffer: str) -> View:
    return View(buffer, 0, (8,), (1,), DTYPE)


def words(body: tuple[FabricStmt, ...]) -> list[str]:
    """Each statement as a word: the opcode of a kernel, or `post 0`, `send 0`, `received 0`, `sent 0`."""
    spelled = []
    for s in body:
        match s:
            case Kernel():
                spelled.append(s.source or s.opcode)
            case Wait():
                spelled.append(f"{'sent' if s.sent else 'received'} {s.channel}")
            case Post() | Send():
                spelled.append(f"{type(s).__name__.lower()} {s.channel}")
    return spelled


SWAP = per_die((1, 0))


def kernel(name: str, write: str, *reads: str) -> Kernel:
    opcode = "copy" if len(reads) == 1 else "add"
    return Kernel(opcode, (whole(write),), tuple(whole(r) for r in reads), source=name)


STREAM = (
    kernel("before", "out0", "in0"),
    Transfer(0, SWAP, whole("in0"), whole("t0"), "g"),
    kernel("own", "t2", "in0"),
    kernel("arrived", "t2", "t0", "t2"),
    kernel("overwrite", "t0", "t2"),
)


def test_without_overlap_a_transfer_is_over_before_the_next_statement() -> None:
    (p,) = run(module_of(2, STREAM), FormPhases(), Route(), Schedule(overlap=False)).procedures
    expected = ["before", "post 0", "send 0", "received 0", "sent 0", "own", "arrived", "overwrite"]
    assert words(p.body) == expected


def test_with_overlap_kernels_run_while_data_travels() -> None:
    (p,) = run(module_of(2, STREAM), FormPhases(), Route(), Schedule()).procedures
    expected = ["post 0", "send 0", "before", "own", "received 0", "arrived", "overwrite", "sent 0"]
    assert words(p.body) == expected


def test_a_relay_waits_for_its_data_and_a_slot_for_its_reader() -> None:
    body = (
        Transfer(0, SWAP, whole("in0"), whole("t0"), "g"),
        kernel("first", "out0", "in0"),
        Transfer(1, SWAP, whole("t0"), whole("t1"), "g"),
        kernel("second", "t2", "t0"),
        Transfer(2, SWAP, whole("t1"), whole("t0"), "g"),
        kernel("third", "out0", "t0"),
    )
    (p,) = run(module_of(2, body, slots=2), FormPhases(), Route(), Schedule()).procedures
    assert words(p.body) == [
        "post 0", "post 1", "send 0", "first", "received 0", "send 1", "second", "received 1", "sent 1",
        "post 2", "send 2", "received 2", "third", "sent 0", "sent 2",
    ]  # fmt: skip


def rounds(group: str) -> tuple[Kernel | Transfer, ...]:
    """Four times: a kernel makes something, a transfer sends it; all in memory of its own."""
    body: list[Kernel | Transfer] = []
    for n in range(4):
        made = View(f"t{n % 2}", 8 * (n // 2), (4,), (1,), DTYPE)
        body.append(Kernel("fill", (made,), (), (("value", 1.0),), source=f"make {n}"))
        body.append(Transfer(n, SWAP, made, View("t2", 4 * n, (4,), (1,), DTYPE), group))
    return tuple(body)


@pytest.mark.parametrize(
    ("schedules", "expected"),
    [
        (
            [("g", Schedule(window=0, ahead=9)), ("", Schedule(window=9, ahead=0))],
            "make 0, post 0, send 0, make 1, sent 0, post 1, send 1, make 2, sent 1, post 2, send 2, make 3, "
            "sent 2, post 3, send 3, received 0, received 1, received 2, received 3, sent 3",
        ),
        (
            [("g", Schedule(window=1, ahead=9)), ("", Schedule(window=9, ahead=1))],
            "post 0, make 0, send 0, post 1, make 1, send 1, post 2, make 2, send 2, sent 0, post 3, make 3, "
            "send 3, sent 1, received 0, received 1, received 2, sent 2, received 3, sent 3",
        ),
    ],
)
def test_a_message_occupies_memory_no_longer_than_its_limits_allow(
    schedules: list[tuple[str, Schedule]], expected: str
) -> None:
    """`window` counts transfers, `ahead` groups, which are the same here where each transfer is its own."""
    for group, schedule in schedules:
        module = with_sram(module_of(2, rounds(group)), 1)
        (p,) = run(module, FormPhases(), Route(), schedule).procedures
        assert ", ".join(words(p.body)) == expected


def test_messages_of_few_bytes_move_over_others_as_if_they_were_fewer() -> None:
    """Each of the four has 32 bytes, of which two are the 48th part of the SRAM."""
    orders = []
    for sram, window in ((48 * 64, 1), (1, 2)):
        module = with_sram(module_of(2, rounds("g")), sram)
        (p,) = run(module, FormPhases(), Route(), Schedule(window=window, ahead=9)).procedures
        # Over all before it, one may move up to the start.
        orders.append([word for word in words(p.body) if word != "post 1"])
    assert orders[0] == orders[1]


def with_sram(module: Module, sram: int) -> Module:
    return module.with_(machine=replace(module.machine, die=replace(module.machine.die, sram=sram)))


def test_a_prefetch_passes_no_more_groups_than_ahead_allows() -> None:
    """Three gathers of parameters, each used by one kernel."""
    body = tuple(
        s
        for n in range(3)
        for s in (
            Transfer(n, SWAP, whole("in0"), whole(f"t{n}"), f"g{n}"),
            kernel(f"use{n}", "out0", f"t{n}"),
        )
    )
    for ahead, position in ((0, ["use1"]), (1, ["use0"]), (2, [])):
        (p,) = run(module_of(2, body), FormPhases(), Route(), Schedule(ahead=ahead)).procedures
        order = words(p.body)
        kernels_before = [w for w in order[: order.index("send 2")] if w.startswith("use")]
        assert kernels_before[-1:] == position
