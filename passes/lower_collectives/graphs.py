"""Lowerings of the ops of graph networks: instructions on blocks of edges."""

from __future__ import annotations

from wscc.ir.per_die import over, times_each
from wscc.ir.views import View
from wscc.passes.lower_collectives.edges import Block
from wscc.passes.lower_collectives.op_instance import OpInstance


def block_of(s: OpInstance) -> Block:
    """The block of edges between the rows and the columns that a die has; of the product that takes gradients back,
    with rows and columns in each other's place."""
    rule, is_backwards = s.rule, s.op.kind == "spmm_bwd"
    nodes = {term[1] for term in (*rule.ins[1:], *rule.outs) if len(term) > 1}
    rows, columns = sorted(nodes, key=lambda f: (f in rule.whole | rule.streamed) != is_backwards)
    sizes = s.op.sizes
    shape = s.size(rows), s.size(columns)
    places = over(s.start(rows), shape[0]), over(s.start(columns), shape[1])
    return s.build.edges.block(
        s.reads[0].buffer, (sizes[rows], sizes[columns]), shape, places, is_backwards=is_backwards
    )


def spmm(s: OpInstance) -> None:
    """One instruction on a block of edges. One without edges adds nothing; only the first has to make zeros."""
    block = block_of(s)
    where = times_each(s.where, block.where) if s.accumulate[0] else s.where
    if where != 0:
        kind, dtype = str(s.op.attr("weights")), s.writes[0].dtype.accumulator
        arrays = s.build.edges.entries(block), s.build.edges.weights(block, kind, dtype)
        reads = [*map(s.build.argument, arrays), s.reads[1]]
        s.build.kernel("spmm", s.writes, reads, {"accumulate": s.accumulate[0]}, where)


def of_edges(s: OpInstance) -> None:
    """One instruction on all edges of the rows that a die has, whose columns are whole."""
    s.kernel(s.op.kind, s.writes, [_entries(s), *s.reads[1:]], **s.attrs())


def of_weighed_edges(s: OpInstance) -> None:
    """The same, with the number of each edge, by which it finds its weight."""
    numbers = s.build.argument(s.build.edges.numbers(block_of(s)))
    s.kernel(s.op.kind, s.writes, [_entries(s), numbers, *s.reads[1:]], **s.attrs())


def _entries(s: OpInstance) -> View:
    return s.build.argument(s.build.edges.entries(block_of(s)))
