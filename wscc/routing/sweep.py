"""One sweep over the links of a channel: the cost of the cheapest allowed way from every source to every link."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wscc.routing.channels import Channel
from wscc.routing.flows import Floats, Ints


def sweep(channel: Channel, prices: Floats, sources: Ints, free: NDArray[np.bool_] | None = None) -> Floats:
    """`[links + 1, sources]`: the cost of arriving over a link, itself included, from each source by allowed turns;
    infinite where there is no way, and in the last row, which pads lists of links.

    `prices` by place, positive. Links that are `free` ([links, sources]) are in the tree of a source: arriving over
    them costs nothing.
    """
    cost = np.full((channel.links + 1, len(sources)), np.inf)
    cost[:-1][channel.tail[:, None] == sources[None, :]] = 0.0
    for low, high in zip(channel.levels, channel.levels[1:], strict=False):
        here = cost[low:high]
        if low:
            for k in range(channel.before.shape[1]):
                np.minimum(here, cost[channel.before[low:high, k]], out=here)
        here += prices[low:high, None]
        if free is not None:
            here[free[low:high]] = 0.0
    return cost


def trace(channel: Channel, cost: Floats, column: Ints, sources: Ints, last: Ints) -> list[Ints]:
    """The cheapest paths that start at the dies `sources`, which are those of `column` of a sweep without free
    links, and end over the places `last`: the numbers of their links, in order."""
    count = len(last)
    path, here = np.arange(count), last
    paths, places = [], []
    while len(path):
        paths.append(path)
        places.append(here)
        # Prices are positive, so that a way that could start here does.
        goes_on = channel.tail[here] != sources[path]
        path, here = path[goes_on], here[goes_on]
        choices = channel.before[here]
        pick = cost[choices, column[path][:, None]].argmin(axis=1)
        here = choices[np.arange(len(path)), pick]
    if not count:
        return []
    # Found from the last link back: the later found, the earlier on the path.
    steps = np.repeat(np.arange(len(paths)), [len(p) for p in paths])
    owner = np.concatenate(paths)
    order = np.lexsort((-steps, owner))
    links = channel.link[np.concatenate(places)[order]]
    return np.split(links, np.searchsorted(owner[order], np.arange(1, count)))
