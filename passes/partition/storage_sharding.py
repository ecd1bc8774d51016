"""The storage sharding of parameters: their layouts between steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from wscc.diagnostics import Code, Proposal, fail
from wscc.ir.types import Layout
from wscc.passes.partition.chain import Chain, OpInstance, lower_degrees
from wscc.passes.partition.layouts import Assignment, can_shard, operand_layouts
from wscc.strategy import holds_replicas, policy, store

# Chunks with tiles empty up to this share are cheaper than adding up results chunk by chunk.
_RAGGED: Final = 0.05


@dataclass(frozen=True, slots=True)
class StorageSharding:
    """The storage sharding of the parameters of a chain.

    `zero` is the level of ZeRO; the matrix units of a die have a side of `tile` elements.
    """

    chain: Chain
    sizes: dict[str, int]
    assigned: dict[tuple[str, str], Assignment]
    zero: int = 0
    tile: int = 1

    def optimizer_layout(self, name: str, storage: Layout) -> Layout:
        """Layout of the moments of a parameter in layout `storage`, and of the gradient that its update reads.

        It is `storage`, split further over the axes that shard optimizer state, in the first dimension that divides.
        """
        shape = self.chain.params[name].type.shape
        for axis in self.sizes:
            if store(axis, self.zero) != "state" or axis in storage.axes:
                continue
            for d, n in enumerate(shape):
                if n % (prod(self.sizes[a] for a in storage.dims[d]) * self.sizes[axis]) == 0:
                    storage = storage.closed(d, axis)
                    break
        return storage

    def layout(self, name: str) -> Layout:
        """Layout of a parameter: that of its first user, split further over storage axes if it is a matrix or table.

        Fails with W202 where a storage axis divides none of its dimensions.
        """
        users = [(s, i) for s in self.chain.instances for i, n in enumerate(s.operands) if n == name]
        instance, i = users[0]
        layout = operand_layouts(instance.op, self.assigned[instance.key])[i].completed()
        if not any(s.op.definition.has_weight for s, _ in users):
            return layout
        # Streaming axes first: what is gathered whole, at the minor end, is gathered before the stream starts. A weight
        # streams along one axis, at best along one whose peers are neighbours: that of a policy before one of ZeRO.
        axes = sorted(self.sizes, key=lambda a: (not policy(a).stream, holds_replicas(a)))
        axes = [a for a in axes if store(a, self.zero) == "shard" and a not in layout.axes]
        for i, axis in enumerate(axes):
            layout = self._sharded(name, layout, axis, axes[i + 1 :], users)
        return layout

    def _sharded(
        self, name: str, layout: Layout, axis: str, later_axes: list[str], users: list[tuple[OpInstance, int]]
    ) -> Layout:
        """The layout split further over `axis`, so that each of `later_axes` still finds a dimension."""
        shape = self.chain.params[name].type.shape
        remaining = [n // prod(self.sizes[a] for a in dim) for n, dim in zip(shape, layout.dims, strict=True)]
        degree, later_degrees = self.sizes[axis], [self.sizes[a] for a in later_axes]
        divisible = [d for d, n in enumerate(remaining) if n % degree == 0]
        roomy = [
            d
            for d in divisible
            if can_shard([n // degree if e == d else n for e, n in enumerate(remaining)], later_degrees)
        ]
        if not divisible:
            raise fail(
                Code.UNEVEN,
                f"no dimension of `{name}` {self.chain.shape_words(name, shape)} divides by `{axis} = {degree}`"
                + (f" beside {' '.join(layout.axes)}" if layout.axes else ""),
                candidates=self._changes(axis, remaining),
            )
        streaming = {d for d, split in enumerate(layout.dims) if any(policy(a).stream for a in split)}
        if policy(axis).stream and not streaming:
            dim = min(
                roomy or divisible,
                key=lambda d: (
                    self._is_ragged(remaining[d] // degree),
                    _stream_price(users, d),
                    -shape[d],
                    d,
                ),
            )
        else:
            # Slices of a stream, which are cut along what it streams, then take a part of each shard.
            dim = min(roomy or divisible, key=lambda d: (d in streaming, d))
        return layout.closed(dim, axis)

    def _changes(self, axis: str, remaining: list[int]) -> list[Proposal]:
        """Lower degrees of the axis that divide a dimension; of replicas, also that they shard no weights."""
        axes = tuple(self.sizes.items())
        unsharded = [Proposal(sets=(("train.zero", "1"),))] if store(axis, 0) != "shard" else []
        return [*unsharded, *lower_degrees(axes, axis, remaining)]

    def _is_ragged(self, chunk: int) -> bool:
        """Whether a chunk as one side of a GEMM leaves more than `_RAGGED` of its tiles empty."""
        return -(-chunk // self.tile) * self.tile > (1 + _RAGGED) * chunk


def _stream_price(users: list[tuple[OpInstance, int]], dim: int) -> tuple[bool, int, int]:
    """Cost, in lexicographic order, of streaming a weight in chunks of dimension `dim`.

    Its parts are the elements of results (forward, and gradients of the other operand) that are added up chunk by
    chunk, and the number of GEMMs into which a chunk falls; more than 4 of them weigh most.
    """
    accumulated, pieces = 0, 1
    for instance, i in users:
        rule = instance.op.rule
        factor = rule.ins[i][dim]
        other_operands = [
            (v, t) for j, (v, t) in enumerate(zip(instance.op.operands, rule.ins, strict=True)) if j != i
        ]
        values = [*zip(instance.op.results, rule.outs, strict=True), *other_operands]
        accumulated += sum(v.type.elements for v, t in values if factor not in t and v.type.dtype.is_float)
        pieces = max(pieces, _pieces(rule.ins[i], dim, set(rule.outs[0]), instance.op.sizes))
    return pieces > 4, accumulated, pieces


def _pieces(term: tuple[str, ...], dim: int, out: set[str], sizes: dict[str, int]) -> int:
    """Number of GEMMs for a slice along `dim`: the product of the factors before it on its side of the GEMM."""
    return prod(sizes[f] for f in term[:dim] if (f in out) == (term[dim] in out))
