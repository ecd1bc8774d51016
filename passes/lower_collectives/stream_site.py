"""One stream to lower: the op, its views, and where each die's shards of the travelling tensor are."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.analysis.index_ranges import Coordinates, Run, Runs
from wscc.analysis.op_axes import split_axes
from wscc.ir.op import Op, Stream
from wscc.ir.per_die import Ints
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.ops import KERNELS
from wscc.passes.lower_collectives.reshards import Along
from wscc.passes.lower_collectives.site import Site

Shards = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamSite:
    """One streamed op on its local views: shards where it moves, whole along the factor elsewhere. `more` says, by
    result, that it is to be added to what is there. Of each shard along the factor, this is `part`: its
    first index and size."""

    along: Along
    op: Op
    stream: Stream
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    coordinates: Coordinates
    runs: Runs
    more: tuple[bool, ...]
    part: tuple[int, int] | None = None

    @property
    def build(self) -> FabricBuilder:
        return self.along.build

    @property
    def group(self) -> str:
        return self.op.results[0].name

    def ins(self) -> tuple[tuple[str, ...], ...]:
        return self.op.rule.ins

    def outs(self) -> tuple[tuple[str, ...], ...]:
        return self.op.rule.outs

    def chunk(self, view: View, term: tuple[str, ...], shards: Shards) -> View:
        """The view at the chunk of each die's shard; itself where it lacks the factor."""
        if self.stream.factor not in term:
            return view
        dim = term.index(self.stream.factor)
        shard = self.along.at(view, dim, self.along.by_position(shards))
        return sliced(shard, dim, *self.part) if self.part else shard

    def run(
        self, shards: Shards, reads: tuple[View, ...], writes: tuple[View, ...], more: tuple[bool, ...],
        where: Ints = 1,
    ) -> None:  # fmt: skip
        """The op's kernels on the chunk numbered `shards` (by position)."""
        axis, cut = self.stream.axis, self.stream.factor
        others = tuple(a for a in split_axes(self.op, cut) if a != axis)
        by_die = [shards[p] for p in self.along.mesh.coordinates(axis)]

        def runs(factor: str) -> list[Run]:
            if factor != cut:
                return self.runs(factor)
            return self.coordinates.chunk(others, axis, self.op.sizes[cut], by_die)

        KERNELS[self.op.kind](Site(self.build, self.op, reads, writes, runs, more, where))
