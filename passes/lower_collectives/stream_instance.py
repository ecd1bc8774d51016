"""Instance of a streamed op (a collective matmul) to lower: the op, its views, and its moving shards on each die."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wscc.analysis.gather_plan import used
from wscc.analysis.index_ranges import Coordinates, Run, Runs
from wscc.analysis.op_axes import split_axes
from wscc.ir.op import Op, Stream
from wscc.ir.per_die import Ints, at
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.op_instance import OpInstance
from wscc.passes.lower_collectives.ops import HAVE_WORK, LOWERINGS
from wscc.passes.lower_collectives.reshards import AxisGroups

Shards = tuple[int, ...]
# (first index, number of indices)
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StreamInstance:
    """An instance of a streamed op, whose operands or results move between dies in shards along one factor.

    A stream overlaps a collective with the op that uses it: a collective matmul (S. Wang et al., "Overlap Communication
    with Dependent Computation via Decomposition", ASPLOS 2023), here for any op.

    `reads`, `writes`: local views, shards of what moves, and whole along the factor else. `accumulate`: for each
    result, whether the instance adds to its contents. `cuts`: the factors of which this is a slice, with the first
    index and the number of indices; of the streamed factor, they are those of each shard, and what else has it may be
    there for the slice alone."""

    groups: AxisGroups
    op: Op
    stream: Stream
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    coordinates: Coordinates
    runs: Runs
    accumulate: tuple[bool, ...]
    cuts: tuple[tuple[str, Span], ...] = ()

    @property
    def build(self) -> FabricBuilder:
        """The builder of the procedure's body."""
        return self.groups.build

    @property
    def group(self) -> str:
        """The name of the group of its transfers."""
        return self.op.results[0].name

    def ins(self) -> tuple[tuple[str, ...], ...]:
        """The terms of the operands."""
        return self.op.rule.ins

    def outs(self) -> tuple[tuple[str, ...], ...]:
        """The terms of the results."""
        return self.op.rule.outs

    def chunk(self, view: View, term: tuple[str, ...], shards: Shards) -> View:
        """The chunk of a whole view that belongs to shard `shards[position]`; the view itself if it lacks the
        factor."""
        if self.stream.factor not in term:
            return view
        dim = term.index(self.stream.factor)
        shard = self.groups.shard_view(view, dim, self.groups.by_position(shards))
        span = dict(self.cuts).get(self.stream.factor, (0, shard.shape[dim]))
        return shard if shard.shape[dim] == span[1] else sliced(shard, dim, *span)

    def without_empty_chunks(self) -> StreamInstance:
        """The same stream, in which no shard goes to where the op has nothing to do with it."""
        if self.op.kind not in HAVE_WORK:
            return self
        position = self.groups.mesh.coordinates(self.groups.axis)
        uses: list[set[int]] = [set() for _ in range(self.groups.size)]
        for shards in self.groups.plan.order:
            works = HAVE_WORK[self.op.kind](self.instance(shards, self.reads, self.writes, self.accumulate))
            for die, p in enumerate(position):
                if at(works, die):
                    uses[p].add(shards[p])
        return replace(self, groups=replace(self.groups, plan=used(self.groups.plan, uses)))

    def run(
        self, shards: Shards, reads: tuple[View, ...], writes: tuple[View, ...], accumulate: tuple[bool, ...],
        where: Ints = 1,
    ) -> None:  # fmt: skip
        """Append the op's kernels on the chunks numbered `shards` (by position)."""
        LOWERINGS[self.op.kind](self.instance(shards, reads, writes, accumulate, where))

    def instance(
        self, shards: Shards, reads: tuple[View, ...], writes: tuple[View, ...], accumulate: tuple[bool, ...],
        where: Ints = 1,
    ) -> OpInstance:  # fmt: skip
        """The instance of the op on the chunks numbered `shards` (by position)."""
        axis, streamed = self.stream.axis, self.stream.factor

        def runs(factor: str) -> list[Run]:
            if factor != streamed:
                return self.runs(factor)
            others = tuple(a for a in split_axes(self.op, streamed) if a != axis)
            shard_of_die = [shards[p] for p in self.groups.mesh.coordinates(axis)]
            return self.coordinates.chunk(others, axis, self.op.sizes[streamed], shard_of_die)

        return OpInstance(self.build, self.op, reads, writes, runs, accumulate, where)
