"""The words of placement's refusals: numbers, islands, the obstacle and the nearest strategy that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

from wscc.diagnostics import Code, CompileError, fail
from wscc.machine.topology import Topology
from wscc.passes.place_types import AxisSpec, Shape, dies_of

Fits = Callable[[Shape], bool]

# Strategies tried for the help text; each may cost a search.
_MAX_TRIES = 24
_NAMED = 6


def too_many(topology: Topology, shape: Shape, fits: Fits) -> CompileError:
    """More dies than are live (W301), or than any island has (W302)."""
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
    """No rings, and no paths either (W303)."""
    axes = [a for a in shape if a.ring and a.size > 1]
    groups = " and ".join(f"{dies_of(shape) // a.size} of {a.size} dies for `{a.name}`" for a in axes)
    live = f"{len(topology.live)} live dies"
    if len(topology.islands) > 1:
        live += f" in {_islands(topology)}"
    message = f"`{spell(shape)}` needs paths of neighbouring dies, {groups}, among {live}: {reason}"
    return fail(Code.NO_PATH, message, help=_nearest(topology, shape, fits))


def spell(shape: Shape) -> str:
    """As `--parallel` takes it."""
    return ",".join(f"{a.name}={a.size}" for a in shape if a.size > 1) or "one die"


def _islands(topology: Topology) -> str:
    """`2 islands, of 5 dies around (0, 0) and 3 dies around (3, 3)`, the largest first."""
    parts = [f"{len(p)} (from die {topology.name_of(p[0])})" for p in topology.islands]
    shown = ", ".join(parts[:_NAMED]) + (", ..." if len(parts) > _NAMED else "")
    return f"{len(parts)} islands of {shown} dies"


def _nearest(topology: Topology, shape: Shape, fits: Fits) -> str:
    """The largest strategy with degrees that divide the ones asked for, so that shapes still divide."""
    limit = len(topology.islands[0]) if topology.islands else 0
    smaller = [s for s in _divisors(shape) if dies_of(s) <= min(limit, dies_of(shape) - 1)]
    smaller.sort(key=lambda s: (-dies_of(s), _distance(shape, s)))
    for tried in (*smaller[:_MAX_TRIES], *smaller[-1:]):
        if fits(tried):
            return f"`{spell(tried)}` ({dies_of(tried)} of {len(topology.live)} live dies) fits"
    return "no strategy fits: the wafer has no live die"


def _distance(shape: Shape, other: Shape) -> tuple[int, ...]:
    """Degrees given up, the first axes first."""
    return tuple(a.size // b.size for a, b in zip(reversed(shape), reversed(other), strict=True))


def _divisors(shape: Shape) -> Iterator[tuple[AxisSpec, ...]]:
    options = [[d for d in range(1, a.size + 1) if a.size % d == 0] for a in shape]
    if prod(len(o) for o in options) > 10_000:
        return
    for sizes in product(*options):
        yield tuple(replace(a, size=n) for a, n in zip(shape, sizes, strict=True))
