"""From shares to whole bytes: parts that are too small are dropped, small demands take one way each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.routing.columns import Column, Pool, loads_of
from wscc.routing.flows import Floats
from wscc.routing.limits import Limits
from wscc.routing.split import split

_SHARPNESS: Final = 60.0  # of the prices at which demands that may not be split choose their way
_PASSES: Final = 4
_NEAR: Final = 1 + 5e-4  # dropping small parts raised the load so little that it is not worth a solution
_HOT: Final = 0.9  # after the first pass, only demands on links this full choose again


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """`bytes` of the demand of a column that take its way."""

    column: Column
    bytes: int


def settle(
    pool: Pool, sizes: Sequence[int], fixed: Floats, shares: Floats | None, scale: float, limits: Limits
) -> list[Part]:
    """Parts of every demand, which sum to its size in bytes and keep to the limits.

    `shares` by column of the pool (fewer than it has now, perhaps), or None: then every demand takes one way.
    `scale`: about the largest load of a link.
    """
    if shares is not None:
        shares = np.pad(shares, (0, len(pool.columns) - len(shares)))
    kept = _kept(pool, sizes, shares, limits)
    amounts = np.array(sizes, float)
    loose = [
        d for d, columns in enumerate(kept) if shares is None or len(columns) < _supported(pool, d, shares)
    ]
    alone = [d for d in loose if len(kept[d]) == 1]
    if alone:
        _choose_whole(pool, kept, alone, amounts, fixed, shares, scale)
    columns = [pool.columns[j] for each in kept for j in each]
    if shares is None or all(len(each) == 1 for each in kept):
        return [Part(column, sizes[column.demand]) for column in columns]
    few = [
        limits.least_part(sizes[c.demand]) / sizes[c.demand] if len(kept[c.demand]) > 1 else 1.0
        for c in columns
    ]
    plain = _renormalised(columns, np.array([shares[j] for each in kept for j in each]), len(sizes))
    load = fixed + loads_of(columns, plain * amounts[[c.demand for c in columns]], len(fixed))
    if load.max() <= scale * _NEAR:
        return _whole(columns, plain, sizes, limits)
    again = split(columns, np.array(few) * (1 - 1e-9), amounts, fixed, scale)
    return _whole(columns, plain if again is None else again.shares, sizes, limits)


def _renormalised(columns: Sequence[Column], shares: Floats, demands: int) -> Floats:
    """The shares, such that those of each demand sum to 1."""
    owner = [c.demand for c in columns]
    total = np.bincount(owner, shares, minlength=demands)
    alone = np.bincount(owner, minlength=demands) == 1
    # A demand with one way may have chosen one that had no share.
    return np.where(alone[owner], 1.0, shares / np.where(total > 0, total, 1.0)[owner])


def _supported(pool: Pool, demand: int, shares: Floats) -> int:
    return sum(shares[j] > 1e-9 for j in pool.of[demand])


def _kept(pool: Pool, sizes: Sequence[int], shares: Floats | None, limits: Limits) -> list[list[int]]:
    """By demand, the columns that its parts may take: the largest shares, none too small, at least one."""
    if shares is None:
        return [[columns[0]] for columns in pool.of]
    kept = []
    for size, columns in zip(sizes, pool.of, strict=True):
        ranked = sorted(columns, key=lambda j: (-shares[j], j))
        least = limits.least_part(size) / size
        most = limits.most_paths(size)
        kept.append(ranked[:1] + [j for j in ranked[1:most] if shares[j] >= least])
    return kept


def _choose_whole(
    pool: Pool, kept: list[list[int]], alone: list[int], amounts: Floats, fixed: Floats, shares: Floats | None,
    scale: float,
) -> None:  # fmt: skip
    """Let the demands `alone` choose one column each, one demand after the other, largest first, at prices that
    follow every choice; the other demands stay where they are. Changes `kept`."""
    load = fixed.copy()
    for d, columns in enumerate(kept):
        total = 1.0 if shares is None or len(columns) == 1 else sum(shares[j] for j in columns)
        for j in columns:
            part = 1.0 if shares is None or len(columns) == 1 else shares[j] / total
            load[pool.columns[j].links] += amounts[d] * part
    order = sorted(alone, key=lambda d: (-amounts[d], d))
    for _ in range(_PASSES):
        limit = _HOT * load.max()
        moved = False
        for d in order:
            mine = pool.columns[kept[d][0]]
            if load[mine.links].max() < limit:
                continue
            load[mine.links] -= amounts[d]
            weight = np.exp(_SHARPNESS * np.minimum(load / scale - 1, 8.0))
            costs = [weight[pool.columns[j].links].sum() for j in pool.of[d]]
            best = pool.of[d][int(np.argmin(costs))]
            moved |= best != kept[d][0]
            kept[d][0] = best
            load[pool.columns[best].links] += amounts[d]
        if not moved:
            break


def _whole(columns: Sequence[Column], shares: Floats, sizes: Sequence[int], limits: Limits) -> list[Part]:
    """Shares rounded down to bytes, the rest to the largest part of each demand."""
    parts: list[Part] = []
    by_demand: dict[int, list[int]] = {}
    for j, column in enumerate(columns):
        by_demand.setdefault(column.demand, []).append(j)
    for d, places in by_demand.items():
        size = sizes[d]
        ranked = sorted(places, key=lambda j: (-shares[j], j))
        least = limits.least_part(size)
        rest = size
        smaller = []
        for j in ranked[1:]:
            amount = max(least, int(shares[j] * size))
            smaller.append(Part(columns[j], amount))
            rest -= amount
        parts += [Part(columns[ranked[0]], rest), *smaller]
    return parts


def fractional_load(pool: Pool, amounts: Floats, fixed: Floats, shares: Floats) -> Floats:
    """Bytes by link when the first columns of the pool have these shares."""
    columns = pool.columns[: len(shares)]
    parts = shares * amounts[[c.demand for c in columns]]
    return fixed + loads_of(columns, parts, len(fixed))
