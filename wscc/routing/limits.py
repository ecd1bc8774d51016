"""Limits of the router: its stopping rules, and the number and size of the parts of a flow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """A round counts as slow when the largest load falls by less than `slow_gain` of itself; the router stops
    after `slow_rounds` of them in a row, after `max_iter` rounds, when no link carries more than `enough_bytes`,
    or when its load is proven to be within `close` of the least there is.

    A flow is cut into at most `max_paths` parts, none under `part_bytes` or `part_share` of it.
    """

    max_iter: int = 10
    slow_rounds: int = 3
    slow_gain: float = 0.05
    enough_bytes: int = 0
    close: float = 2e-3
    max_paths: int = 8
    part_bytes: int = 4096
    part_share: float = 0.02

    def least_part(self, amount: int) -> int:
        """The fewest bytes that a part of `amount` may have."""
        return max(self.part_bytes, -int(-amount * self.part_share // 1))

    def most_paths(self, amount: int) -> int:
        """The most parts that `amount` bytes may be cut into."""
        return max(1, min(self.max_paths, amount // self.least_part(amount)))
