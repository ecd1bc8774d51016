"""The pool of worker processes: answers in order, and an end of all with any of them, by real kills."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from wscc.diagnostics import Code, CompileError
from wscc.workers import Answers, Workers, can_fork


@pytest.fixture(autouse=True)
def _none_is_left(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No process, nothing in shared memory, no word of a library."""
    before = set(os.listdir("/dev/shm"))
    yield
    assert not multiprocessing.active_children()
    assert set(os.listdir("/dev/shm")) <= before
    assert capfd.readouterr() == ("", "")


def pool(count: int, **functions: Callable[..., Any]) -> Workers:
    return Workers(count, lambda me: functions, alone="--jobs 1")


def error_of(act: Callable[[], Any]) -> str:
    with pytest.raises(CompileError) as caught:
        act()
    assert caught.value.diagnostics[0].code is Code.WORKER
    return caught.value.diagnostics[0].message


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 3])
def test_answers_come_in_the_order_of_the_items(count: int) -> None:
    items = [50_000, 3, 20_000, 1, 0, 7, 1_000]
    workers = pool(count, total=lambda n: sum(range(n)))
    assert list(workers.each("total", items, str)) == [sum(range(n)) for n in items]
    assert list(workers.each("total", [], str)) == []
    workers.close()


def stopped_or(act: Callable[[], None]) -> Callable[[int], None]:
    """Item 1 acts; the others wait for a signal that never comes."""
    return lambda item: act() if item == 1 else signal.pause()


@pytest.mark.parametrize(
    ("act", "how"),
    [
        (die, "was ended by SIGKILL (signal 9)"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was ended by SIGTERM (signal 15)"),
        (lambda: os._exit(3), "ended with status 3"),
    ],
    ids=["killed", "terminated", "exits"],
)
def test_one_that_ends_at_work_ends_all(act: Callable[[], None], how: str) -> None:
    workers = pool(3, wait=stopped_or(act))
    message = error_of(lambda: list(workers.each("wait", [0, 1, 2], lambda item: f"on item {item}")))
    assert message == f"worker 1 of 3 {how} while on item 1"
    assert error_of(lambda: workers.ask("wait", "")) == "the workers have ended"


def test_one_that_is_killed_while_it_starts_ends_all() -> None:
    def answers(me: int) -> Answers:
        if me == 1:
            die()
        return {"wait": signal.pause}

    workers = Workers(2, answers, alone="--jobs 1")
    assert error_of(lambda: workers.ask("wait", "waiting")).startswith("worker 1 of 2 was ended by SIGKILL")


def test_one_that_is_killed_while_idle_is_told() -> None:
    """Also with an item that no pipe takes whole."""
    for item in (b"", bytes(1 << 20)):
        workers = pool(2, size=len)
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
        message = error_of(lambda workers=workers, item=item: list(workers.each("size", [item] * 3, str)))  # type: ignore[misc]
        assert "was ended by SIGKILL" in message


def test_one_that_fails_is_told_in_words() -> None:
    def fails(item: int) -> object:
        if item:
            raise ZeroDivisionError("no such thing")
        return lambda: None  # which no pipe takes

    for item, words in ((1, "ZeroDivisionError: no such thing"), (0, "pickle")):
        workers = pool(2, fails=fails)
        message = error_of(lambda w=workers, i=item: list(w.each("fails", [i, i], str)))  # type: ignore[misc]
        assert f"failed while {item}: " in message
        assert words in message


def test_what_cannot_be_started_is_told_and_the_rest_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = multiprocessing.get_context("fork").Process
    start, started = process.start, []

    def once(self: Any) -> None:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(self)
        start(self)

    monkeypatch.setattr(process, "start", once)
    assert error_of(lambda: pool(3)) == "cannot start 3 workers: resource temporarily unavailable"
    assert started[0].exitcode == -signal.SIGKILL


def test_workers_end_with_a_parent_that_is_killed() -> None:
    """One rests, one waits, one computes: each holds the end of a pipe that is closed once all have ended."""
    read, written = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.setsid()
        workers = pool(3, act=lambda item: (os.write(written, b"."), endless(item)))
        list(workers.each("act", [0, 1], str))
        os._exit(1)
    os.close(written)
    assert os.read(read, 1) + os.read(read, 1) == b".."
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    ended, _, _ = select.select([read], [], [], 20)  # as long as this only for one that stays
    with suppress(ProcessLookupError):
        os.killpg(parent, signal.SIGKILL)
    assert ended
    assert os.read(read, 1) == b""
    os.close(read)


def endless(item: int) -> None:
    while True:
        if item:
            signal.pause()


def test_a_consumer_that_fails_ends_the_workers() -> None:
    workers = pool(2, wait=lambda item: item or signal.pause())
    answers = workers.each("wait", [1, 0], str)
    assert next(answers) == 1
    with pytest.raises(ZeroDivisionError):
        answers.throw(ZeroDivisionError)


def test_a_worker_of_another_pool_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork()
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert not can_fork()
