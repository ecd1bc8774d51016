"""Relaxation of the links of a channel in topological order: costs of the cheapest paths by allowed turns.

The shortest paths of a directed acyclic graph (T. Cormen et al., "Introduction to Algorithms", section 24.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wscc.routing.channels import Channel
from wscc.routing.flows import Floats, Ints


def relax(
    channel: Channel, prices: Floats, sources: Ints, in_tree: NDArray[np.bool_] | None = None
) -> Floats:
    """`[links + 1, sources]`: the cost of the cheapest path from each source that ends with a link, that included.

    Links by position; infinite where no path is, and in the last row, which pads lists of links. `prices` by
    position, positive. Links that are `in_tree` ([links, sources]) cost nothing, nor does any path up to them.
    """
    cost = np.full((channel.links + 1, len(sources)), np.inf)
    cost[:-1][channel.tail[:, None] == sources[None, :]] = 0.0
    for low, high in zip(channel.levels, channel.levels[1:], strict=False):
        level = cost[low:high]
        if low:
            # There are many levels of few links: one stroke for all predecessors of a level.
            before = cost[channel.predecessors[low:high]]
            np.minimum(level, np.minimum.reduce(before, axis=1), out=level)
        level += prices[low:high, None]
        if in_tree is not None:
            level[in_tree[low:high]] = 0.0
    return cost


def trace(channel: Channel, cost: Floats, column: Ints, sources: Ints, last: Ints) -> list[Ints]:
    """The cheapest paths from the dies `sources` that end with the links at positions `last`, as numbers of links.

    `cost` is that of `relax` without a tree, and `column` the one of each source in it.
    """
    count = len(last)
    path, position = np.arange(count), last
    paths, positions = [], []
    while len(path):
        paths.append(path)
        positions.append(position)
        # Prices are positive, so that a path that can start with this link does.
        goes_on = channel.tail[position] != sources[path]
        path, position = path[goes_on], position[goes_on]
        choices = channel.predecessors[position]
        pick = cost[choices, column[path][:, None]].argmin(axis=1)
        position = choices[np.arange(len(path)), pick]
    if not count:
        return []
    # Traced from the last link back: the later traced, the earlier on the path.
    steps = np.repeat(np.arange(len(paths)), [len(p) for p in paths])
    owner = np.concatenate(paths)
    order = np.lexsort((-steps, owner))
    links = channel.link[np.concatenate(positions)[order]]
    return np.split(links, np.searchsorted(owner[order], np.arange(1, count)))
