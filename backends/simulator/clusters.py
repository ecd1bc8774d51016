"""Clusters of dies of a call that depend on one another, and which of them are alike.

Clusters are alike where their dies, one by one, have the same instructions and the same peers, and their messages take
routes of the same form: replicas mostly, and dies that exchange nothing. They have one script and what is simulated of
one is simulated of all, with other names of dies and links.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wscc.backends.simulator.calls import Builder, DieCall, Places, Ties
from wscc.backends.simulator.records import Hold, Link
from wscc.backends.simulator.scripts import Scripts
from wscc.disjoint_sets import DisjointSets
from wscc.ir.routes import ALONE


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Dies of one call that exchange messages or share a link, directly or through others, and the links.

    `scripts`, and the `calls` in them, are of the first cluster that is alike. `links` gives the link there for one
    here, and `own` the other way.
    """

    dies: tuple[int, ...]
    calls: tuple[DieCall, ...]
    scripts: Scripts
    links: Mapping[Link, Link]
    own: Mapping[Link, Link]

    def there(self, held: Iterable[Hold]) -> tuple[Hold, ...]:
        """The holds of this cluster's links, with the links of `scripts`."""
        links = self.links
        return tuple(h._replace(link=links[h.link]) for h in held if h.link in links)

    def here(self, held: Iterable[Hold]) -> tuple[Hold, ...]:
        """Holds of links of `scripts`, with this cluster's links. Others are none of its calls'."""
        return tuple(h._replace(link=self.own[h.link]) for h in held)


def groups_of(dies: Iterable[int], joined: DisjointSets[object]) -> tuple[tuple[int, ...], ...]:
    """The dies by group, in the order of the first of each."""
    groups: dict[object, list[int]] = {}
    for die in dies:
        groups.setdefault(joined[die], []).append(die)
    return tuple(map(tuple, groups.values()))


@dataclass
class Clusters:
    """The clusters of calls of a program, with the first of those that are alike."""

    builder: Builder
    _first: dict[Hashable, Cluster] = field(default_factory=dict)

    def of(self, procedure: str, places: Mapping[int, Places]) -> tuple[Cluster, ...]:
        """The clusters of a call of a procedure, with the memories of its arguments by die."""
        ties = {die: self.builder.ties(die, procedure, where) for die, where in places.items()}
        joined: DisjointSets[object] = DisjointSets()
        for die, tie in ties.items():
            joined.union(die, *tie.receivers(), *self._links([tie]))
        return tuple(
            self._cluster(procedure, {die: places[die] for die in dies}, [ties[die] for die in dies])
            for dies in groups_of(ties, joined)
        )

    def _cluster(self, procedure: str, places: Mapping[int, Places], ties: Sequence[Ties]) -> Cluster:
        links = self._links(ties)
        shape = self._shape(tuple(places), ties, {link: n for n, link in enumerate(links)})
        first = self._first.get(shape)
        if first is None:
            calls = {die: self.builder.call(die, procedure, where) for die, where in places.items()}
            scripts = Scripts.of({die: [(0, call)] for die, call in calls.items()})
            same = {link: link for link in links}
            first = Cluster(tuple(places), tuple(calls.values()), scripts, same, same)
            return self._first.setdefault(shape, first)
        there = dict(zip(links, first.links, strict=True))
        own = {b: a for a, b in there.items()}
        return Cluster(tuple(places), first.calls, first.scripts, there, own)

    def _links(self, ties: Iterable[Ties]) -> dict[Link, None]:
        """The links of all routes, in the order in which they are met."""
        routes = self.builder.streams.routes
        return {
            hop: None
            for tie in ties
            for number in tie.routes
            for leg in routes[number].legs
            for hop in leg.hops
        }

    def _shape(self, dies: Sequence[int], ties: Sequence[Ties], links: Mapping[Link, int]) -> Hashable:
        """What alike clusters have in common: codes, peers and routes, with numbers for dies and links."""
        numbers, stages = {die: n for n, die in enumerate(dies)}, self.builder.stages
        return tuple([
            (
                id(tie.draft),  # the builder keeps it
                tuple([(numbers.get(p, ~p), stages[p] != stages[die]) for p in tie.peers]),
                self._routes(tie, links),
            )
            for die, tie in zip(dies, ties, strict=True)
        ])  # fmt: skip

    def _routes(self, tie: Ties, links: Mapping[Link, int]) -> Hashable:
        """The routes of a die by numbers of links and their classes; those that are merged have one number."""
        trees: dict[int, int] = {ALONE: ALONE}
        wafer = self.builder.costs.wafer
        return tuple([
            (
                trees.setdefault(route.merged, len(trees)),
                tuple([
                    (leg.share, tuple([(links[hop], wafer.link_class(*hop)) for hop in leg.hops])) for leg in route.legs
                ]),
            )
            for route in (self.builder.streams.routes[number] for number in tie.routes)
        ])  # fmt: skip
