"""Small programs written by hand, as `.wsa` text, and the machines they run on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError
from wscc.ir.routes import Route
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Streams
from wscc.ir.streams.wsa import parse_wsa
from wscc.ir.train import Train

ARENA = 4096


def manifest(rows: int, columns: int, **changes: Any) -> Manifest:
    plain = Manifest("test", (("x", rows * columns),), 1, rows, columns, (), (), (), Train(1, 1), "")
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
    """Logical die i is physical die i of a row; route a * n + b leads from a to b. Stages are equal blocks of dies."""
    n = len(roles)
    rows, columns = mesh if mesh[0] else (1, n)
    programs, steps = parse_wsa(text)
    paths = routes if routes is not None else [straight(a, b, columns) for a in range(n) for b in range(n)]
    bindings = np.array(table if table is not None else [[]] * n, np.int64).reshape(n, -1)
    streams = Streams(
        programs, steps, tuple(range(n)), tuple(roles), bindings, tuple(map(Route.along, paths)), ARENA
    )
    return Machine(
        streams, manifest(rows, columns, stages=len(steps), **facts), threads=threads, checked=checked
    )


def poke(m: Machine, die: int, address: int, *values: float) -> None:
    m.store(die, address, np.array(values, np.float32))


def peek(m: Machine, die: int, address: int, n: int) -> list[float]:
    return list(m.load(die, address, (n,), np.dtype(np.float32)))


def failure(m: Machine) -> CompileError:
    with pytest.raises(CompileError) as caught:
        m.run_step()
    m.close()  # the error holds it, and the suite collects no cycles
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


def one(body: str, peer: str = 'post f32[2]@1024 channel=0 peer=0 wait channel=0 side="received"') -> str:
    """Die 0 runs `body`, die 1 the other half of an exchange on channel 0."""
    roles = [f"role {i} {{ procedure f(0) {{ {text} }} }}" for i, text in enumerate((body, peer))]
    return " ".join([*roles, "step { call f() }"])


SENT = "fill f32[2]@0 value=1.0 send <- f32[2]@0 channel=0 peer=1 route=1"
POSTED = "post f32[2]@0 channel=0 peer=1"
SENDER = 'fill f32[2]@1024 value=1.0 send <- f32[2]@1024 channel=0 peer=0 route=2 wait channel=0 side="sent"'
