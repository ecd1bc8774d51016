"""The pass `place`: maps logical dies to live physical ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from wscc.diagnostics import Code, CompileError, fail
from wscc.ir.module import Module
from wscc.machine.topology import neighbour_topology
from wscc.machine.wafer import Coordinate, Wafer
from wscc.passes.base import Fact, Pass
from wscc.passes.choices import DEFAULT_MAPPER, MAPPERS
from wscc.passes.place.check import check_placement
from wscc.passes.place.circuits import Linked, on_circuits
from wscc.passes.place.solver import place_on
from wscc.passes.place.traffic import Traffic, axis_traffic
from wscc.passes.place.types import AxisSpec, Placement, dies_of
from wscc.passes.place.walks import place_apart
from wscc.strategy import policy


@dataclass(frozen=True, slots=True)
class Place(Pass):
    """Give every logical die a live physical one (`Module.dies`).

    Each group of a streaming axis becomes a closed ring of neighbours where one exists, else an open path; peers
    of the other axes lie close (traffic x hops). The placement is found on lattices, by growing or by CP-SAT, and
    checked by code that shares nothing with either. This is `mapper=cpsat`; `snake` (rows to and fro), `smap` (row
    by row) and `gmap` (annealed traffic x hops) are there to compare with and look for no rings: streamed shards then
    cross several links.

    Before: axes dp=2 tatp=4 on a 2 x 4 wafer
    After:  dies [0, 1, 5, 4, 2, 3, 7, 6]

    Where circuits set up links, those that are up are chosen here, for the whole program (`Wafer.circuits`): at most so
    many at a die that most of what groups exchange stays on one hop. The others are missing from then on.

    Where dies differ and not all are used, the slowest are left alone if rings and paths are no fewer for it.

    Where damage leaves neither rings nor paths for a streaming axis, its groups lie as near as others do, and shards
    travel over several links: the note of the axis says why. Fails with W301 when the strategy needs more dies than are
    alive, W302 when they are cut apart or no choice of links joins them.
    """

    name: ClassVar[str] = "place"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})

    mapper: str = DEFAULT_MAPPER

    def __post_init__(self) -> None:
        if self.mapper not in MAPPERS:
            raise fail(
                Code.OPTION, f"unknown mapper `{self.mapper}`", help=f"the mappers are {', '.join(MAPPERS)}"
            )

    def run(self, module: Module) -> Module:
        found = _linked(module, self.mapper)
        return module.with_(machine=found.wafer, dies=found.placement.dies)


def placement(module: Module, mapper: str = DEFAULT_MAPPER) -> Placement:
    """The placement of the dies of a sharded module by a mapper. Raises `CompileError` as `solver.solve` does, and
    where circuits cannot join its dies."""
    return _linked(module, mapper).placement


def _linked(module: Module, mapper: str) -> Linked:
    traffic = axis_traffic(module)
    most = max([t for axis in traffic.values() for t in (axis.pair, axis.closing)] + [1.0])
    streaming = {axis for axis in module.sizes if policy(axis).stream}
    # Shards at rest pass from neighbour to neighbour; an axis that only streams what others gather takes neighbours
    # where no axis has such shards.
    rings = {axis for axis in streaming if policy(axis).store == "shard"} or streaming
    shape = tuple(_spec(axis, size, axis in rings, traffic[axis], most) for axis, size in module.axes)
    return _solved(module.machine, mapper, shape)


def _spec(axis: str, size: int, ring: bool, traffic: Traffic, most: float) -> AxisSpec:
    """The spec of an axis; weights are shares of the `most` bytes that any pair exchanges."""
    weight = round(max(traffic.pair / most, 0.001), 3)
    return AxisSpec(axis, size, ring, weight, round(traffic.closing / most / weight, 3))


@lru_cache(maxsize=64)
def _solved(machine: Wafer, mapper: str, shape: tuple[AxisSpec, ...]) -> Linked:
    if machine.circuits is None:
        return Linked(machine, _placed(machine, mapper, shape))
    return on_circuits(machine, shape, lambda wafer: _placed(wafer, mapper, shape))


def _placed(machine: Wafer, mapper: str, shape: tuple[AxisSpec, ...]) -> Placement:
    anywhere = _on(machine, mapper, shape)
    fastest = machine.by_speed()[: dies_of(shape)]
    if not machine.unlike or machine.weakest(anywhere.dies) == machine.weakest(fastest):
        return anywhere
    for slow in _slowest_first(machine, dies_of(shape)):
        try:
            found = _on(replace(machine, dead_dies=machine.dead_dies | slow), mapper, shape)
        except CompileError:
            continue
        if (found.rings, found.rings + found.paths) >= (anywhere.rings, anywhere.rings + anywhere.paths):
            return found
    return anywhere


def _slowest_first(machine: Wafer, used: int) -> Iterator[frozenset[Coordinate]]:
    """The dies that may be left alone where so many are used: all that are slower than some speed, most of them
    first."""
    dies = machine.by_speed()
    for first in range(used, len(dies)):
        if machine.die_at(dies[first - 1]) != machine.die_at(dies[first]):
            yield frozenset(map(machine.coordinate, dies[first:]))


def _on(machine: Wafer, mapper: str, shape: tuple[AxisSpec, ...]) -> Placement:
    try:
        return place_on(machine, shape, mapper)
    except CompileError as refused:
        if refused.diagnostics[0].code is not Code.NO_PATH:
            raise
        apart = [replace(a, ring=False) for a in shape]
        placement = place_apart(neighbour_topology(machine), shape, refused.diagnostics[0].message, seed=0)
        check_placement(machine, apart, placement)
        return placement
