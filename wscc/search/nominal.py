"""A nominal placement of a strategy, and the algorithms of its reshards there: what an estimate knows of distances.

Dies lie as on a whole wafer, on the best lattice where there is one, else row by row to and fro: `place` may do
better on odd numbers of dies, and worse among dead ones. All plans of one strategy share it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from wscc.diagnostics import CompileError
from wscc.ir.module import Module
from wscc.machine.topology import mesh_topology, neighbour_topology
from wscc.machine.wafer import Torus, Wafer
from wscc.passes.lower_collectives.algorithm import Algorithm
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.place.baselines import boustrophedon
from wscc.passes.place.lattice import best_tilings
from wscc.passes.place.solver import QUICK, solve
from wscc.passes.place.types import AxisSpec
from wscc.strategy import Degrees, dies_of, policy

_TEMPORARIES = 16  # of the SRAM, as `lower_collectives` has it
_ACROSS, _LIGHT = ("pp", "dp"), 0.1  # axes whose peers exchange little, and how little beside others
_SPLIT = 4  # axes above 1 of which all tilings are tried: their number grows with the factorial


def nominal(module: Module) -> Algorithms:
    """The algorithms of a sharded module whose dies lie at their nominal places."""
    whole = replace(module.machine, dead_dies=frozenset(), dead_links=frozenset())
    dies = (
        _on_system(whole, module.axes)
        if whole.joint or whole.hub
        else _dies(whole.rows, whole.cols, mesh_topology(whole).torus, module.axes)
    )
    placed = module.with_(dies=dies, machine=whole)
    known = _shared(whole, module.axes)
    return Algorithms(placed, "auto", whole.die.sram // _TEMPORARIES, relay=False, _by_axis=known)


@lru_cache(maxsize=1024)
def _shared(wafer: Wafer, axes: Degrees) -> dict[str, tuple[Algorithm, ...]]:
    """The algorithms by axis, which all modules with these axes fill and read."""
    return {}


@lru_cache(maxsize=1024)
def _on_system(whole: Wafer, axes: Degrees) -> tuple[int, ...]:
    """The dies on a system as `place` finds them, where tokens and layers pass from wafer to wafer rather than parts of
    what a layer computes."""
    shape = tuple(
        AxisSpec(a, n, policy(a).stream and policy(a).store == "shard", _LIGHT if a in _ACROSS else 1.0)
        for a, n in axes
    )
    topology = neighbour_topology(whole)
    try:
        return solve(topology, shape, limits=QUICK).dies
    except CompileError:
        return tuple(boustrophedon(topology, topology.live)[: dies_of(axes)])


@lru_cache(maxsize=1024)
def _dies(rows: int, cols: int, torus: Torus, axes: Degrees) -> tuple[int, ...]:
    shape = [AxisSpec(a, n, policy(a).stream and policy(a).store == "shard") for a, n in axes]
    if len(axes) <= _SPLIT and (tilings := best_tilings(shape, (rows, cols), torus)):
        return tuple(int(r) * cols + int(c) for r, c in tilings[0].offsets)
    topology = mesh_topology(Wafer("nominal", rows, cols))
    return tuple(boustrophedon(topology, topology.live)[: dies_of(axes)])
