"""The switches of nodes and of the network that joins them, as vertices behind the dies. SI units throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wscc.diagnostics.limits import beyond_limits
from wscc.machine.parts import Hub, Link, Network


@dataclass(frozen=True, slots=True)
class Switches:
    """Those of `nodes` nodes of `each` dies, which have a `link` to the hub of their node.

    Switches are numbered: one of each node, the leaves of the network, and where there are several of these a spine
    above them. Every one is two vertices, where messages enter it and where they leave it. What is below a switch has
    a link up into its entry and one down from its exit, and all other links follow from that (`_above`, `leaf_of`).
    """

    nodes: int
    each: int
    link: Link
    hub: Hub
    network: Network | None = None

    @property
    def dies(self) -> int:
        return self.nodes * self.each

    @property
    def leaves(self) -> int:
        """The switches of the network that dies have a link to."""
        if self.network is None:
            return 0
        tree = self.network.leaves
        return 1 if tree is None else self.each if tree.are_rails else -(-self.nodes // tree.nodes)

    @property
    def count(self) -> int:
        return self.nodes + self.leaves + (self.leaves > 1)

    def leaf_of(self, die: int) -> int:
        """The leaf that a die has a link to."""
        tree = self.network and self.network.leaves
        if not tree:
            return 0
        row, col = divmod(die, self.each)
        return col if tree.are_rails else row // tree.nodes

    def entry(self, switch: int) -> int:
        """The vertex where messages enter a switch; they leave it at the one behind."""
        return self.dies + 2 * switch

    def _level(self, vertex: int) -> int:
        """0: the switch of a node; 1: a leaf; 2: the spine; -1: a die."""
        if vertex < self.dies:
            return -1
        switch = (vertex - self.dies) // 2
        return (switch >= self.nodes) + (switch >= self.nodes + self.leaves)

    def _above(self, vertex: int) -> tuple[int, ...]:
        """The entries that a link leads up to from a die or the entry of a switch."""
        if vertex < self.dies:
            node = self.entry(vertex // self.each)
            return (node, self.entry(self.nodes + self.leaf_of(vertex))) if self.leaves else (node,)
        is_below = self._level(vertex) == 1 and self.leaves > 1
        return (self.entry(self.count - 1),) if is_below else ()

    def is_hop(self, a: int, b: int) -> bool:
        """Whether a link leads from one vertex to another: up into a switch, through it, or down out of it."""
        if not 0 <= min(a, b) <= max(a, b) < self.entry(self.count):
            return False
        a_is_exit, b_is_exit = (v >= self.dies and (v - self.dies) % 2 == 1 for v in (a, b))
        if a_is_exit:
            return (b_is_exit or b < self.dies) and a - 1 in self._above(b - b_is_exit)
        return b == a + 1 and a >= self.dies if b_is_exit else b in self._above(a)

    def hops(self, live: Iterable[int]) -> Iterator[tuple[int, int]]:
        """The links of live dies and of the switches above some of them, sorted by both ends."""
        found, frontier = set(), set(live)
        while frontier:
            above = {(v, entry) for v in frontier for entry in self._above(v)}
            frontier = {entry for _, entry in above}
            found |= above | {(entry, entry + 1) for entry in frontier}
            found |= {(entry + 1, v if v < self.dies else v + 1) for v, entry in above}
        return iter(sorted(found))

    def links_between(self, live: Iterable[int]) -> int:
        """The links from switch to switch and to live dies, each of its two directions counted."""
        return sum(b != a + 1 or a < self.dies for a, b in self.hops(live))

    @property
    def links(self) -> tuple[Link, ...]:
        """The classes of links (`link_class`): of a die to its node, and what passes through that; of a die to its
        leaf, and through that; of a leaf to the spine, and through that. In the graph that dies are placed on, whose
        hub is no switch: of dies of one node, of one leaf, and of others."""
        core, net = replace(self.link, energy=0.0), self.network
        inside = (
            [replace(core, bandwidth=self.hub.capacity, latency=self.hub.latency)]
            if self.hub.capacity
            else []
        )
        if net is None:
            return self.link, *inside
        through = replace(core, bandwidth=net.capacity, latency=net.latency)
        if net.leaves is None:
            return self.link, *inside, net.link, through
        if not inside:
            return self.link, net.link, self._across()
        up = replace(net.link, bandwidth=net.leaves.uplink)
        spine = replace(through, bandwidth=net.leaves.uplink * self.leaves)
        return self.link, *inside, net.link, through, up, spine

    def _across(self) -> Link:
        """What counts as the link of two dies on unlike leaves, where dies are placed: a byte takes its time on the
        link of a die and then on its share of an uplink."""
        assert self.network is not None
        assert self.network.leaves is not None
        link, tree = self.network.link, self.network.leaves
        share = max(1, tree.uplink // (self.nodes if tree.are_rails else tree.nodes * self.each))
        bandwidth = max(1, link.bandwidth * share // (link.bandwidth + share))
        return replace(link, bandwidth=bandwidth, latency=2 * link.latency)

    def link_class(self, a: int, b: int) -> int:
        """The place of a link in `links`; of two dies, which all have in the graph that they are placed on."""
        if max(a, b) >= self.dies:
            return 2 * max(self._level(a), self._level(b)) + (min(a, b) >= self.dies and abs(a - b) == 1)
        is_out = a // self.each != b // self.each
        level = is_out + (is_out and self.leaf_of(a) != self.leaf_of(b))
        return 2 * level if self.hub.capacity else level

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Fields that are out of range or do not agree with others, each with why not."""
        net = self.network
        for part in (self.hub, net, net and net.link, net and net.leaves):
            yield from beyond_limits(part) if part else ()
        if net is not None and net.leaves is not None and self.leaves < 2:
            yield "leaves", f"are one, which joins all {self.nodes} nodes: a single switch does that"
