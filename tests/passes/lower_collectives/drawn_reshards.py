"""`make fuzz-reshards`: drawn reshards that stand alone, none of them slower than its ring in the simulator, and if one
is, exit status 1.

python -m tests.passes.lower_collectives.drawn_reshards SECONDS [SEED]

Meshes of 2 to 64 dies, some of them damaged or with two axes, and a few large ones without a ring of neighbours; links
of 5e8 to 1e13 B/s and 10 ns to 20 us; 64 B to 16 MB; on a third of the machines much of that lies in HBM.
"""

from __future__ import annotations

import math
import random
import sys
import time
from dataclasses import replace
from typing import Final, NamedTuple

from tests.passes.lower_collectives.one_reshard import KINDS, module_of, simulated, wafer_of
from wscc.diagnostics import CompileError
from wscc.ir.module import Module
from wscc.machine.wafer import Coordinate, Wafer, dead_link

LARGE: Final = ((7, 11), (5, 15), (7, 13), (9, 9), (9, 8), (10, 10), (6, 12), (2, 40), (1, 70), (5, 13))


class Links(NamedTuple):
    """The links of a mesh."""

    bandwidth: int
    latency: float
    flit: int = 64


class Memory(NamedTuple):
    """The memory of a die, which holds all in SRAM by default."""

    sram: int = 1 << 40
    hbm_bandwidth: int = 10**12


class Drawn(NamedTuple):
    """A reshard of `size` bytes along the first axis, on a mesh with dead dies and links."""

    mesh: tuple[int, int]
    links: Links
    kind: str
    axes: tuple[tuple[str, int], ...]
    size: int
    dead: tuple[Coordinate, ...] = ()
    cut: tuple[tuple[Coordinate, Coordinate], ...] = ()
    memory: Memory = Memory()

    def wafer(self) -> Wafer:
        wafer = wafer_of(*self.mesh)
        return replace(
            wafer,
            die=replace(wafer.die, **self.memory._asdict()),
            link=replace(wafer.link, **self.links._asdict()),
            dead_dies=frozenset(self.dead),
            dead_links=frozenset(dead_link(*ends) for ends in self.cut),
        )

    def module(self) -> Module:
        return module_of(self.wafer(), self.kind, self.axes, self.size)

    def ratio(self) -> float:
        """Simulated time, over that of the ring. Raises `CompileError` where damage leaves it no place."""
        module = self.module()
        return simulated(module) / simulated(module, "ring")


def drawn(rng: random.Random) -> Drawn:
    """Every thing is drawn by itself; sizes, rates and latencies by their logarithms."""

    def between(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    how = rng.choices(("whole", "damaged", "large"), (8, 2, 1))[0]
    rows, cols = rng.choice(LARGE) if how == "large" else (rng.randint(1, 8), rng.randint(2, 8))
    dead, cut = _damage(rng, rows, cols) if how == "damaged" else ((), ())
    dies = rows * cols - len(dead)
    parts = [n for n in range(2, dies) if dies % n == 0]
    axes: tuple[tuple[str, int], ...] = (("dp", dies),)
    if parts and how != "large" and rng.random() < 0.3:
        inner = rng.choice(parts)
        axes = rng.choice([(("dp", inner), ("tp", dies // inner)), (("tp", inner), ("dp", dies // inner))])
    links = Links(int(between(5e8, 1e13)), between(1e-8, 2e-5), rng.choice([16, 64, 256]))
    kind = rng.choice(KINDS if rng.random() < 0.5 else KINDS[-1:])
    size, memory = int(between(64, 1 << 24)), Memory()
    if rng.random() < 1 / 3:
        memory = Memory(rng.choice([1 << 12, 1 << 16, 1 << 20]), int(between(1e10, 1e13)))
    return Drawn((rows, cols), links, kind, axes, size, dead, cut, memory)


def _damage(
    rng: random.Random, rows: int, cols: int
) -> tuple[tuple[Coordinate, ...], tuple[tuple[Coordinate, Coordinate], ...]]:
    """One dead die, or one to three dead links."""
    dies = [(r, c) for r in range(rows) for c in range(cols)]
    if rows > 1 and rng.random() < 0.6:
        return (rng.choice(dies),), ()
    links = [(a, b) for a in dies for b in dies if (b[0] - a[0], b[1] - a[1]) in ((0, 1), (1, 0))]
    return (), tuple(rng.sample(links, min(len(links), rng.randint(1, 3))))


def main(seconds: float, seed: int) -> int:
    """How many were slower."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    count = refused = slower = 0
    while time.monotonic() < end:
        reshard = drawn(rng)
        try:
            ratio = reshard.ratio()
        except CompileError:
            refused += 1
            continue
        count += 1
        if ratio > 1:
            slower += 1
            print(f"{ratio:.4f} of its ring: {reshard}", flush=True)
    print(
        f"{count} reshards, {slower} slower than their rings; {refused} find no place on damage; from seed {seed}"
    )
    return slower


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())) > 0)
