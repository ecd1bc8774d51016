"""Global coordinates of what a die holds of a dimension: one run, or several where a sequence lies in zigzag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.per_die import Ints, per_die, times
from wscc.ir.zigzag import piece_at


@dataclass(frozen=True, slots=True)
class Run:
    """`size` local indices from `local` on, whose global coordinates start at `start` (by die)."""

    local: int
    size: int
    start: Ints


Runs = Callable[[str], list[Run]]


@dataclass(frozen=True, slots=True)
class Coordinates:
    """How dimensions are cut: `zigzag` axes hold their blocks in that order."""

    mesh: LogicalMesh
    zigzag: tuple[str, ...]

    def runs(self, axes: Sequence[str], size: int, *, folded: str = "") -> list[Run]:
        """What each die holds of a dimension of `size` split by `axes`, major first. `folded` names the axis by
        which the dimension lies in zigzag although nothing splits it any more: it was gathered."""
        first = axes[0] if axes and axes[0] in self.zigzag else folded
        blocks = self.mesh.block(axes)
        count = 1
        for a in axes:
            count *= self.mesh.sizes[a]
        if not first:
            return [Run(0, size // count, times(per_die(blocks), size // count))]
        return self.zigzag_runs(first, size, blocks, count)

    def chunk(self, axes: Sequence[str], axis: str, size: int, shards: Sequence[int]) -> list[Run]:
        """What each die works on of a dimension that a stream cuts over `axis`: shard `shards[die]` of what
        `axes`, the others that split it, leave."""
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
        piece, own = size // (2 * shards), size // count
        if own <= piece:
            inside = [b * own for b in blocks]
            start = per_die(piece_at(at // piece, shards) * piece + at % piece for at in inside)
            return [Run(0, own, start)]
        each = own // piece
        return [
            Run(k * piece, piece, per_die(piece_at(b * each + k, shards) * piece for b in blocks))
            for k in range(each)
        ]


def ends(run: Run, die: int) -> int:
    """The last global coordinate of a run."""
    start = run.start if isinstance(run.start, int) else run.start[die]
    return start + run.size - 1


def visible(queries: Run, keys: Run, dies: int) -> Ints:
    """1 on dies where some query may see some key under a causal mask."""
    first = [keys.start if isinstance(keys.start, int) else keys.start[i] for i in range(dies)]
    return per_die(int(first[i] <= ends(queries, i)) for i in range(dies))
