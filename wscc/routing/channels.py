"""The virtual channels: the turns that each allows, such that its channel dependencies never close a cycle.

A message keeps one channel, and each branch of a multicast waits for itself alone, so that a routing whose paths
take only allowed turns is free of routing deadlock. On a whole mesh channel 0 is west-first and channel 1
east-first: every path that goes west (or east) only at its beginning, hence every shortest one and every detour of
a column to the side. Damage leaves room for other turns, which are added while no cycle closes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from wscc.machine.topology import Path, Topology
from wscc.routing.flows import Ints
from wscc.routing.loads import Hop
from wscc.routing.turns import (
    Rule,
    Turn,
    Turns,
    all_turns,
    first_direction_rule,
    turns_of,
    up_down_rule,
)  # fmt: skip

CHANNELS: Final = 2


@dataclass(frozen=True, eq=False)
class Channel:
    """The allowed turns of one virtual channel as arrays. Links are given by their *place* in an order in which
    every allowed turn leads forward; `link[place]` is the number of the link in `topology.links`.

    `tail`, `head`: dies by place. `before[place]`: the places a path may come from, padded with the number of
    links. `entering[die]`: the places of the links that end there, padded likewise. `levels[k]` to
    `levels[k + 1]` are places without a turn between them.
    """

    turns: frozenset[Turn]
    link: Ints
    tail: Ints
    head: Ints
    before: Ints
    entering: Ints
    levels: tuple[int, ...]

    @staticmethod
    def of(topology: Topology, turns: Turns) -> Channel:
        links = topology.links
        level = _levels(turns)
        order = sorted(range(len(links)), key=lambda i: (level[i], i))
        place = {link: i for i, link in enumerate(order)}
        count = len(links)
        before = [[place[i] for i in sorted(turns.before[link])] for link in order]
        entering: list[list[int]] = [[] for _ in range(topology.dies)]
        for i, link in enumerate(order):
            entering[links[link][1]].append(i)
        steps = [i for i in range(1, count) if level[order[i]] != level[order[i - 1]]]
        return Channel(
            frozenset(turns.known),
            np.array(order, np.int64),
            np.array([links[i][0] for i in order], np.int64),
            np.array([links[i][1] for i in order], np.int64),
            _padded(before, count),
            _padded(entering, count),
            (0, *steps, count),
        )

    @property
    def links(self) -> int:
        return len(self.link)

    @cached_property
    def place(self) -> Ints:
        """The place of every link of `topology.links`."""
        found = np.empty(self.links, np.int64)
        found[self.link] = np.arange(self.links)
        return found


def make_channels(
    topology: Topology, numbers: dict[Hop, int], paths: Iterable[Path], count: int = CHANNELS,
    wished: Iterable[Path] = (),
) -> tuple[Channel, ...]:  # fmt: skip
    """`count` (1 or 2) channels that together join the ends of all `paths`, and allow the paths themselves wherever
    room for them is found one path after the other (T. Skeie, O. Lysne, I. Theiss, "Layered Shortest Path
    Routing in Irregular System Area Networks", IPDPS 2002); on a whole mesh any XY paths.

    On a damaged mesh, turns of the `wished` paths are taken before others, the first of them first.
    """
    assert count in (1, 2)
    rules = [_rule(topology, v) for v in range(count)]
    candidates = all_turns(topology, numbers)
    ruled = [[(numbers[a], numbers[b]) for a, b in candidates if rule(a, b)] for rule in rules]
    wanted = [turns_of(path, numbers) for path in dict.fromkeys(paths)]
    if is_whole(topology):
        return tuple(Channel.of(topology, _filled(len(numbers), turns)) for turns in ruled)
    sets, has_room = _seeded(len(numbers), ruled, wanted)
    if not has_room:
        sure = up_down_rule(topology, -1)
        ruled[-1] = [(numbers[a], numbers[b]) for a, b in candidates if sure(a, b)]
        sets[-1] = _filled(len(numbers), ruled[-1])
    for path in wished:
        any(each.add_all(turns_of(path, numbers)) for each in (sets if has_room else sets[:-1]))
    every = [(numbers[a], numbers[b]) for a, b in candidates]
    # Up and down alone, a shortest way never comes twice to a die; with more turns it might.
    open_sets = zip(sets, ruled, strict=True) if has_room else zip(sets[:-1], ruled, strict=False)
    for turns, rule in open_sets:
        for turn in (*rule, *every):
            turns.add(turn)
    return tuple(Channel.of(topology, turns) for turns in sets)


def channel_of(channels: tuple[Channel, ...], turns: Iterable[Turn]) -> int | None:
    """The first channel that allows all the turns."""
    wanted = frozenset(turns)
    return next((v for v, channel in enumerate(channels) if wanted <= channel.turns), None)


def _rule(topology: Topology, channel: int) -> Rule:
    if topology.grid is None:
        return up_down_rule(topology, -channel)
    return first_direction_rule(topology, 1 if channel else -1)


def is_whole(topology: Topology) -> bool:
    """Whether it is a mesh without damage."""
    if topology.grid is None:
        return False
    rows, cols = topology.grid
    return len(topology.links) == 2 * (rows * (cols - 1) + cols * (rows - 1))


def _filled(links: int, rule: list[Turn]) -> Turns:
    turns = Turns(links, rule)
    turns.add_all(rule)
    return turns


def _seeded(links: int, ruled: list[list[Turn]], wanted: list[list[Turn]]) -> tuple[list[Turns], bool]:
    """The turns of the wanted paths, each path whole on some channel; and whether all found one. Paths that keep
    to a rule come first: they never close a cycle with one another."""
    allowed = [frozenset(turns) for turns in ruled]
    sets = [Turns(links, rule) for rule in ruled]
    odd = []
    for turns in wanted:
        fits = next((v for v, rule in enumerate(allowed) if rule.issuperset(turns)), None)
        if fits is None:
            odd.append(turns)
        else:
            sets[fits].add_all(turns)
    return sets, all([any(each.add_all(turns) for each in sets) for turns in odd])


def _levels(turns: Turns) -> list[int]:
    """By link, the length of the longest chain of turns before it."""
    level = [0] * len(turns.place)
    for link in sorted(range(len(level)), key=turns.place.__getitem__):
        level[link] = max((level[i] + 1 for i in turns.before[link]), default=0)
    return level


def _padded(lists: list[list[int]], filler: int) -> Ints:
    width = max((len(each) for each in lists), default=0) or 1
    return np.array([each + [filler] * (width - len(each)) for each in lists], np.int64).reshape(-1, width)
