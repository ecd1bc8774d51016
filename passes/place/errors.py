"""Errors of placement: numbers of dies, islands, the obstacle and the nearest strategy that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

from wscc.diagnostics import Code, CompileError, fail
from wscc.machine.topology import Topology
from wscc.passes.place.types import AxisSpec, Placement, Shape, dies_of

# A placement found with little effort, or None.
Fits = Callable[[Shape], Placement | None]

# Strategies tried for the help text, each of which may cost a search; islands and dies named; dies given up.
_MAX_TRIES = 24
_NAMED = 6
_GIVEN_UP = 3


def too_many(topology: Topology, shape: Shape, fits: Fits) -> CompileError:
    """The error of a strategy with more dies than are live (W301), or than any island has (W302)."""
    needed, live = dies_of(shape), len(topology.live)
    wanted = f"`{spell(shape)}` needs {needed} dies"
    help = _nearest(topology, shape, fits)
    if needed > live:
        dead = topology.dies - live
        alive = f"the wafer has {live}" + (f" live ones ({dead} of {topology.dies} are dead)" if dead else "")
        if len(topology.islands) > 1:
            alive += f", in {_islands(topology)}"
        return fail(Code.TOO_MANY_DIES, f"{wanted}, and {alive}", help=help)
    message = f"{wanted} that can reach each other, and the {live} live ones form {_islands(topology)}"
    return fail(Code.DISCONNECTED, message, help=help)


def no_place(topology: Topology, shape: Shape, reason: str, fits: Fits) -> CompileError:
    """The error of a strategy for which there are neither rings nor paths (W303)."""
    axes = [a for a in shape if a.ring and a.size > 1]
    needs = " and ".join(_paths(a, dies_of(shape) // a.size) for a in axes)
    if len(axes) == 1 and (most := _most(topology, shape, axes[0], fits)):
        reason += f"; only {most} would fit"
    live = f"{len(topology.live)} dies are live"
    if len(topology.islands) > 1:
        live += f", in {_islands(topology)}"
    help = _nearest(topology, shape, fits)
    if len(axes) == 1 and (shorter := _shorter(topology, shape, axes[0], fits)):
        help = f"{shorter}; {help}"
    return fail(Code.NO_PATH, f"`{spell(shape)}` needs {needs}; {live}: {reason}", help=help)


def _most(topology: Topology, shape: Shape, axis: AxisSpec, fits: Fits) -> int:
    """The number of groups of the axis that fit, if at most `_GIVEN_UP` fewer than needed; else 0."""
    count = dies_of(shape) // axis.size
    for fewer in range(count - 1, max(count - 1 - _GIVEN_UP, 0), -1):
        if fits([AxisSpec("", fewer), axis]) is not None:
            return fewer
    return 0


def _paths(axis: AxisSpec, count: int) -> str:
    paths = "a path" if count == 1 else f"{count} paths"
    return f"{paths} of {axis.size} neighbouring dies for `{axis.name}`"


def _shorter(topology: Topology, shape: Shape, axis: AxisSpec, fits: Fits) -> str:
    """Help text with the longest groups that fit, if they are little shorter, and the dies that these leave out, if the
    others are connected without them; else empty."""
    for size in range(axis.size - 1, max(axis.size - 1 - _GIVEN_UP, 0), -1):
        shorter = [replace(a, size=size) if a is axis else a for a in shape]
        placement = fits(shorter)
        if placement is None:
            continue
        unused = [topology.name_of(d) for d in topology.live if d not in placement.dies]
        is_connected = len(topology.part(placement.dies).islands) == 1
        is_named = 0 < len(unused) <= _NAMED and is_connected
        without = f" without die{'s' * (len(unused) > 1)} {', '.join(unused)}" if is_named else ""
        return f"`{spell(shorter)}` fits{without}"
    return ""


def spell(shape: Shape) -> str:
    """A strategy as `--parallel` takes it."""
    return ",".join(f"{a.name}={a.size}" for a in shape if a.size > 1) or "one die"


def _islands(topology: Topology) -> str:
    """`2 islands: 5 dies from (0, 0), 3 dies from (2, 3)`, the largest first."""
    parts = [f"{len(p)} die{'s' * (len(p) > 1)} from {topology.name_of(p[0])}" for p in topology.islands]
    return f"{len(parts)} islands: {', '.join(parts[:_NAMED])}" + (", ..." if len(parts) > _NAMED else "")


def _nearest(topology: Topology, shape: Shape, fits: Fits) -> str:
    """Help text with the first of the smaller strategies that fits."""
    smaller = smaller_strategies(shape, len(topology.islands[0]) if topology.islands else 0)
    for tried in (*smaller[:_MAX_TRIES], *smaller[-1:]):
        if fits(tried) is not None:
            return f"`{spell(tried)}` ({dies_of(tried)} of {len(topology.live)} live dies) fits"
    return "no strategy fits: the wafer has no live die"


def smaller_strategies(shape: Shape, limit: int) -> list[tuple[AxisSpec, ...]]:
    """Strategies of at most `limit` dies with degrees that divide those of `shape`, so that shapes still divide: the
    largest first, then the nearest."""
    smaller = [s for s in _divisors(shape) if dies_of(s) <= min(limit, dies_of(shape) - 1)]
    return sorted(smaller, key=lambda s: (-dies_of(s), _distance(shape, s)))


def _distance(shape: Shape, other: Shape) -> tuple[int, ...]:
    """Degrees given up, the first axes first."""
    return tuple(a.size // b.size for a, b in zip(reversed(shape), reversed(other), strict=True))


def _divisors(shape: Shape) -> Iterator[tuple[AxisSpec, ...]]:
    options = [[d for d in range(1, a.size + 1) if a.size % d == 0] for a in shape]
    if prod(len(o) for o in options) > 10_000:
        return
    for sizes in product(*options):
        yield tuple(replace(a, size=n) for a, n in zip(shape, sizes, strict=True))
