"""Checks of routes: legs on virtual channels that the links have, merged routes a tree, and no cycle in the channel
dependence graph (Dally and Seitz 1987).

Routers buffer a whole packet and forward the branches of a tree independently, so a message holds one (link, channel)
and waits for the next of its leg; a message keeps its channel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from wscc.backends.interpreter.load_checks import column
from wscc.backends.verify.findings import Finding
from wscc.backends.verify.messages import SEND, Part
from wscc.ir.routes import ALONE, Hop, Route
from wscc.ir.streams.program import Operand, Streams

Use = tuple[Hop, int]
Namer = Callable[[int], str]


def check_routes(routes: Sequence[Route], columns: int, channels: int) -> Iterator[Finding]:
    """Findings about the routes of a mesh with `columns` columns, whose links have virtual channels 0 to
    `channels` - 1."""

    def die(number: int) -> str:
        return f"({number // columns}, {number % columns})"

    for number, route in enumerate(routes):
        for leg in route.legs:
            if not 0 <= leg.channel < channels:
                words = f"takes virtual channel {leg.channel} of links that have {channels}"
                yield Finding("routes", f"route {number} {words}")
            if leg.share < 1:
                yield Finding("routes", f"route {number} has a leg with a share of {leg.share}")
            if len(set(leg.path)) < len(leg.path):
                yield Finding("routes", f"route {number} passes a die twice")
    yield from _check_trees(routes, die)
    if cycle := _cycle(routes):
        words = ", ".join(f"{die(a)} - {die(b)}" for (a, b), _ in cycle)
        yield Finding("routes", f"messages may wait in a circle on virtual channel {cycle[0][1]}: {words}")


def _check_trees(routes: Sequence[Route], die: Namer) -> Iterator[Finding]:
    """Findings about merged routes that are no tree from one source."""
    trees: dict[int, list[int]] = {}
    for number, route in enumerate(routes):
        if route.merged != ALONE:
            trees.setdefault(route.merged, []).append(number)
    for merged, members in trees.items():
        first = routes[members[0]]
        kinds = {
            (r.legs[0].path[0], *((g.share, g.channel) for g in r.legs))
            for r in map(routes.__getitem__, members)
        }
        if len(kinds) > 1:
            yield Finding(
                "routes",
                f"routes {members} are merged (tree {merged}) but differ in source, shares or channels",
            )
            continue
        for k in range(len(first.legs)):
            entered: dict[int, int] = {}
            for a, b in dict.fromkeys(hop for n in members for hop in routes[n].legs[k].hops):
                if entered.setdefault(b, a) != a or b == first.ends[0]:
                    yield Finding(
                        "routes", f"tree {merged} of routes {members} enters die {die(b)} by two links"
                    )


def _cycle(routes: Sequence[Route]) -> list[Use]:
    """A cycle of (link, channel)s, each held by a message that waits for the next; empty if there is none."""
    successors: dict[Use, dict[Use, None]] = {}
    for route in routes:
        for leg in route.legs:
            for held, awaited in pairwise((hop, leg.channel) for hop in leg.hops):
                successors.setdefault(held, {})[awaited] = None
    done: set[Use] = set()
    for start in successors:
        trail: dict[Use, Iterator[Use]] = {}
        step: Use | None = start if start not in done else None
        while step is not None:
            trail[step] = iter(successors.get(step, ()))
            step = None
            while trail and step is None:
                last = next(reversed(trail))
                step = next((u for u in trail[last] if u not in done), None)
                if step in trail:
                    uses = list(trail)
                    return uses[uses.index(step) :]
                if step is None:
                    done.add(last)
                    del trail[last]
    return []


def check_trees(parts: Sequence[Part], streams: Streams, name: Callable[[int], str]) -> Iterator[Finding]:
    """Findings about one procedure: a die must send the same operands over all routes of a tree."""
    members: dict[int, list[int]] = {}
    for number, route in enumerate(streams.routes):
        if route.merged != ALONE:
            members.setdefault(route.merged, []).append(number)
    for part in parts if members else ():
        sent: dict[tuple[int, int], Counter[tuple[Operand, int]]] = {}
        for e in part.events:
            if e.kind == SEND:
                x = part.code.body[e.at]
                routes = column(x.attr("route"), streams.bindings[part.dies])
                for die, route in zip(part.dies.tolist(), routes.tolist(), strict=True):
                    if (tree := streams.routes[route].merged) != ALONE:
                        sent.setdefault((die, tree), Counter())[x.reads[0], route] += 1
        for (die, tree), counts in sent.items():
            for o in dict.fromkeys(o for o, _ in counts):
                if len({counts[o, route] for route in members[tree]}) > 1:
                    words = f"does not send the same bytes over all of the merged routes {members[tree]}"
                    yield Finding("messages", words, name(die), part.code.name)
