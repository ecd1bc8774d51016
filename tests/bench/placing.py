"""Seconds and traffic x hops of every mapper, on whole and damaged wafers up to 32 x 32."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

import numpy as np

from wscc.diagnostics import CompileError
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer
from wscc.passes.choices import MAPPERS
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec

# What a pair of peers exchanges, of the order that a step of a 7B model has.
WEIGHTS = {"dp": 0.2, "tp": 1.0, "tatp": 0.8}


@dataclass(frozen=True, slots=True)
class Case:
    """`dead` dies are drawn with seed 1."""

    mesh: tuple[int, int]
    dead: int
    degrees: dict[str, int]

    @property
    def wafer(self) -> Wafer:
        rows, cols = self.mesh
        holes = Random(1).sample(range(rows * cols), self.dead)
        return Wafer("w", rows, cols, dead_dies=frozenset(divmod(d, cols) for d in holes))

    @property
    def shape(self) -> tuple[AxisSpec, ...]:
        return tuple(AxisSpec(a, n, ring=a == "tatp", weight=WEIGHTS[a]) for a, n in self.degrees.items())

    def __str__(self) -> str:
        words = " ".join(f"{a}={n}" for a, n in self.degrees.items())
        return f"{self.mesh[0]}x{self.mesh[1]}, {self.dead:>2} dead  {words}"


CASES = (
    Case((4, 8), 0, {"dp": 2, "tp": 2, "tatp": 8}),
    Case((4, 8), 2, {"dp": 3, "tp": 2, "tatp": 4}),
    Case((12, 12), 0, {"dp": 3, "tp": 3, "tatp": 16}),
    Case((12, 12), 4, {"dp": 4, "tp": 8, "tatp": 4}),
    Case((32, 32), 0, {"dp": 4, "tp": 8, "tatp": 32}),
    Case((32, 32), 0, {"tp": 16, "tatp": 64}),
    Case((32, 32), 0, {"dp": 16, "tp": 4, "tatp": 16}),
    Case((32, 32), 3, {"dp": 3, "tp": 8, "tatp": 32}),
    Case((32, 32), 3, {"tp": 15, "tatp": 64}),
    Case((32, 32), 3, {"dp": 15, "tp": 4, "tatp": 16}),
    Case((32, 32), 24, {"dp": 15, "tp": 4, "tatp": 16}),
)


def show_places() -> None:
    print("placement: traffic x hops over that of one hop for every pair, how streaming groups lie, seconds")
    print(f"{'':<44}{'mapper':<10}{'method':<10}{'groups':<8}{'hops':>8}{'seconds':>10}")
    for case in CASES:
        for mapper in reversed(MAPPERS):
            _show(case, mapper)
    print()


def _show(case: Case, mapper: str) -> None:
    wafer, shape = case.wafer, case.shape
    begun = time.perf_counter()
    try:
        placement = place_on(wafer, shape, mapper)
    except CompileError as error:
        print(f"{case!s:<44}{mapper:<10}{error.diagnostics[0].code}", flush=True)
        return
    seconds = time.perf_counter() - begun
    price = Price(Hops(mesh_topology(wafer)), shape)
    hops = price.of(np.array(placement.dies)) / price.least
    name = f"{case}" if mapper == MAPPERS[-1] else ""
    lies = placement.axis("tatp").kind
    print(f"{name:<44}{mapper:<10}{placement.method:<10}{lies:<8}{hops:>8.2f}{seconds:>10.2f}", flush=True)
