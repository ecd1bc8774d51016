"""The load of experts in a step, from the statistics that a program adds up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class ExpertLoad:
    """Of one router in one step, [layers.., experts]: choices of each expert, and those of them that it dropped."""

    router: str
    step: int
    chosen: Counts
    dropped: Counts

    @property
    def dropped_share(self) -> float:
        """The share of all choices that are dropped."""
        return float(self.dropped.sum() / max(self.chosen.sum(), 1.0))

    @property
    def imbalance(self) -> float:
        """Choices of the busiest expert of any layer over the mean of that layer; 1 if all have as many."""
        means = np.maximum(self.chosen.mean(-1, keepdims=True), 1e-30)
        return float((self.chosen / means).max())

    def as_json(self) -> dict[str, Any]:
        """Whole numbers of tokens, by layer and expert."""
        return {
            "router": self.router,
            "step": self.step,
            "chosen": self.chosen.astype(np.int64).tolist(),
            "dropped": self.dropped.astype(np.int64).tolist(),
            "dropped_share": self.dropped_share,
            "imbalance": self.imbalance,
        }

    def __str__(self) -> str:
        return (
            f"experts of {self.router} in step {self.step}: {100 * self.dropped_share:.2f} % of choices dropped, "
            f"the busiest expert has {self.imbalance:.2f} x the mean"
        )


def loads(step: int, statistics: Mapping[str, Counts]) -> Iterator[ExpertLoad]:
    """The load of each router of a step: its two statistics stand one after the other."""
    names = list(statistics)
    for chosen, dropped in zip(names[::2], names[1::2], strict=True):
        router = chosen.replace(".chosen", "")
        yield ExpertLoad(router, step, statistics[chosen], statistics[dropped])
