"""Families of candidate plans: one algorithm with pieces and messages of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from wscc.collectives.plan import COPY, Plan
from wscc.collectives.timing import LinkModel

# Hops of chunks that a candidate may have: what keeps planning to seconds.
BUDGET: Final = 1 << 17
_PIECES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_PIECES: Final = _PIECES[-1]


@dataclass(frozen=True)
class Family:
    """`make(pieces, limit, seed)` returns a plan with every part of the data in `pieces`, and messages of up to
    `limit` bytes (1: a chunk each).

    `rows` are the numbers of pieces worth a try, with the limits for each, both rising; the search starts at `start`
    pieces. `seeds` break ties. No plan of the family takes less than `floor` byte times.
    """

    make: Callable[[int, int, int], Plan]
    rows: tuple[tuple[int, tuple[int, ...]], ...]
    start: int = 1
    seeds: int = 1
    floor: float = 0.0

    def changed(self, change: Callable[[Plan], Plan]) -> Family:
        """The family with every plan changed by `change`."""
        return replace(self, make=lambda pieces, limit, seed: change(self.make(pieces, limit, seed)))

    def __iter__(self) -> Iterator[Plan]:
        for pieces, limits in self.rows:
            for limit in limits:
                for seed in range(self.seeds):
                    yield self.make(pieces, limit, seed)


def pipelined(size: int, hops: int, model: LinkModel, op: str) -> int:
    """About the best number of pieces for `size` bytes along `hops` links.

    k pieces take (k + hops - 1) times as long as one, each with half a flit of padding and, where a message holds
    its link for it, the latency. One piece where bytes are passed on as they arrive."""
    if op == COPY and model.passes_early(COPY):
        return 1
    overhead = model.flit / 2 + (model.latency if model.store_and_forward else 0)
    return max(1, int((size * hops / overhead) ** 0.5))


def piece_counts(
    hops: int, smallest: int, model: LinkModel, most: int = MOST_PIECES, budget: int = BUDGET
) -> list[int]:
    """Numbers of pieces that stay within the budget of hops and keep a piece of `smallest` bytes above a flit."""
    return [p for p in _PIECES if p == 1 or (p <= most and p * hops <= budget and p * model.flit <= smallest)]


def message_limits(smallest: int, model: LinkModel, largest: int) -> tuple[int, ...]:
    """Limits of the bytes that share a message: one chunk alone where pieces are large, else whole flits up to all."""
    if smallest >= 8 * (model.latency + model.flit):
        return (1,)
    flits = [n * model.flit for n in (1, 2, 3, 4, 6, 8, 16, 32, 64)]
    return (1, *(n for n in flits if smallest < n < largest), largest)
