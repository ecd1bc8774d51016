"""The search space: strategies as products of degrees of the axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wscc.strategy import BATCH, POLICIES, mesh_axes, policy

# The degrees of the axes above 1, in the order of the logical mesh.
Strategy = tuple[tuple[str, int], ...]

ONE_DIE: Final[Strategy] = ()


def strategies(dies: int) -> Iterator[Strategy]:
    """Every way to write `dies` as a product of degrees, one for each axis; large degrees of the first axes last."""
    for degrees in _factorisations(dies, len(POLICIES)):
        yield mesh_axes(dict(zip(POLICIES, degrees, strict=True)))


def _factorisations(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (n,)
        return
    for first in range(1, n + 1):
        if n % first == 0:
            for rest in _factorisations(n // first, parts - 1):
                yield first, *rest


def replicas_of(strategy: Strategy) -> Strategy:
    """The axes that repeat the model for sequences of their own: a graph depends on no others."""
    return tuple((axis, degree) for axis, degree in strategy if policy(axis).seed == (BATCH,))


def spell(strategy: Strategy) -> str:
    """The strategy as `--parallel` takes it."""
    return ",".join(f"{axis}={degree}" for axis, degree in strategy or ((next(iter(POLICIES)), 1),))
