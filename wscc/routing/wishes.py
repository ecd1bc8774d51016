"""On a damaged wafer: the paths that traffic would take if every turn were allowed.

Which turns a channel allows is a choice there, and a hole may make a few of them dear. This tells which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.machine.topology import Path, Topology
from wscc.routing.columns import Pool
from wscc.routing.flows import Demand, Floats
from wscc.routing.free import FreeSearch
from wscc.routing.split import split
from wscc.routing.spread import spread

_BIDS: Final = 12
_CROSSINGS: Final = 200_000  # of links by all candidates, for a linear programme of about a second


def wished_paths(topology: Topology, demands: Sequence[Demand], fixed: Floats, load: Floats) -> list[Path]:
    """Good paths over all live links, those that carry most first; of demands with several destinations, to the
    farthest. `load`: bytes by link to start from, `fixed` of them there anyhow."""
    pool = Pool(len(demands), topology.links)
    amounts = np.array([d.bytes for d in demands], float)
    load, _ = spread(FreeSearch(topology, demands), pool, amounts, fixed, load, _BIDS)
    columns = pool.columns
    if sum(len(c.links) for c in columns) > _CROSSINGS:
        return []
    best = split(columns, np.zeros(len(columns)), amounts, fixed, float(load.max()))
    if best is None:
        return []
    carried = best.shares * amounts[[c.demand for c in columns]]
    order = sorted(np.flatnonzero(carried > 0).tolist(), key=lambda j: (-carried[j], j))
    return [columns[j].die_paths(topology)[0] for j in order]
