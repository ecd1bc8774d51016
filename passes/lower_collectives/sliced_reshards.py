"""Reshards of what a stream moves, done slice by slice with it: a weight that ZeRO shares out besides is gathered, and
its gradient reduced, in the fast memory, where the whole would go through the slow one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from wscc.diagnostics import Span as SourceSpan
from wscc.ir.logical_mesh import mask
from wscc.ir.module import Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.per_die import Ints
from wscc.ir.views import View, indexed, sliced
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.lower_collectives.reshards import (
    AxisGroups,
    add_arrived,
    arriving,
    axis_groups,
    gathering,
    scattering,
)
from wscc.passes.lower_collectives.stream_instance import Span, StreamInstance


@dataclass(frozen=True, slots=True)
class SlicedReshard:
    """A gather of an operand, or a reduce_scatter of a result, along `axis` in dimension `dim`. `shard`: the view of
    the die's own shard, which is gathered or which the sum ends in. `name`, `span`: those of the reshard."""

    algorithms: Algorithms
    axis: str
    dim: int
    shard: View
    name: str
    span: SourceSpan

    def gathered(self, s: StreamInstance, i: int) -> tuple[View, Iterator[None]]:
        """The view of operand `i` of a slice of the stream, and the rounds that gather it."""
        shard, along = self._of(s, s.ins()[i])
        # The second half is that of `_broadcast`.
        halves = s.build.buffer(self.name, (1 + (along is not None), *s.reads[i].shape), s.reads[i].dtype)
        out, other = indexed(halves, 0, 0), indexed(halves, 0, halves.shape[0] - 1)
        return out, self._named(s, self._gather(s, shard, along, out, other))

    def scattered(self, s: StreamInstance, j: int) -> tuple[View, Iterator[None]]:
        """The view for result `j` of a slice of the stream, and the rounds that reduce it when it is computed."""
        shard, along = self._of(s, s.outs()[j])
        part = s.build.buffer(self.name, s.writes[j].shape, s.writes[j].dtype)
        return part, self._named(s, self._scatter(s, shard, along, part))

    def _gather(
        self, s: StreamInstance, shard: View, along: Span | None, out: View, other: View
    ) -> Iterator[None]:
        if along is None:
            groups = axis_groups(s.build, self.axis, self.algorithms.gather(self.axis, shard.bytes))
            yield from gathering(groups, shard, out, self.dim, self._group(s))
            return
        for root, mine, within in self._pieces(along):
            x = sliced(shard, self.dim, *mine)
            ours, others = (sliced(v, self.dim, *within) for v in (out, other))
            groups = axis_groups(s.build, self.axis, self.algorithms.gather(self.axis, x.bytes))
            yield from _broadcast(groups.only(root), x, ours, others, root, f"{self._group(s)}.{root}")

    def _scatter(self, s: StreamInstance, shard: View, along: Span | None, part: View) -> Iterator[None]:
        if along is None:
            groups = axis_groups(s.build, self.axis, self.algorithms.scatter(self.axis, shard.bytes))
            yield from scattering(groups, part, shard, self.dim, self._group(s))
            return
        for root, mine, within in self._pieces(along):
            out, x = sliced(shard, self.dim, *mine), sliced(part, self.dim, *within)
            groups = axis_groups(s.build, self.axis, self.algorithms.scatter(self.axis, out.bytes))
            yield from _reduce(groups.only(root), x, out, root, f"{self._group(s)}.{root}")

    def _group(self, s: StreamInstance) -> str:
        """The name of the group of transfers of a slice."""
        return ".".join((self.name, *(str(first) for _, (first, _) in s.cuts)))

    def _of(self, s: StreamInstance, term: tuple[str, ...]) -> tuple[View, Span | None]:
        """The own shard, cut as the slice is in all dimensions but that of the reshard, and how it is cut there."""
        spans = {term.index(factor): span for factor, span in s.cuts if factor in term}
        along = spans.pop(self.dim, None)
        shard = self.shard
        for dim, span in spans.items():
            shard = sliced(shard, dim, *span)
        return shard, along

    def _pieces(self, along: Span) -> Iterator[tuple[int, Span, Span]]:
        """The positions whose shards are part of a slice along the dimension of the reshard, with the first index and
        the number of indices of the part: in the shard, and in the slice."""
        (first, count), size = along, self.shard.shape[self.dim]
        for root in range(first // size, -(-(first + count) // size)):
            low, high = max(first, root * size), min(first + count, (root + 1) * size)
            yield root, (low - root * size, high - low), (low - first, high - low)

    def _named(self, s: StreamInstance, rounds: Iterator[None]) -> Iterator[None]:
        return s.build.named(self.name, self.span, rounds)


@dataclass(frozen=True, slots=True)
class Sliceable:
    """The reshards of a procedure that streams may do slice by slice: gathers by the name of what they give, and
    reduce_scatters by the name of what they take."""

    gathers: Mapping[str, Reshard]
    scatters: Mapping[str, Reshard]

    @staticmethod
    def of(procedure: Procedure, sizes: dict[str, int], least: int) -> Sliceable:
        """Those of a weight that one stream moves, or of a gradient that it moves, and that take more than `least`
        bytes of a die as a whole."""
        read = Counter(v.name for s in procedure.statements for v in s.operands)
        read.update(o.value.name for o in procedure.outputs)
        reshards = [s for s in procedure.statements if isinstance(s, Reshard)]
        gathers = {r.result.name: r for r in reshards if r.kind == "all_gather"}
        scatters = {r.operand.name: r for r in reshards if r.kind == "reduce_scatter"}
        moved_in: set[str] = set()
        moved_out: set[str] = set()
        for op in procedure.ops:
            if op.kind == "matmul" and op.stream is not None:
                moved_in.update(op.operands[i].name for i in op.stream.moving_in)
                moved_out.update(op.results[j].name for j in op.stream.moving_out)

        def is_large(v: Value) -> bool:
            return prod(v.type.local_shape(sizes)) * v.type.dtype.size > least

        return Sliceable(
            {n: r for n, r in gathers.items() if n in moved_in and read[n] == 1 and is_large(r.result)},
            {n: r for n, r in scatters.items() if n in moved_out and read[n] == 1 and is_large(r.operand)},
        )


def reshards_of(values: Iterable[Value], reshards: Mapping[str, Reshard]) -> dict[int, Reshard]:
    """The reshards of these values, by number of the value."""
    return {i: reshards[v.name] for i, v in enumerate(values) if v.name in reshards}


def factors_of(
    op: Op, gathers: Mapping[int, Reshard | SlicedReshard], scatters: Mapping[int, Reshard | SlicedReshard]
) -> frozenset[str]:
    """The factors of an op along which its operands and results, by number, are gathered and reduced."""
    rule = op.rule
    return frozenset(
        [rule.ins[i][r.dim] for i, r in gathers.items()] + [rule.outs[j][r.dim] for j, r in scatters.items()]
    )


def with_operands(
    s: StreamInstance, reshards: Mapping[int, SlicedReshard]
) -> tuple[StreamInstance, list[Iterator[None]]]:
    """A slice of a stream with its operands gathered by reshards, by number, and the rounds of each."""
    gathered = {i: r.gathered(s, i) for i, r in reshards.items()}
    reads = tuple(gathered[i][0] if i in gathered else v for i, v in enumerate(s.reads))
    return replace(s, reads=reads), [rounds for _, rounds in gathered.values()]


def with_results(
    s: StreamInstance, reshards: Mapping[int, SlicedReshard]
) -> tuple[StreamInstance, list[Iterator[None]]]:
    """A slice of a stream with its results reduced by reshards, by number, and the rounds of each."""
    scattered = {j: r.scattered(s, j) for j, r in reshards.items()}
    writes = tuple(scattered[j][0] if j in scattered else v for j, v in enumerate(s.writes))
    return replace(s, writes=writes), [rounds for _, rounds in scattered.values()]


def _broadcast(a: AxisGroups, x: View, out: View, other: View, root: int, group: str) -> Iterator[None]:
    """Append the rounds in which `x` of the die at position `root` reaches `out` of all dies of its group.

    `other` stands for `out` where a die takes no part in a message, so that no die seems to receive into what it
    sends: one that receives has sent nothing yet.
    """
    a.build.kernel("copy", [out], [x], where=_at(a, root))
    for moves in a.plan.rounds:
        for move in moves:
            _, arrives = arriving(move)
            source = _chosen(a, arrives, other, out)
            a.send(move, source, _chosen(a, arrives, out, other), group)
        yield


def _reduce(a: AxisGroups, x: View, out: View, root: int, group: str) -> Iterator[None]:
    """Append the rounds in which the sum of `x` of all dies of a group reaches `out` of the die at position `root`."""
    for r, forward in enumerate(reversed(a.plan.rounds)):
        slots = []
        for i, move in enumerate(m.backwards() for m in forward):
            slots.append((move, a.build.buffer(f"{group}.in{r}.{i}", x.shape, x.dtype, slot=True)))
            a.send(move, x, slots[-1][1], group)
        yield
        add_arrived(a, x, (root,) * a.size, slots)
    a.build.kernel("copy", [out], [x], where=_at(a, root))


def _at(a: AxisGroups, root: int) -> Ints:
    return mask(a.mesh, a.axis, [p == root for p in range(a.size)])


def _chosen(a: AxisGroups, which: tuple[bool, ...], then: View, otherwise: View) -> View:
    """The view `then` on dies of the positions `which`, `otherwise` on others: of one buffer, shape and strides."""
    assert isinstance(then.offset, int)
    assert isinstance(otherwise.offset, int)
    offsets = a.by_position(tuple(then.offset if w else otherwise.offset for w in which))
    return then._replace(offset=offsets)
