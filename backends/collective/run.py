"""Execution of the plan of a collective on dies, and comparison of its results with the collective's semantics.

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
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Torus, Wafer

# Limit of the hops of chunks: executed in less than a minute or so.
_MOST_HOPS: Final = 400_000
# Sums of up to 2^16 dies stay below 2^53.
_VALUES: Final = 1 << 37


@dataclass(frozen=True)
class Execution:
    """The outcome: `elements` is the size of one die's vector (fewer than the request's bytes if those are too many),
    `wrong` are the dies that ended with wrong values, `link_elements` the elements that crossed each link."""

    elements: int
    wrong: tuple[int, ...]
    link_elements: dict[Link, int]

    @property
    def ok(self) -> bool:
        return not self.wrong


def execute(request: Request, plan: Plan, seed: int = 0) -> Execution:
    """Run the messages of a plan on dies, in checked mode, on random inputs drawn from `seed`.

    `CompileError`: W003 if the plan has too many hops, W502 or W504 if a die is stuck or a check fails.
    """
    hops = sum(len(m.chunks) for m in plan.messages)
    if hops > _MOST_HOPS:
        raise fail(
            Code.LIMIT,
            f"the plan moves chunks over links {hops:,} times; up to {_MOST_HOPS:,} are executed",
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
    expected = semantics(request, inputs, parts)
    results = _read(machine, request, plan, memory, inputs, parts)
    wrong = tuple(d for d, v in expected.items() if not np.array_equal(v, results[d]))
    traffic = {link: n // ELEMENT.size for link, n in machine.traffic().items()}
    return Execution(max((v.size for v in expected.values()), default=0), wrong, traffic)


def _inputs(request: Request, whole: int, parts: list[int], seed: int) -> Vectors:
    random = np.random.default_rng(seed)
    sizes = input_sizes(request, whole, parts)
    return {d: random.integers(1, _VALUES, n).astype(np.float64) for d, n in sizes.items()}


def _write(
    machine: Machine, request: Request, plan: Plan, memory: dict[int, Layout], inputs: Vectors, parts: list[int]
) -> None:  # fmt: skip
    """Write the inputs of each die, chunk after chunk; the part of an all_to_all for the die itself is no chunk."""
    for i, d in enumerate(request.dies):
        vector = inputs.get(d, np.empty(0))
        if request.op is Op.ALL_TO_ALL:
            vector = np.delete(vector, _part_of(parts, i))
        start = 0
        for c, chunk in enumerate(plan.chunks):
            if d in chunk.sources:
                size = memory[d].elements[c]
                machine.store(i, memory[d].places[c] * ELEMENT.size, vector[start : start + size])
                start += size


def _read(
    machine: Machine, request: Request, plan: Plan, memory: dict[int, Layout], inputs: Vectors, parts: list[int]
) -> Vectors:  # fmt: skip
    """The results of each die, chunk after chunk."""
    results: Vectors = {}
    for i, d in enumerate(request.dies):
        pieces = [
            machine.load(i, memory[d].places[c] * ELEMENT.size, (memory[d].elements[c],), ELEMENT.numpy)
            for c, chunk in enumerate(plan.chunks)
            if d in chunk.targets
        ]
        results[d] = np.concatenate([*pieces, np.empty(0)])
        if request.op is Op.ALL_TO_ALL:
            own_part = inputs[d][_part_of(parts, i)]
            results[d] = np.insert(results[d], i * parts[i], own_part)
    return results


def _part_of(parts: list[int], i: int) -> slice:
    """The elements of part i in a vector of all parts."""
    return slice(sum(parts[:i]), sum(parts[: i + 1]))


def _manifest(request: Request) -> Manifest:
    """The manifest of a program without arrays on the mesh of the request."""
    topology = request.topology
    assert topology.grid is not None, "programs run on meshes"
    rows, columns = topology.grid
    fold, closed = topology.fold, topology.closed
    torus, planes = Torus(closed[-1], closed[-2], closed[0] and fold is not None), fold.planes if fold else 0
    whole = mesh_topology(Wafer("collective", rows, columns, torus=torus, planes=planes or None))
    links = [(a, b) for a, b in whole.links if a < b]
    dead_dies = tuple(d for d in range(rows * columns) if not topology.is_live(d))
    dead_links = tuple(link for link in links if not topology.are_adjacent(*link))
    mesh = (("x", len(request.dies)),)
    return Manifest(
        "collective", mesh, 1, rows, columns, dead_dies, dead_links, (), Train(1, 1), "", torus, planes
    )
