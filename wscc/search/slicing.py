"""The slices in which `lower_collectives` does the streams of a sharded procedure, and the tiles of attention, with the
bytes of their temporaries."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from wscc.analysis.index_ranges import Coordinates
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.ir.naming import Names
from wscc.ir.op import Op, Stream, Value
from wscc.ir.types import DType
from wscc.ir.views import whole_view
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.reshards import axis_groups
from wscc.passes.lower_collectives.slices import slices
from wscc.passes.lower_collectives.stream_instance import StreamInstance
from wscc.search.needed import local_bytes

# Temporaries of an op take at most one part in so many of the SRAM, as `lower_collectives` has it.
TEMPORARIES: Final = 8
_SHARDS: Final = 6  # of which a stream holds several at once


@dataclass(frozen=True, slots=True)
class Cut:
    """The number of slices of a stream, or of tiles of attention, along a factor (none: it is whole), and the bytes of
    temporaries of an op."""

    factor: str
    count: int
    bytes: float


@dataclass(slots=True)
class Slicing:
    """The cuts of the ops of a sharded module."""

    module: Module
    algorithms: Algorithms
    _known: dict[int, Cut]
    _mesh: LogicalMesh

    @staticmethod
    def new(module: Module, algorithms: Algorithms) -> Slicing:
        """The cuts of a module, none of which is known yet."""
        return Slicing(module, algorithms, {}, LogicalMesh(module.axes))

    @property
    def temporaries(self) -> int:
        """The bytes that temporaries of one op may take."""
        return max(1, self.module.die.sram // TEMPORARIES)

    def local(self, v: Value) -> int:
        """The bytes of the part of a value that a die has."""
        return local_bytes(self.module, v)

    def turns(self, op: Op) -> int:
        """The turns of a stream; 1 if the op is none."""
        return self.module.sizes[op.stream.axis] if op.stream else 1

    def of(self, op: Op) -> Cut:
        """The cut of an op of the module."""
        if id(op) not in self._known:
            self._known[id(op)] = self._streamed(op, op.stream) if op.stream else self._tiled(op)
        return self._known[id(op)]

    def _tiled(self, op: Op) -> Cut:
        """The tiles of queries in which attention is done, and the bytes of their scores, of which a gradient has two;
        other ops have neither."""
        if not (op.definition.heavy and op.definition.positional):
            return Cut("", 1, 0.0)
        sizes: dict[str, int] = {}
        for v, term in op.terms():
            for f, n in zip(term, v.type.local_shape(self.module.sizes), strict=True):
                sizes[f] = max(n, sizes.get(f, 1))
        q, k = op.rule.ins[0], op.rule.ins[1]
        row = sizes[k[1]] * DType.F32.size
        held = min(prod(sizes[f] for f in q[:-1]) * row, self.temporaries)
        tiles = -(-sizes[q[1]] * row // self.temporaries)
        return Cut(q[1], tiles, float(held * (2 if op.kind == "attention_bwd" else 1)))

    def _streamed(self, op: Op, stream: Stream) -> Cut:
        s = self._instance(op, stream)
        parts = slices(s).slices
        moving = (*(op.operands[i] for i in stream.moving_in), *(op.results[j] for j in stream.moving_out))
        held = min(_SHARDS * sum(map(self.local, moving)), self.temporaries)
        return Cut(parts[0].cuts[0][0] if parts[0].cuts else "", len(parts), held + self._tiled(op).bytes)

    def _instance(self, op: Op, stream: Stream) -> StreamInstance:
        """The stream on views of whole locals."""
        build = FabricBuilder(self._mesh, {}, [], Names(()), self.temporaries, self.module.die.tile)
        groups = axis_groups(build, stream.axis, self.algorithms.neighbours(stream.axis))
        reads, writes = (
            tuple(whole_view(v.name, v.type.local_shape(self.module.sizes), v.type.dtype) for v in values)
            for values in (op.operands, op.results)
        )
        nowhere = Coordinates(self._mesh, self.module.zigzag)
        return StreamInstance(
            groups, op, stream, reads, writes, nowhere, lambda f: [], (False,) * len(writes)
        )
