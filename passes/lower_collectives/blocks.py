"""Lowering of chains: each of their ops on one block after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from wscc.ir.op import Op, Value
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.chains import Chain
from wscc.passes.lower_collectives.op_instance import OpInstance
from wscc.passes.lower_collectives.ops import LOWERINGS
from wscc.passes.lower_collectives.sliced_reshards import SlicedReshard, factors_of
from wscc.passes.lower_collectives.slices import on_span, slices
from wscc.passes.lower_collectives.stream_instance import Span, StreamInstance
from wscc.passes.lower_collectives.streams import Turn, turns


@dataclass(frozen=True, slots=True)
class Link:
    """An op of a chain, to lower on blocks of `factor`, of which there are `shards` parts: an instance on whole values,
    with the reshards of what moves, by number. Whole views of values that are there by block only stand for blocks."""

    instance: OpInstance | StreamInstance
    factor: str
    shards: int
    gathers: Mapping[int, SlicedReshard]
    scatters: Mapping[int, SlicedReshard]

    @property
    def op(self) -> Op:
        """The op."""
        return self.instance.op

    def new_blocks(self, inside: Set[str], span: Span) -> dict[str, View]:
        """Locals for a block of those results that are inside, by name."""
        blocks = {}
        for v, term, whole in zip(self.op.results, self.op.rule.outs, self.instance.writes, strict=True):
            if v.name in inside:
                shape = [
                    span[1] * self.shards if f == self.factor else n
                    for f, n in zip(term, whole.shape, strict=True)
                ]
                blocks[v.name] = self.instance.build.buffer(v.name, shape, whole.dtype)
        return blocks

    def turns(self, span: Span, blocks: Mapping[str, View], added: Sequence[bool]) -> Iterator[Turn]:
        """The turns of the op on a block, with views of it by the names of values. `added`: for each result, whether
        it adds to what is there."""
        s = self._with(blocks, tuple(added))
        if isinstance(s, OpInstance):
            yield Turn(iter(()), self._named(self._whole(s, span)))
            return
        shared = factors_of(self.op, self.gathers, self.scatters)
        for its in turns(slices(on_span(s, self.factor, span), shared), self.gathers, self.scatters):
            yield replace(its, body=self._named(its.body))

    def _with(self, blocks: Mapping[str, View], added: tuple[bool, ...]) -> OpInstance | StreamInstance:
        def views(values: tuple[Value, ...], given: tuple[View, ...]) -> tuple[View, ...]:
            return tuple(blocks.get(v.name, view) for v, view in zip(values, given, strict=True))

        reads, writes = (
            views(self.op.operands, self.instance.reads),
            views(self.op.results, self.instance.writes),
        )
        return replace(self.instance, reads=reads, writes=writes, accumulate=added)

    def _named(self, rounds: Iterator[None]) -> Iterator[None]:
        return self.instance.build.named(self.op.results[0].name, self.op.span, rounds)

    def _whole(self, s: OpInstance, span: Span) -> Iterator[None]:
        """Append an op that is no stream, for each part of the factor."""
        for n, part in enumerate(self._parts(s, span)):
            added = tuple(
                a or (n > 0 and self.factor not in t) for a, t in zip(s.accumulate, s.rule.outs, strict=True)
            )
            LOWERINGS[self.op.kind](replace(part, accumulate=added))
        yield from ()

    def _parts(self, s: OpInstance, span: Span) -> Iterator[OpInstance]:
        """The op on the block, at once if all of its values are there as blocks."""
        (first, count), terms = span, (*s.rule.ins, *s.rule.outs)
        sizes = {
            v.shape[t.index(self.factor)]
            for v, t in zip((*s.reads, *s.writes), terms, strict=True)
            if self.factor in t
        }
        if sizes == {count * self.shards}:
            yield s
            return
        for shard in range(self.shards):

            def part(view: View, term: Sequence[str], shard: int = shard) -> View:
                if self.factor not in term:
                    return view
                dim = term.index(self.factor)
                size = view.shape[dim] // self.shards
                return sliced(view, dim, shard * size + (first if size != count else 0), count)

            yield replace(
                s,
                reads=tuple(map(part, s.reads, s.rule.ins)),
                writes=tuple(map(part, s.writes, s.rule.outs)),
            )


def chain_turns(chain: Chain, links: Sequence[Link], build: FabricBuilder) -> Iterator[Turn]:
    """The turns of the ops of a chain, in order, block by block."""
    begun: set[str] = set()
    for span in chain.blocks:
        blocks: dict[str, View] = {}
        for link in links:
            blocks |= link.new_blocks(chain.inside, span)
            names = [v.name for v in link.op.results]
            totals = [chain.sums[n].name if n in chain.sums else "" for n in names]
            added = [a or t in begun for a, t in zip(link.instance.accumulate, totals, strict=True)]
            begun.update(t for t in totals if t)
            yield from link.turns(span, blocks, added)
