"""Rounding of shares to whole bytes: parts that are too small are dropped, small demands take one column each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.routing.columns import Column, Pool, loads_of
from wscc.routing.flows import Floats
from wscc.routing.limits import Limits
from wscc.routing.split import split

_SHARPNESS: Final = 60.0  # of the prices at which demands that may not be split choose their column
_PASSES: Final = 4
_NEAR: Final = 1 + 5e-4  # dropping small parts raised the load so little that it is not worth a solution
_HOT: Final = 0.9  # after the first pass, only demands on links this full choose again


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """`bytes` of the demand of a column that are sent along it."""

    column: Column
    bytes: int


def round_shares(
    pool: Pool, sizes: Sequence[int], fixed: Floats, shares: Floats | None, scale: float, limits: Limits
) -> list[Part]:
    """Parts of every demand, which sum to its size in bytes and keep to the limits.

    `shares` by column of the pool (the first ones, if it has more columns now), or None: then every demand takes
    one column. `sizes`: bytes by demand; `fixed`: bytes by link of pinned flows; `scale`: about the largest load of
    a link.
    """
    if shares is not None:
        shares = np.pad(shares, (0, len(pool.columns) - len(shares)))
    choices = _choices(pool, sizes, shares, limits)
    amounts = np.array(sizes, float)
    reduced = [
        d for d, columns in enumerate(choices) if shares is None or len(columns) < _support(pool, d, shares)
    ]
    unsplit = [d for d in reduced if len(choices[d]) == 1]
    if unsplit:
        _choose_whole(pool, choices, unsplit, amounts, fixed, shares, scale)
    columns = [pool.columns[j] for indices in choices for j in indices]
    if shares is None or all(len(indices) == 1 for indices in choices):
        return [Part(column, sizes[column.demand]) for column in columns]
    least = [
        limits.least_part(sizes[c.demand]) / sizes[c.demand] if len(choices[c.demand]) > 1 else 1.0
        for c in columns
    ]
    plain = _renormalised(columns, np.array([shares[j] for indices in choices for j in indices]), len(sizes))
    load = fixed + loads_of(columns, plain * amounts[[c.demand for c in columns]], len(fixed))
    if load.max() <= scale * _NEAR:
        return _to_bytes(columns, plain, sizes, limits)
    solution = split(columns, np.array(least) * (1 - 1e-9), amounts, fixed, scale)
    return _to_bytes(columns, plain if solution is None else solution.shares, sizes, limits)


def _renormalised(columns: Sequence[Column], shares: Floats, demands: int) -> Floats:
    """The shares, such that those of each demand sum to 1."""
    owner = [c.demand for c in columns]
    total = np.bincount(owner, shares, minlength=demands)
    is_single = np.bincount(owner, minlength=demands) == 1
    # A demand with one column may have chosen one that had no share.
    return np.where(is_single[owner], 1.0, shares / np.where(total > 0, total, 1.0)[owner])


def _support(pool: Pool, demand: int, shares: Floats) -> int:
    """The number of columns of a demand with a positive share."""
    return sum(shares[j] > 1e-9 for j in pool.by_demand[demand])


def _choices(pool: Pool, sizes: Sequence[int], shares: Floats | None, limits: Limits) -> list[list[int]]:
    """Indices of the columns that each demand may take: those of the largest shares, at least one, none too small."""
    if shares is None:
        return [[columns[0]] for columns in pool.by_demand]
    choices = []
    for size, columns in zip(sizes, pool.by_demand, strict=True):
        ranked = sorted(columns, key=lambda j: (-shares[j], j))
        least = limits.least_part(size) / size
        most = limits.most_paths(size)
        choices.append(ranked[:1] + [j for j in ranked[1:most] if shares[j] >= least])
    return choices


def _choose_whole(
    pool: Pool, choices: list[list[int]], unsplit: list[int], amounts: Floats, fixed: Floats, shares: Floats | None,
    scale: float,
) -> None:  # fmt: skip
    """Choose one column for each of the demands `unsplit`, largest first, at prices that follow every choice.

    The other demands keep their columns. Changes `choices`."""
    load = fixed.copy()
    for d, columns in enumerate(choices):
        total = 1.0 if shares is None or len(columns) == 1 else sum(shares[j] for j in columns)
        for j in columns:
            part = 1.0 if shares is None or len(columns) == 1 else shares[j] / total
            load[pool.columns[j].links] += amounts[d] * part * _times(pool.columns[j])
    order = sorted(unsplit, key=lambda d: (-amounts[d], d))
    for _ in range(_PASSES):
        limit = _HOT * load.max()
        moved = False
        for d in order:
            column = pool.columns[choices[d][0]]
            if load[column.links].max() < limit:
                continue
            load[column.links] -= amounts[d] * _times(column)
            weight = np.exp(_SHARPNESS * np.minimum(load / scale - 1, 8.0))
            costs = [_cost(pool.columns[j], weight) for j in pool.by_demand[d]]
            best = pool.by_demand[d][int(np.argmin(costs))]
            moved |= best != choices[d][0]
            choices[d][0] = best
            load[pool.columns[best].links] += amounts[d] * _times(pool.columns[best])
        if not moved:
            break


def _times(column: Column) -> Floats | float:
    return 1.0 if column.times is None else column.times


def _cost(column: Column, weight: Floats) -> float:
    return float((weight[column.links] * _times(column)).sum())


def _to_bytes(columns: Sequence[Column], shares: Floats, sizes: Sequence[int], limits: Limits) -> list[Part]:
    """Shares rounded down to bytes, the rest to the largest part of each demand."""
    parts: list[Part] = []
    by_demand: dict[int, list[int]] = {}
    for j, column in enumerate(columns):
        by_demand.setdefault(column.demand, []).append(j)
    for d, indices in by_demand.items():
        size = sizes[d]
        ranked = sorted(indices, key=lambda j: (-shares[j], j))
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
    """Bytes by link when the first columns of the pool have these shares; `amounts` by demand."""
    columns = pool.columns[: len(shares)]
    parts = shares * amounts[[c.demand for c in columns]]
    return fixed + loads_of(columns, parts, len(fixed))
