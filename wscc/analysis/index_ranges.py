"""Ranges of global coordinates that a die holds of a dimension: one run, or several where a sequence is in zigzag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.per_die import Ints, per_die, times
from wscc.ir.zigzag import piece_at


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive indices of a dimension: `size` local ones from `local` on, whose global coordinates start at `start`
    (by die)."""

    local: int
    size: int
    start: Ints


Runs = Callable[[str], list[Run]]


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The partition of dimensions over a mesh; the blocks of the axes in `zigzag` are in zigzag order."""

    mesh: LogicalMesh
    zigzag: tuple[str, ...]

    def runs(self, axes: Sequence[str], size: int, *, folded: str = "") -> list[Run]:
        """The runs that each die holds of a dimension of `size` split by `axes`, major first.

        `folded` names the axis by which a dimension is in zigzag order although it has been gathered along it.
        """
        first = axes[0] if axes and axes[0] in self.zigzag else folded
        blocks = self.mesh.block(axes)
        count = 1
        for a in axes:
            count *= self.mesh.sizes[a]
        if not first:
            return [Run(0, size // count, times(per_die(blocks), size // count))]
        return self.zigzag_runs(first, size, blocks, count)

    def chunk(self, axes: Sequence[str], axis: str, size: int, shards: Sequence[int]) -> list[Run]:
        """The runs of shard `shards[die]` of a dimension that a stream cuts over `axis`, within the block that the
        other `axes` which split it give the die."""
        count = self.mesh.sizes[axis]
        blocks = [b * count + k for b, k in zip(self.mesh.block(axes), shards, strict=True)]
        for a in axes:
            count *= self.mesh.sizes[a]
        if axis in self.zigzag:
            assert not axes, "a sequence in zigzag streams whole shards"
            return self.zigzag_runs(axis, size, blocks, count)
        return [Run(0, size // count, times(per_die(blocks), size // count))]

    def zigzag_runs(self, axis: str, size: int, blocks: Sequence[int], count: int) -> list[Run]:
        """The runs of block `blocks[die]` of `count` equal ones of a dimension in zigzag over `axis`."""
        shards = self.mesh.sizes[axis]
        piece, block = size // (2 * shards), size // count
        if block <= piece:
            offsets = [b * block for b in blocks]
            start = per_die(piece_at(o // piece, shards) * piece + o % piece for o in offsets)
            return [Run(0, block, start)]
        pieces = block // piece
        return [
            Run(k * piece, piece, per_die(piece_at(b * pieces + k, shards) * piece for b in blocks))
            for k in range(pieces)
        ]


def last_coordinate(run: Run, die: int) -> int:
    """The last global coordinate of a run on a die."""
    return _first(run, die) + run.size - 1


def visible(queries: Run, keys: Run, dies: int, window: int = 0) -> Ints:
    """A mask by die: 1 where some query of a run may see some key of a run under a causal mask, of `window` positions
    if that is not 0."""
    return per_die(
        int(_first(keys, i) <= last_coordinate(queries, i) and not _is_behind(queries, keys, i, window))
        for i in range(dies)
    )


def _is_behind(queries: Run, keys: Run, die: int, window: int) -> bool:
    """Whether all keys lie behind the window of every query."""
    return window > 0 and last_coordinate(keys, die) <= _first(queries, die) - window


def _first(run: Run, die: int) -> int:
    return run.start if isinstance(run.start, int) else run.start[die]
