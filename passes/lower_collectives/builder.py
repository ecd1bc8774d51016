"""Builder of the body of a fabric procedure: new locals, kernels and transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from wscc.analysis.gather_plan import Part
from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, KernelAttr, Transfer
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.naming import Names
from wscc.ir.op import Value
from wscc.ir.per_die import Ints
from wscc.ir.types import DType
from wscc.ir.views import View, sliced, whole_view
from wscc.passes.lower_collectives.edges import Edges


def part_of(view: View, part: Part) -> View | None:
    """The part of a view: along its first dimension of two or more indices, the low half, the high half, or all of it.

    None if the part is empty.
    """
    if part is Part.WHOLE:
        return view
    dim = next((d for d, n in enumerate(view.shape) if n > 1), None)
    if dim is None:
        return view if part is Part.LOW else None
    low = (view.shape[dim] + 1) // 2
    if part is Part.LOW:
        return sliced(view, dim, 0, low)
    return sliced(view, dim, low, view.shape[dim] - low)


@dataclass(slots=True)
class FabricBuilder:
    """The body and buffers of one procedure.

    `names`: those of arguments are in use. `fast_bytes`: bytes that the temporaries of one op should not
    exceed. `tile`: the side of a matrix unit. `channel`: that of the next transfer. `source`, `span`: the op that the
    next statements come from. `edges`: those of the module; `arguments`: by array, those that the procedure reads.
    """

    mesh: LogicalMesh
    buffers: dict[str, Buffer]
    body: list[FabricStmt]
    names: Names
    fast_bytes: int = 1 << 62
    tile: int = 1
    channel: int = 0
    source: str = ""
    span: Span = NO_SPAN
    edges: Edges = field(default_factory=Edges)
    arguments: dict[str, Value] = field(default_factory=dict)

    def argument(self, array: str) -> View:
        """The shard of an array of blocks of edges, which is an argument of the procedure from now on."""
        if array not in self.arguments:
            self.arguments[array] = Value(self.names.new(array), self.edges.arrays[array].type)
        value = self.arguments[array]
        return whole_view(value.name, value.type.local_shape(self.mesh.sizes), value.type.dtype)

    def buffer(self, hint: str, shape: Sequence[int], dtype: DType, *, slot: bool = False) -> View:
        """A new local, named `hint` or `hint.N`."""
        name = self.names.new(hint)
        self.buffers[name] = Buffer(name, prod(shape), dtype, slot=slot)
        return whole_view(name, tuple(shape), dtype)

    def kernel(
        self,
        opcode: str,
        writes: Sequence[View],
        reads: Sequence[View],
        attrs: Mapping[str, KernelAttr] | None = None,
        where: Ints = 1,
    ) -> None:
        """Append a kernel on the dies of mask `where`."""
        pairs = tuple((attrs or {}).items())
        self.body.append(Kernel(opcode, tuple(writes), tuple(reads), pairs, where, self.source, self.span))

    def transfer(
        self, to: Ints, read: View, write: View, group: str, content: str = "", *, one_hop: bool = False
    ) -> None:
        """Append a transfer of the view `read` of each sender to the view `write` of its receiver (`to`, by sender)."""
        assert read.elements == write.elements, (read, write)
        self.body.append(
            Transfer(self.channel, to, read, write, group, content, one_hop=one_hop, source=self.source)
        )
        self.channel += 1

    def named(self, source: str, span: Span, rounds: Iterator[None]) -> Iterator[None]:
        """The rounds, each of which appends its statements under the name of an op or a reshard."""
        while True:
            before = self.source, self.span
            self.source, self.span = source, span
            try:
                next(rounds)
            except StopIteration:
                return
            finally:
                self.source, self.span = before
            yield

    def contiguous(self, view: View, hint: str) -> View:
        """The view itself if it is contiguous, else a copy."""
        if view.is_contiguous:
            return view
        copy = self.buffer(hint, view.shape, view.dtype)
        self.kernel("copy", [copy], [view])
        return copy
