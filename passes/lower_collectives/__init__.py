"""From sharded ops to the fabric: kernels on views of buffers, and chunked transfers between dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Final

from wscc.analysis.index_ranges import Coordinates, Run
from wscc.analysis.op_axes import split_axes
from wscc.analysis.statement_accesses import buffers_of
from wscc.diagnostics import Code, fail
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, Transfer
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Value
from wscc.ir.per_die import NOBODY, Ints, at, per_die, times_each
from wscc.ir.step import Ref, calls
from wscc.ir.views import View, indexed, whole_view
from wscc.machine.topology import mesh_topology
from wscc.passes.base import Fact, Pass
from wscc.passes.choices import ALLGATHERS
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.ops import KERNELS
from wscc.passes.lower_collectives.reshards import along, lower_reshard
from wscc.passes.lower_collectives.site import Site
from wscc.passes.lower_collectives.stream_site import StreamSite
from wscc.passes.lower_collectives.streams import lower_stream

# The scores of a tile of attention take at most one part in so many of the fast memory: a gradient needs two of
# them, operands and slots the rest.
_TEMPORARIES: Final = 8


@dataclass(frozen=True, slots=True)
class LowerCollectives(Pass):
    """Lower every sharded procedure to kernels and transfers, in an order that is right when each statement
    is executed by all dies in turn.

    Ops become instructions (`lower_kernels`), reshards become transfers along one axis (`lower_reshards`: ring
    of neighbours, chain, or a ring over several hops where peers are apart), streams become loops over chunks
    (`lower_streams`). With `allgather=multicast`, each die sends its shard of a gather to all others at once.
    Splits and slices only name part of a buffer. A result that the procedure returns is
    computed where the caller wants it.

    Before: %g = all_gather(%x) axis=tp dim=1 : f32[8,16,32]
    After:  copy %g[..] = %x; transfer 0 to=[1,0] %x -> %g[..]
    """

    name: ClassVar[str] = "lower_collectives"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})

    allgather: str = "ring"

    def run(self, module: Module) -> Module:
        if self.allgather not in ALLGATHERS:
            known = " or ".join(f"`{a}`" for a in ALLGATHERS)
            raise fail(Code.OPTION, f"`allgather` is {known}, not `{self.allgather}`")
        mesh = LogicalMesh(module.axes)
        coordinates = Coordinates(mesh, module.zigzag)
        lies = {axis: _lies(module, mesh, axis) for axis in mesh.sizes}
        bindings = {c.procedure: c.args for c, _ in calls(module.step)}
        storage = {a.name: a.storage or a.name for a in module.arrays}
        callers = _callers(module)
        multicast, die = self.allgather == "multicast", module.machine.die
        fast, tile = die.sram // _TEMPORARIES, die.tile
        procedures = tuple(
            _made_by(
                _Procedure(
                    coordinates, lies, p, _bound(p, bindings[p.name], storage), multicast, fast, tile
                ).lower(),
                callers[p.name],
            )
            for p in module.procedures
        )
        return module.with_(level=Level.FABRIC, procedures=procedures)


def _callers(module: Module) -> dict[str, Ints]:
    """By procedure, 1 for the dies of stages that call it."""
    called = [{c.procedure for c, _ in calls(step)} for step in module.steps()]
    each = module.dies_used // module.stages
    return {
        p.name: per_die(int(p.name in called[die // each]) for die in range(module.dies_used))
        for p in module.procedures
    }


def _made_by(procedure: Procedure, dies: Ints) -> Procedure:
    """The procedure with work for these dies (mask) only."""
    if dies == 1:
        return procedure
    return replace(procedure, body=tuple(_only(s, dies) for s in procedure.body))


def _only(stmt: GraphStmt | FabricStmt, dies: Ints) -> FabricStmt:
    if isinstance(stmt, Kernel):
        return replace(stmt, where=times_each(stmt.where, dies))
    assert isinstance(stmt, Transfer)
    if isinstance(stmt.to, int):
        return stmt
    return replace(stmt, to=per_die(to if at(dies, i) else NOBODY for i, to in enumerate(stmt.to)))


def _lies(module: Module, mesh: LogicalMesh, axis: str) -> str:
    """Whether all groups of the axis are closed rings of neighbours, open chains, or neither."""
    topology = mesh_topology(module.machine)
    closed = True
    for group in mesh.groups(axis):
        dies = [module.dies[i] for i in group]
        if not all(topology.are_adjacent(a, b) for a, b in pairwise(dies)):
            return "apart"
        closed = closed and topology.are_adjacent(dies[-1], dies[0])
    return "ring" if closed else "chain"


def _is_view(stmt: GraphStmt) -> bool:
    return stmt.kind == "slice" if isinstance(stmt, Reshard) else stmt.definition.view


@dataclass(frozen=True, slots=True)
class Bound:
    """What the calls of a procedure bind its outputs to: by number, the input argument of the same bytes; and those
    whose bytes no other argument has."""

    aliases: dict[int, str]
    alone: frozenset[int]


def _bound(procedure: Procedure, args: tuple[Ref, ...], storage: dict[str, str]) -> Bound:
    inputs = {(storage[r.array], r.index): v.name for v, r in zip(procedure.inputs, args, strict=False)}
    outputs = [(storage[r.array], r.index) for r in args[len(procedure.inputs) :]]
    arrays = Counter(storage[r.array] for r in args)
    return Bound(
        {j: inputs[key] for j, key in enumerate(outputs) if key in inputs},
        frozenset(j for j, (array, _) in enumerate(outputs) if arrays[array] == 1),
    )


class _Procedure:
    """Lowers one procedure. `env` is where each value lies."""

    def __init__(
        self, coordinates: Coordinates, lies: dict[str, str], procedure: Procedure, bound: Bound,
        multicast: bool, fast_bytes: int, tile: int,
    ) -> None:  # fmt: skip
        self.coordinates = coordinates
        self.mesh = mesh = coordinates.mesh
        self.lies = lies
        self.procedure = procedure
        self.arguments = [self._argument(j, bound) for j in range(len(procedure.outputs))]
        names = {v.name for v in procedure.inputs} | set(self.arguments)
        self.build = FabricBuilder(mesh, {}, [], names, multicast, fast_bytes, tile)
        self.env = {v.name: whole_view(v.name, self._local(v), v.type.dtype) for v in procedure.inputs}
        self.alone = bound.alone
        self.places: dict[str, View] = {}
        self.grown: set[str] = set()
        self._choose_places()

    def _local(self, value: Value) -> tuple[int, ...]:
        return value.type.local_shape(self.mesh.sizes)

    def _argument(self, j: int, bound: Bound) -> str:
        """The name of the memory that output j is bound to: that of the input which it replaces, if any."""
        return bound.aliases.get(j) or f"out.{j}"

    def _choose_places(self) -> None:
        """Where results go that are not free to lie anywhere: returned values, and parts of a stack."""
        made = {v.name for s in self.procedure.statements for v in s.results}
        for argument, out in zip(self.arguments, self.procedure.outputs, strict=True):
            name = out.value.name
            if out.mode is Mode.WRITE and name in made and name not in self.places:
                self.places[name] = whole_view(argument, self._local(out.value), out.value.type.dtype)
        for op in self.procedure.ops:
            if op.kind == "stack":
                self._place_parts(op)
        self._grow_in_place()

    def _grow_in_place(self) -> None:
        """Products and sums that are only added to memory of their own are added as they are made."""
        read = {v.name for s in self.procedure.statements for v in s.operands}
        returned = Counter(out.value.name for out in self.procedure.outputs)
        products = {op.results[0].name for op in self.procedure.ops if op.kind in ("matmul", "sum")}
        for j, (argument, out) in enumerate(zip(self.arguments, self.procedure.outputs, strict=True)):
            name = out.value.name
            is_free = j in self.alone and returned[name] == 1 and name not in read | set(self.places)
            if out.mode is Mode.ADD and is_free and name in products:
                self.places[name] = whole_view(argument, self._local(out.value), out.value.type.dtype)
                self.grown.add(name)

    def _place_parts(self, op: Op) -> None:
        result = op.results[0]
        whole = self.places.get(result.name)
        if whole is None:
            whole = self.build.buffer(result.name, self._local(result), result.type.dtype)
            self.places[result.name] = whole
        dim = op.attr("dim")
        assert isinstance(dim, int)
        producers = {v.name: s for s in self.procedure.statements for v in s.results}
        for i, part in enumerate(op.operands):
            made = producers.get(part.name)
            if made and not _is_view(made) and part.name not in self.places:
                self.places[part.name] = indexed(whole, dim, i)

    # -- statements -------------------------------------------------------------------------------------

    def lower(self) -> Procedure:
        for stmt in self.procedure.statements:
            self.build.source, self.build.span = stmt.results[0].name, stmt.span
            if isinstance(stmt, Reshard):
                self._reshard(stmt)
            else:
                self._op(stmt)
        self.build.source = ""
        for argument, out in zip(self.arguments, self.procedure.outputs, strict=True):
            self._return(argument, out)
        outputs = tuple(
            Output(Value(f, o.value.type), o.mode)
            for f, o in zip(self.arguments, self.procedure.outputs, strict=True)
        )
        used = buffers_of(self.build.body)
        buffers: tuple[Buffer, ...] = tuple(b for b in self.build.buffers.values() if b.name in used)
        return replace(self.procedure, outputs=outputs, buffers=buffers, body=tuple(self.build.body))

    def _return(self, argument: str, out: Output) -> None:
        target = whole_view(argument, self._local(out.value), out.value.type.dtype)
        source = self.env[out.value.name]
        if out.value.name in self.grown:
            return
        if out.mode is Mode.ADD:
            self.build.kernel("add", [target], [target, source])
        elif source != target:
            self.build.kernel("copy", [target], [source])

    def _reshard(self, s: Reshard) -> None:
        self.env[s.result.name] = lower_reshard(
            self.build, s, self.env[s.operand.name], lambda _: self._place(s.result), self.lies[s.axis]
        )

    def _op(self, op: Op) -> None:
        if op.definition.view:
            dim = op.attr("dim")
            assert isinstance(dim, int)
            for i, v in enumerate(op.results):
                self.env[v.name] = indexed(self.env[op.operands[0].name], dim, i)
            return
        reads = tuple(self.env[v.name] for v in op.operands)
        writes = tuple(self._place(v) for v in op.results)
        self.env.update(zip((v.name for v in op.results), writes, strict=True))
        more = tuple(v.name in self.grown for v in op.results)
        if op.stream is None:
            KERNELS[op.kind](Site(self.build, op, reads, writes, lambda f: self._runs(op, f), more))
            return
        a = along(self.build, op.stream.axis, self.lies[op.stream.axis])
        lower_stream(
            StreamSite(a, op, op.stream, reads, writes, self._lies(op), lambda f: self._runs(op, f), more)
        )

    def _place(self, value: Value) -> View:
        if value.name in self.places:
            return self.places[value.name]
        return self.build.buffer(value.name, self._local(value), value.type.dtype)

    def _runs(self, op: Op, factor: str) -> list[Run]:
        """The global coordinates of the local indices of a factor that no stream cuts further."""
        lies = self._lies(op)
        # Positions that were gathered lie as they lay before.
        folded = next(iter(lies.zigzag), "")
        return lies.runs(split_axes(op, factor), op.sizes[factor], folded=folded)

    def _lies(self, op: Op) -> Coordinates:
        """How what the op asks coordinates of is cut: only positions lie in zigzag, and only some ops ask for them."""
        return self.coordinates if op.definition.positional else replace(self.coordinates, zigzag=())
