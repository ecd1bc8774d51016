"""Processes that run dies: the same bytes for any number of them, and none left behind whatever happens."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_programs import EXCHANGE, SWAP, code, failure, machine, peek, poke
from wscc.backends.interpreter.dies import deal
from wscc.backends.interpreter.kernels import table as kernels
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError


@pytest.fixture(autouse=True)
def _no_other_machines() -> Iterator[None]:
    """What a failed run was about is held by its traceback, a cycle, and processes with it."""
    gc.collect()
    yield
    gc.collect()


@given(stages=st.integers(1, 4), each=st.integers(1, 9), workers=st.integers(1, 5))
def test_workers_share_the_dies_of_every_stage_evenly(stages: int, each: int, workers: int) -> None:
    dealt = deal(stages * each, stages, workers)
    if each >= workers:
        for stage in range(stages):
            part = dealt[stage * each : (stage + 1) * each]
            assert list(part) == sorted(part)
            sizes = Counter(part)
            assert sorted(sizes) == list(range(workers))
            assert max(sizes.values()) - min(sizes.values()) <= 1
    elif stages * each >= workers:
        assert sorted(set(dealt)) == list(range(workers))


def two_dies(monkeypatch: pytest.MonkeyPatch, act: Any) -> Machine:
    """Die 0 waits for die 1, which runs `act` in its worker."""
    monkeypatch.setitem(kernels.SEMANTICS, "relu", lambda y, x: act())
    text = """
    role 0 { procedure f(0) { post f32[2]@0 channel=0 peer=1 wait channel=0 side="received" } }
    role 1 { procedure f(0) { fill f32[2]@0 value=1.0 relu f32[2]@8 <- f32[2]@0
                              send <- f32[2]@0 channel=0 peer=0 route=2 wait channel=0 side="sent" } }
    step { call f() }
    """
    return machine(text, [0, 1], checked=False, threads=2)


def test_a_worker_that_is_killed_ends_the_step_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    m = two_dies(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
    error = failure(m)
    assert code(error) is Code.WORKER
    assert "worker 1 of 2 was ended by SIGKILL (signal 9) while running a step" in str(error)
    assert not multiprocessing.active_children()
    assert code(failure(m)) is Code.WORKER  # and stays so


def test_a_worker_that_fails_in_another_way_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        raise AttributeError("no such thing")

    error = failure(two_dies(monkeypatch, act))
    assert code(error) is Code.WORKER
    assert "worker 1 failed while running a step: AttributeError: no such thing" in str(error)
    assert not multiprocessing.active_children()


def test_an_interrupt_ends_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal does to all
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()

    m = two_dies(monkeypatch, act)
    # A shell that starts tests in the background has them ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            m.run_step()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()


def test_workers_end_with_their_machine() -> None:
    m = machine(EXCHANGE, [0, 0], table=SWAP, checked=False, threads=2)
    poke(m, 0, 1024, 1, 2, 3, 4)
    m.run_step()
    assert len(multiprocessing.active_children()) == 2
    m.close()
    assert not multiprocessing.active_children()
    assert peek(m, 1, 1024, 4) == [1, 2, 3, 4]
    forgotten = machine(EXCHANGE, [0, 0], table=SWAP, checked=False, threads=2)
    forgotten.run_step()
    assert len(multiprocessing.active_children()) == 2
    del forgotten
    gc.collect()
    assert not multiprocessing.active_children()


def test_the_first_die_that_fails_is_told_whatever_runs_it() -> None:
    """Dies 1 and 2 fail on their own, die 0 waits for die 1."""
    text = """
    role 0 { procedure f(0) { post f32[1]@0 channel=0 peer=1 wait channel=0 side="received" } }
    role 1 { procedure f(0) { fill f32[1]@0 value=0.0 wait channel=0 side="sent" } }
    role 2 { procedure f(0) { wait channel=7 side="sent" } }
    step { call f() }
    """
    told = set()
    for threads in (1, 2, 3):
        with pytest.raises(CompileError) as caught:
            machine(text, [0, 1, 2], checked=False, threads=threads).run_step()
        told.add(str(caught.value))
    assert len(told) == 1
    assert "die (0, 1), `f` instruction 1" in told.pop()
