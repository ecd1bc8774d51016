"""The check of dies and routes: live dies, paths over live links between neighbours, routes of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.module import Level, Module
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.routes import ALONE, Hop, Route
from wscc.ir.verify.finding import Findings, Place
from wscc.machine.wafer import Wafer, ends_around


def check_dies(m: Module) -> Findings:
    """The mistakes of the placement, if there is one: each logical die has a live physical die of its own."""
    place = Place(f"module `{m.name}`", m.spans.dies if m.dies else m.spans.title)
    if not m.dies and m.level is not Level.FABRIC:
        return
    if len(m.dies) != m.dies_used:
        yield place.wrong(f"{len(m.dies)} dies are placed of {m.dies_used}")
    if len(set(m.dies)) != len(m.dies):
        yield place.wrong("two logical dies are on one physical die")
    for die in m.dies:
        if not _is_live(m.machine, die):
            yield place.wrong(f"die {die} is dead or not on the mesh of `{m.machine.name}`")


def check_routes(m: Module) -> Findings:
    """The mistakes of routes: every path goes from die to neighbouring die over live links, to none twice; no messages
    wait for one another's links in a circle; merged routes start at one die and have equal shares and channels."""
    checked = _Checked(m.machine)
    mistakes = [f for i, route in enumerate(m.routes) for f in _check_route(checked, _place(i, route), route)]
    yield from mistakes
    if not mistakes:
        yield from _check_merged(m.routes)
        yield from _check_circles(m.routes)


def _place(number: int, route: Route) -> Place:
    return Place(f"route {number}", route.span)


class _Checked:
    """What holds of the dies and links of a wafer, each looked at once: many routes cross the same."""

    def __init__(self, wafer: Wafer) -> None:
        self.wafer = wafer
        self.is_alive = cache(lambda die: _is_live(wafer, die) or _is_switch(wafer, die))
        self.is_hop = cache(partial(is_hop, wafer))


def _check_route(checked: _Checked, place: Place, route: Route) -> Findings:
    w = checked.wafer
    if not route.legs:
        yield place.wrong("it has no path")
        return
    for leg in route.legs:
        path = leg.path
        if not path:
            yield place.wrong("a path has at least one die")
        elif len(set(path)) != len(path):
            yield place.wrong("it comes twice to one die")
        elif dead := [d for d in path if not checked.is_alive(d)]:
            yield place.wrong(f"die {dead[0]} is dead or not on the mesh of `{w.name}`")
        elif (path[0], path[-1]) != route.ends:
            yield place.wrong("its paths do not join the same two dies")
        elif not 0 <= leg.channel < w.channels:
            yield place.wrong(f"a link has {w.channels} channels, and not channel {leg.channel}")
        elif leg.share < 1:
            yield place.wrong(f"a path carries {leg.share} shares")
        for a, b in pairwise(path):
            if not checked.is_hop(a, b):
                yield place.wrong(f"no live link joins dies {a} and {b}")


def _check_merged(routes: Sequence[Route]) -> Findings:
    first: dict[int, Route] = {}
    for i, route in enumerate(routes):
        if route.merged == ALONE:
            continue
        other = first.setdefault(route.merged, route)
        if other.ends[0] != route.ends[0]:
            yield _place(i, route).wrong("it is merged with one that starts elsewhere")
        elif [(k.share, k.channel) for k in other.legs] != [(k.share, k.channel) for k in route.legs]:
            yield _place(i, route).wrong("it is merged with one of other shares or channels")


def _check_circles(routes: Sequence[Route]) -> Findings:
    """A circle of links of a virtual channel that wait for one another (W. Dally, C. Seitz, "Deadlock-Free
    Message Routing in Multiprocessor Interconnection Networks", IEEE Trans. Computers C-36(5), 1987)."""
    after: dict[tuple[int, Hop], set[tuple[int, Hop]]] = {}
    for route in routes:
        for leg in route.legs:
            for a, b in pairwise(leg.hops):
                after.setdefault((leg.channel, a), set()).add((leg.channel, b))
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        channel, (die, _) = error.args[1][0]
        at = next(r for r in routes if any(die in leg.path for leg in r.legs))
        yield Place("the routes", at.span).wrong(
            f"messages on channel {channel} may wait in a circle through die {die}"
        )


def _is_live(w: Wafer, die: int) -> bool:
    return 0 <= die < w.dies and w.coordinate(die) not in w.dead_dies


def is_hop(w: Wafer, a: int, b: int) -> bool:
    """Whether a live link leads from one live die to another, or to or from a switch."""
    if w.switch is not None:
        return w.switches.is_hop(a, b)
    ends = w.coordinate(a), w.coordinate(b)
    return w.joins(*ends) and not w.is_missing(*ends)


def _is_switch(w: Wafer, vertex: int) -> bool:
    return w.dies <= vertex < w.vertices


@lru_cache(maxsize=8)
def _live_hops(w: Wafer) -> frozenset[Hop]:
    near = ((a, w.number(b)) for a in range(w.dies) for b in ends_around(w, w.coordinate(a)))
    return frozenset((a, b) for a, b in near if _is_live(w, a) and _is_live(w, b) and is_hop(w, a, b))


@dataclass(frozen=True, slots=True)
class Paths:
    """The dies of a module and its routes as arrays: ends, number of hops."""

    wafer: Wafer
    dies: DieArray
    first: DieArray
    last: DieArray
    hops: DieArray
    _right: set[tuple[Ints, Ints, bool]] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def of(cls, m: Module) -> Paths:
        """The paths of a module that has passed `check_dies` and `check_routes`."""
        return cls(
            m.machine,
            np.array(m.dies, np.int64),
            np.array([r.ends[0] for r in m.routes], np.int64),
            np.array([r.ends[1] for r in m.routes], np.int64),
            np.array([r.hops for r in m.routes], np.int64),
        )

    def check(self, place: Place, to: Ints, route: Ints, *, one_hop: bool) -> Findings:
        """The mistakes of messages that do not go from their sender's die to their receiver's, in one hop if `one_hop`.

        Die i sends to `to[i]` by the route of number `route[i]`.
        """
        if (to, route, one_hop) in self._right:
            return
        mistakes = [*self._wrong(place, to, route, one_hop=one_hop)]
        yield from mistakes
        if not mistakes:
            self._right.add((to, route, one_hop))

    def _wrong(self, place: Place, to: Ints, route: Ints, *, one_hop: bool) -> Findings:
        count = len(self.dies)
        target, number = as_array(to, count), as_array(route, count)
        sends = target != NOBODY
        lost = sends & ((number < 0) | (number >= len(self.first)))
        if len(self.first) and lost.any():
            yield place.wrong(f"logical die {np.flatnonzero(lost)[0]} has no route")
            return
        source, sink = self.dies[sends], self.dies[target[sends]]
        if one_hop:
            hops = _live_hops(self.wafer)
            for a, b in zip(source.tolist(), sink.tolist(), strict=True):
                if (a, b) not in hops:
                    yield place.wrong(f"it is one hop, and no live link joins dies {a} and {b}")
        if not len(self.first):
            return
        path = number[sends]
        wrong: tuple[tuple[DieArray, str], ...] = (
            (self.first[path] != source, "does not start at its sender's die"),
            (self.last[path] != sink, "does not end at its receiver's die"),
            ((self.hops[path] != 1) & one_hop, "is not the one hop that it must be"),
        )
        for mask, words in wrong:
            if mask.any():
                yield place.wrong(f"route {path[mask][0]} {words}")
