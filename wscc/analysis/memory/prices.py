"""Prices of the fast memory by statement: what a byte of it is worth there, to those that compete for it.

The choice of live ranges that save most time is a knapsack problem with a capacity at each statement. Prices solve its
Lagrangian dual, by multiplicative updates (S. Arora, E. Hazan, S. Kale, "The Multiplicative Weights Update Method",
Theory of Computing 8, 2012): where more is wanted than fits, bytes become dearer, elsewhere cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.live_ranges import LiveRange

_ROUNDS: Final = 60
_STEP: Final = 0.5
# No price is zero, so that each can grow again.
_FREE: Final = 1e-18
_DEAREST: Final = 50
Floats = NDArray[np.float64]


def worth(ranges: Sequence[LiveRange], fast: int) -> dict[str, float]:
    """The seconds that each range saves in `fast` bytes, by name, in multiples of the price of its bytes while it
    lives. Those that have their places have none."""
    free = [x for x in ranges if x.address < 0]
    if not free:
        return {}
    first = np.array([x.first + x.start_slack // 2 for x in free], np.int64)
    last = np.maximum(first, np.array([x.last - x.end_slack // 2 for x in free], np.int64))
    size, saved = np.array([float(x.size) for x in free]), np.array([x.cost for x in free])
    capacity = _capacity(ranges, fast, int(last.max()) + 1)
    price = np.full(len(capacity), max(saved.sum(), _FREE) / (fast * len(capacity)))
    best, most = price, np.inf
    for n in range(_ROUNDS):
        rates = size * _sums(price, first, last)
        wanted = saved > rates
        # Duality: no choice saves more.
        bound = float(np.maximum(saved - rates, 0).sum() + (capacity * price).sum())
        if bound < most:
            most, best = bound, price
        used = _used(first[wanted], last[wanted], size[wanted], len(capacity))
        excess = used / np.maximum(capacity, 1) - 1
        price = np.maximum(price * np.exp(_STEP / np.sqrt(1 + n) * np.minimum(excess, _DEAREST)), _FREE)
    rates = size * _sums(best, first, last)
    return dict(zip((x.name for x in free), (saved / rates).tolist(), strict=True))


def _capacity(ranges: Sequence[LiveRange], fast: int, statements: int) -> Floats:
    """The bytes at each statement that ranges without a place of their own may take."""
    placed = [x for x in ranges if x.address >= 0 and x.first < statements]
    first = np.array([x.first for x in placed], np.int64)
    last = np.array([min(x.last, statements - 1) for x in placed], np.int64)
    return fast - _used(first, last, np.array([float(x.size) for x in placed]), statements)


def _used(first: NDArray[np.int64], last: NDArray[np.int64], size: Floats, statements: int) -> Floats:
    """The bytes of ranges at each statement."""
    change = np.bincount(first, size, statements + 1) - np.bincount(last + 1, size, statements + 1)
    return np.cumsum(change)[:-1]


def _sums(prices: Floats, first: NDArray[np.int64], last: NDArray[np.int64]) -> Floats:
    """The sum of the prices from `first` to `last` of each range."""
    before = np.concatenate(([0.0], np.cumsum(prices)))
    return np.asarray(before[last + 1] - before[first])
