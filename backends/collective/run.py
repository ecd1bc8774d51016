"""Executing the schedule of a collective, and comparing what every die holds with what the collective means.

The data are whole numbers, so that sums are exact in any order and the comparison is equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.backends.collective.memory import ELEMENT, Layout, Scale, layouts
from wscc.backends.collective.streams import streams_of
from wscc.backends.interpreter.machine import Machine
from wscc.collectives.plan import Link, Op, Plan, Request
from wscc.collectives.semantics import Vectors, input_sizes, semantics
from wscc.diagnostics import Code, fail
from wscc.ir.streams.artifact import Manifest
from wscc.ir.train import Train

# Chunks crossing links that are executed in less than a minute or so.
_MOST_HOPS: Final = 400_000
# Sums of up to 2^16 dies stay below 2^53.
_VALUES: Final = 1 << 37


@dataclass(frozen=True)
class Execution:
    """`elements` were moved for the request's bytes (of one die's vector, fewer than its bytes where they are too
    many), `wrong` are the dies that ended with other values than they should have."""

    elements: int
    wrong: tuple[int, ...]
    link_elements: dict[Link, int]

    @property
    def ok(self) -> bool:
        return not self.wrong


def execute(request: Request, plan: Plan, seed: int = 0) -> Execution:
    """Run the messages of a plan on dies with memories of their own, in checked mode.

    `CompileError`: W003 where the plan has too many hops, W502 or W504 where it does not run through.
    """
    hops = sum(len(m.chunks) for m in plan.messages)
    if hops > _MOST_HOPS:
        raise fail(
            Code.LIMIT,
            f"the schedule moves chunks over links {hops:,} times; up to {_MOST_HOPS:,} are executed",
            help="check a smaller mesh or fewer bytes",
        )
    scale = Scale.of(request, plan)
    parts = [scale.elements(n) for n in request.shards]
    whole = scale.elements(request.bytes)
    memory = layouts(request, plan, scale.chunks(plan))
    machine = Machine(streams_of(request, plan, memory), _manifest(request), checked=True)
    inputs = _inputs(request, whole, parts, seed)
    _write(machine, request, plan, memory, inputs, parts)
    machine.run_step()
    wanted = semantics(request, inputs, parts)
    found = _read(machine, request, plan, memory, inputs, parts)
    wrong = tuple(d for d, v in wanted.items() if not np.array_equal(v, found[d]))
    moved = {link: n // ELEMENT.size for link, n in machine.traffic().items()}
    return Execution(max((v.size for v in wanted.values()), default=0), wrong, moved)


def _inputs(request: Request, whole: int, parts: list[int], seed: int) -> Vectors:
    random = np.random.default_rng(seed)
    sizes = input_sizes(request, whole, parts)
    return {d: random.integers(1, _VALUES, n).astype(np.float64) for d, n in sizes.items()}


def _write(
    machine: Machine, request: Request, plan: Plan, memory: dict[int, Layout], inputs: Vectors, parts: list[int]
) -> None:  # fmt: skip
    """What each die holds before, chunk after chunk; what it sends to itself in an all_to_all is no chunk."""
    for i, d in enumerate(request.dies):
        vector = inputs.get(d, np.empty(0))
        if request.op is Op.ALL_TO_ALL:
            vector = np.delete(vector, _own(parts, i))
        at = 0
        for c, chunk in enumerate(plan.chunks):
            if d in chunk.sources:
                size = memory[d].elements[c]
                machine.store(i, memory[d].places[c] * ELEMENT.size, vector[at : at + size])
                at += size


def _read(
    machine: Machine, request: Request, plan: Plan, memory: dict[int, Layout], inputs: Vectors, parts: list[int]
) -> Vectors:  # fmt: skip
    """What each die holds afterwards, chunk after chunk."""
    found: Vectors = {}
    for i, d in enumerate(request.dies):
        pieces = [
            machine.load(i, memory[d].places[c] * ELEMENT.size, (memory[d].elements[c],), ELEMENT.numpy)
            for c, chunk in enumerate(plan.chunks)
            if d in chunk.targets
        ]
        found[d] = np.concatenate([*pieces, np.empty(0)])
        if request.op is Op.ALL_TO_ALL:
            own = inputs[d][_own(parts, i)]
            found[d] = np.insert(found[d], i * parts[i], own)
    return found


def _own(parts: list[int], i: int) -> slice:
    return slice(sum(parts[:i]), sum(parts[: i + 1]))


def _manifest(request: Request) -> Manifest:
    topology = request.topology
    assert topology.grid is not None, "programs run on meshes"
    rows, columns = topology.grid
    joined = [(d, d + 1) for d in range(rows * columns) if (d + 1) % columns]
    joined += [(d, d + columns) for d in range((rows - 1) * columns)]
    dead = tuple(d for d in range(rows * columns) if not topology.is_live(d))
    cut = tuple(link for link in joined if not topology.are_adjacent(*link))
    return Manifest(
        "collective", (("x", len(request.dies)),), 1, rows, columns, dead, cut, (), Train(1, 1), ""
    )
