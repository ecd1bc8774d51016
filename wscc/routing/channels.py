"""Virtual channels, each with the turns that it allows: a set whose channel dependencies have no cycle.

A message keeps one channel, and each branch of a multicast waits for itself alone, so that a routing whose paths
take only allowed turns is free of routing deadlock. On a whole mesh channel 0 is west-first and channel 1
east-first: every path that goes west (or east) only at its beginning, hence every shortest one and every detour of
a column to the side. Damage leaves room for other turns, which are added while no cycle closes.

On a torus each channel is cut open elsewhere, one at the ends and one half-way, so that a shortest path around a ring
crosses the cut of one of them at most (the two channels of a dateline, but a message keeps its own). Channels double
with each dimension that is closed, to have every shortest path: four where rows and columns are rings, eight with
planes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from wscc.machine.topology import Hop, Path, Topology
from wscc.routing.flows import Ints
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
    """The allowed turns of one virtual channel as arrays. Links are given by their *position* in a topological order,
    in which every allowed turn leads forward; `link[position]` is the number of the link in `topology.links`.

    `tail`, `head` ([links]): the dies at both ends. `predecessors` ([links, width]): positions of the links from
    which a turn leads to a link, padded with the number of links. `entering` ([dies, width]): positions of the links
    that end at a die, padded likewise. Positions `levels[k]` to `levels[k + 1]` have no turn between them.
    """

    turns: frozenset[Turn]
    link: Ints
    tail: Ints
    head: Ints
    predecessors: Ints
    entering: Ints
    levels: tuple[int, ...]

    @staticmethod
    def of(topology: Topology, turns: Turns) -> Channel:
        """The channel that allows `turns`."""
        links = topology.links
        level = _levels(turns)
        order = sorted(range(len(links)), key=lambda i: (level[i], i))
        position = {link: i for i, link in enumerate(order)}
        count = len(links)
        predecessors = [[position[i] for i in sorted(turns.predecessors[link])] for link in order]
        entering: list[list[int]] = [[] for _ in range(topology.dies)]
        for i, link in enumerate(order):
            entering[links[link][1]].append(i)
        steps = [i for i in range(1, count) if level[order[i]] != level[order[i - 1]]]
        return Channel(
            frozenset(turns.allowed),
            np.array(order, np.int64),
            np.array([links[i][0] for i in order], np.int64),
            np.array([links[i][1] for i in order], np.int64),
            _padded(predecessors, count),
            _padded(entering, count),
            (0, *steps, count),
        )

    @property
    def links(self) -> int:
        return len(self.link)

    @cached_property
    def position(self) -> Ints:
        """The position of every link of `topology.links`."""
        position = np.empty(self.links, np.int64)
        position[self.link] = np.arange(self.links)
        return position


def make_channels(
    topology: Topology, numbers: dict[Hop, int], paths: Iterable[Path], count: int = CHANNELS,
    detours: Iterable[Path] = (),
) -> tuple[Channel, ...]:  # fmt: skip
    """At most `count` channels that together join the ends of all `paths`: no more than have a use.

    On a whole mesh they allow every XY path. On a damaged one each path is added to the first channel on which its
    turns close no cycle, one path after the other (T. Skeie, O. Lysne, I. Theiss, "Layered Shortest Path Routing in
    Irregular System Area Networks", IPDPS 2002); then the turns of the `detours`, the first of them first, and last
    every other turn that closes none.
    """
    assert count >= 1
    rules = [_rule(topology, v) for v in range(min(count, useful_channels(topology)))]
    candidates = all_turns(topology, numbers)
    ruled = [[(numbers[a], numbers[b]) for a, b in candidates if rule(a, b)] for rule in rules]
    turns_by_path = [turns_of(path, numbers) for path in dict.fromkeys(paths)]
    if topology.is_whole_mesh:
        return tuple(Channel.of(topology, _filled(len(numbers), turns)) for turns in ruled)
    sets, has_room = _layered(len(numbers), ruled, turns_by_path)
    if not has_room:
        up_down = up_down_rule(topology, -1)
        ruled[-1] = [(numbers[a], numbers[b]) for a, b in candidates if up_down(a, b)]
        sets[-1] = _filled(len(numbers), ruled[-1])
    unruled = [(numbers[a], numbers[b]) for a, b in candidates]
    known = frozenset(unruled)
    for detour in (turns_of(path, numbers) for path in detours):
        if known.issuperset(detour):
            any(turns.add_all(detour) for turns in (sets if has_room else sets[:-1]))
    # By up-down turns alone, a shortest path visits no die twice; with more turns it might.
    open_sets = zip(sets, ruled, strict=True) if has_room else zip(sets[:-1], ruled, strict=False)
    for turns, rule in open_sets:
        for turn in (*rule, *unruled):
            turns.add(turn)
    return tuple(Channel.of(topology, turns) for turns in sets)


def channel_of(channels: tuple[Channel, ...], turns: Iterable[Turn]) -> int | None:
    """The number of the first channel that allows all the turns; None if there is none."""
    needed = frozenset(turns)
    return next((v for v, channel in enumerate(channels) if needed <= channel.turns), None)


def useful_channels(topology: Topology) -> int:
    """The number of channels beyond which more have no use: every shortest path has one."""
    return CHANNELS if topology.grid is None else max(CHANNELS, 1 << sum(topology.closed))


def _rule(topology: Topology, channel: int) -> Rule:
    if topology.grid is None:
        return up_down_rule(topology, -channel)
    halves = iter(_halves(channel, sum(topology.closed)))
    cut = [
        n // 2 * next(halves) if shut else 0
        for n, shut in zip(topology.extents, topology.closed, strict=True)
    ]
    return first_direction_rule(topology, 1 if channel % 2 else -1, cut)


def _halves(channel: int, closed: int) -> tuple[int, ...]:
    """Of each closed dimension, whether the channel is cut open half-way (1) or at its ends. Channels come in pairs
    that are cut open differently in all."""
    bits = tuple(channel // 2 >> k & 1 for k in reversed(range(closed)))
    return tuple(1 - b for b in bits) if channel % 2 else bits


def _filled(links: int, rule: list[Turn]) -> Turns:
    turns = Turns(links, rule)
    turns.add_all(rule)
    return turns


def _layered(links: int, ruled: list[list[Turn]], paths: list[list[Turn]]) -> tuple[list[Turns], bool]:
    """By channel, the turns of the paths that are layered on it, each path whole; and whether every path has one.

    `paths` are the turns of each. Those that keep to a rule are added first: they never close a cycle."""
    allowed = [frozenset(turns) for turns in ruled]
    sets = [Turns(links, rule) for rule in ruled]
    unruled = []
    for turns in paths:
        channel = next((v for v, rule in enumerate(allowed) if rule.issuperset(turns)), None)
        if channel is None:
            unruled.append(turns)
        else:
            sets[channel].add_all(turns)
    return sets, all([any(layer.add_all(turns) for layer in sets) for turns in unruled])


def _levels(turns: Turns) -> list[int]:
    """The length of the longest chain of turns that ends at each link."""
    level = [0] * len(turns.position)
    for link in sorted(range(len(level)), key=turns.position.__getitem__):
        level[link] = max((level[i] + 1 for i in turns.predecessors[link]), default=0)
    return level


def _padded(lists: list[list[int]], filler: int) -> Ints:
    width = max((len(row) for row in lists), default=0) or 1
    return np.array([row + [filler] * (width - len(row)) for row in lists], np.int64).reshape(-1, width)
