"""Errors of placement: numbers of dies, islands, the obstacle, and smaller strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.machine.topology import Topology
from wscc.machine.wafer import Circuits
from wscc.passes.place.types import AxisSpec, Placement, Shape, dies_of
from wscc.strategy import smaller, with_degree

# A placement found with little effort, or None.
Fits = Callable[[Shape], Placement | None]

# Islands that are named; numbers and lengths of groups that are tried.
_NAMED = 6
_GIVEN_UP = 3


def too_many(topology: Topology, shape: Shape) -> CompileError:
    """The error of a strategy with more dies than are live (W301), or than any island has (W302)."""
    needed, live = dies_of(shape), len(topology.live)
    wanted = f"`{spell(shape)}` needs {needed} dies"
    if needed > live:
        dead = topology.dies - live
        alive = f"the wafer has {live}" + (f" live ones ({dead} of {topology.dies} are dead)" if dead else "")
        if len(topology.islands) > 1:
            alive += f", in {_islands(topology)}"
        return fail(Code.TOO_MANY_DIES, f"{wanted}, and {alive}", candidates=_smaller(topology, shape))
    message = f"{wanted} that can reach each other, and the {live} live ones form {_islands(topology)}"
    return fail(Code.DISCONNECTED, message, candidates=_smaller(topology, shape))


def not_joined(topology: Topology, shape: Shape, circuits: Circuits, more: int) -> CompileError:
    """The error of a strategy for whose dies no links were found that circuits can set up (W302); `more` at a die were
    enough."""
    needed = f"`{spell(shape)}` needs {dies_of(shape)} dies that can reach each other"
    message = f"{needed}, and no choice of `{circuits.words}` was found that joins them"
    help = f"write `circuits {more} of {circuits.of}`"
    return fail(Code.DISCONNECTED, message, help=help, candidates=_smaller(topology, shape))


def no_place(topology: Topology, shape: Shape, reason: str, fits: Fits) -> CompileError:
    """The error of a strategy for which there are neither rings nor paths (W303)."""
    axes = [a for a in shape if a.ring and a.size > 1]
    needs = " and ".join(_paths(a, dies_of(shape) // a.size) for a in axes)
    if len(axes) == 1 and (most := _most(topology, shape, axes[0], fits)):
        reason += f"; there is room for {most}"
    live = f"{len(topology.live)} dies are live"
    if len(topology.islands) > 1:
        live += f", in {_islands(topology)}"
    message = f"`{spell(shape)}` needs {needs}; {live}: {reason}"
    return fail(Code.NO_PATH, message, candidates=[*_shorter(shape), *_smaller(topology, shape)])


def _shorter(shape: Shape) -> Iterator[Proposal]:
    """Strategies with groups that are little shorter: a path of one colour too many often ends one die before."""
    axes = tuple((a.name, a.size) for a in shape)
    for a in shape:
        if a.ring:
            lengths = range(a.size - 1, max(a.size - 1 - _GIVEN_UP, 1), -1)
            yield from (Proposal(with_degree(axes, a.name, n)) for n in lengths)


def _smaller(topology: Topology, shape: Shape) -> list[Proposal]:
    """Strategies that the largest island has dies for. Where a group finds no place, one with fewer dies may."""
    island = len(topology.islands[0]) if topology.islands else 0
    axes = tuple((a.name, a.size) for a in shape)
    return [Proposal(s) for s in smaller(axes, island)]


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


def spell(shape: Shape) -> str:
    """A strategy as `--parallel` takes it."""
    return ",".join(f"{a.name}={a.size}" for a in shape if a.size > 1) or "one die"


def _islands(topology: Topology) -> str:
    """`2 islands: 5 dies from (0, 0), 3 dies from (2, 3)`, the largest first."""
    parts = [f"{len(p)} die{'s' * (len(p) > 1)} from {topology.name_of(p[0])}" for p in topology.islands]
    return f"{len(parts)} islands: {', '.join(parts[:_NAMED])}" + (", ..." if len(parts) > _NAMED else "")
