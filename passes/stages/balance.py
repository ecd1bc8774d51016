"""The number of layers of each chunk, such that the fullest chunk takes the least time.

A pipeline goes at the pace of its fullest stage. The cut is a partition of a sequence into consecutive parts: the least
limit by bisection, and the most even partition within it by dynamic programming, both exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Balance:
    """Layers of the given weights, in order, to be cut into chunks of at least `least` layers each, and at most `most`
    if that is given; the first chunk has `before` besides, and the last one `after`. Weights are whole numbers, so that
    equal sums are equal."""

    layers: Sequence[int]
    least: Sequence[int]
    before: int = 0
    after: int = 0
    most: Sequence[int] = ()

    @cached_property
    def _ends(self) -> list[int]:
        """The weight of all layers before each, and of all of them."""
        return [0, *accumulate(self.layers)]

    def counts(self) -> list[int]:
        """Layers by chunk: those whose heaviest chunk is lightest, of them the most even, and where that leaves a
        choice more in the first chunks. There are at least as many layers as `least` asks for, and
        no more than `most` allows."""
        limit = self._least_limit()
        return self._most_even(limit)

    def weights(self, counts: Sequence[int]) -> list[int]:
        """The weight of each chunk with so many layers."""
        ends = [0, *accumulate(counts)]
        return [self._weight(chunk, first, end) for chunk, (first, end) in enumerate(pairwise(ends))]

    def _weight(self, chunk: int, first: int, end: int) -> int:
        own = self.before if chunk == 0 else 0
        own += self.after if chunk == len(self.least) - 1 else 0
        return own + self._ends[end] - self._ends[first]

    def _last_end(self, chunk: int, first: int, limit: int) -> int:
        """The end of the longest chunk from layer `first` on that is within the limit and leaves enough layers."""
        room = limit - self._weight(chunk, first, first)
        end = bisect_right(self._ends, self._ends[first] + room) - 1
        most = first + self.most[chunk] if self.most else end
        return min(end, most, len(self.layers) - sum(self.least[chunk + 1 :]))

    def _fits(self, limit: int) -> bool:
        """Whether chunks within the limit take all layers: each as many as it can, which leaves the next the fewest."""
        first = 0
        for chunk, least in enumerate(self.least):
            if self._weight(chunk, first, first) > limit:
                return False
            end = self._last_end(chunk, first, limit)
            if end < first + least:
                return False
            first = end
        return first == len(self.layers)

    def _least_limit(self) -> int:
        low, high = 0, self._ends[-1] + self.before + self.after
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(middle) else (middle + 1, high)
        return low

    def _most_even(self, limit: int) -> list[int]:
        """The counts with the least sum of squared weights among those within the limit."""
        total = len(self.layers)
        best = {total: 0}  # by first layer of the chunks behind, their sum of squares
        choices: list[dict[int, int]] = []  # by chunk, last first: its end by its first layer
        for chunk in reversed(range(len(self.least))):
            first_layers = range(sum(self.least[:chunk]), total + 1) if chunk else range(1)
            ends = {first: self._best_end(chunk, first, limit, best) for first in first_layers}
            choices.append({first: end for first, end in ends.items() if end is not None})
            best = {f: self._weight(chunk, f, end) ** 2 + best[end] for f, end in choices[-1].items()}
        counts, first = [], 0
        for choice in reversed(choices):
            counts.append(choice[first] - first)
            first = choice[first]
        return counts

    def _best_end(self, chunk: int, first: int, limit: int, best: dict[int, int]) -> int | None:
        """The end of the chunk from layer `first` on with the least sum of squares, the last of several."""
        last = self._last_end(chunk, first, limit)
        ends = [end for end in range(last, first + self.least[chunk] - 1, -1) if end in best]
        if not ends or self._weight(chunk, first, ends[-1]) > limit:
            return None
        return min(ends, key=lambda end: self._weight(chunk, first, end) ** 2 + best[end])
