"""Lowering of sharded ops to the fabric: kernels on views of buffers, and chunked transfers between dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import ClassVar, Final

from wscc.analysis.cost import DieRates
from wscc.analysis.index_ranges import Coordinates, Run
from wscc.analysis.op_axes import split_axes
from wscc.analysis.sequence_dims import Positions, SequenceDims, sequence_factors
from wscc.analysis.statement_accesses import buffers_of
from wscc.diagnostics import Code, fail
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, Transfer
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import GraphStmt, Op, Reshard, Stream, Value
from wscc.ir.per_die import NOBODY, Ints, at, per_die, times_each
from wscc.ir.step import Ref, calls
from wscc.ir.views import View, indexed, whole_view
from wscc.passes.base import OF_THE_PIPELINE, Fact, Pass
from wscc.passes.choices import ALLGATHERS
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.lower_collectives.blocks import Link, chain_turns
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.chains import Chain, Fast, chains_of, losing_least, with_chains
from wscc.passes.lower_collectives.edges import Edges
from wscc.passes.lower_collectives.in_flight import in_flight
from wscc.passes.lower_collectives.op_instance import OpInstance
from wscc.passes.lower_collectives.ops import LOWERINGS, part_view
from wscc.passes.lower_collectives.rehearsal import rehearse
from wscc.passes.lower_collectives.reshards import axis_groups, lower_reshard
from wscc.passes.lower_collectives.sliced_reshards import Sliceable, SlicedReshard, factors_of, reshards_of
from wscc.passes.lower_collectives.slices import slices
from wscc.passes.lower_collectives.stream_instance import StreamInstance
from wscc.passes.lower_collectives.streams import lower_stream, take_turns

# Temporaries of an op, such as the scores of a tile of attention, take at most one part in so many of the fast memory:
# a gradient needs two of them, operands and slots the rest.
_TEMPORARIES: Final = 8


@dataclass(frozen=True, slots=True)
class LowerCollectives(Pass):
    """Lower every sharded procedure to kernels and transfers, in an order that is right when each statement
    is executed by all dies in turn.

    Ops become instructions. Reshards become transfers along one axis: on a ring of neighbours, a chain, a ring over
    several hops where peers are apart, along relays of `wscc.collectives`, or from each die to all others at once. With
    `allgather=auto`, each takes what is fastest by estimate; with `ring`, none sends to all; with `multicast`, all
    gathers do. Streams (collective matmuls) become loops over chunks. Splits and slices only name part of a buffer. A
    result that the procedure returns is computed in the memory that the caller binds it to.

    Before: %g = all_gather(%x) axis=tp dim=1 : f32[8,16,32]
    After:  copy %g[..] = %x; transfer 0 to=[1,0] %x -> %g[..]
    """

    name: ClassVar[str] = "lower_collectives"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PLACED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})

    allgather: str = ALLGATHERS[0]
    seconds: Callable[[Module], float] | None = field(default=None, metadata={OF_THE_PIPELINE: True})

    def run(self, module: Module) -> Module:
        if self.allgather not in ALLGATHERS:
            choices = "`" + "`, `".join(ALLGATHERS[:-1]) + f"` or `{ALLGATHERS[-1]}`"
            raise fail(Code.OPTION, f"`allgather` is {choices}, not `{self.allgather}`")
        mesh = LogicalMesh(module.axes)
        coordinates = Coordinates(mesh, module.zigzag)
        positions = SequenceDims.of(module).values if module.zigzag else {}
        args = {c.procedure: c.args for c, _ in calls(module.step)}
        storage = {a.name: a.storage or a.name for a in module.arrays}
        callers = _callers(module)
        die = module.die
        fast = Fast(max(1, die.sram // _TEMPORARIES), die.tile)
        timed = None if self.seconds is None else partial(rehearse, module, self.seconds)
        algorithms = Algorithms(module, self.allgather, fast.bytes, rehearse=timed)
        edges = Edges(module)

        def lowered(p: Procedure, chains: tuple[Chain, ...]) -> Procedure:
            listed = edges.arguments(p, args[p.name])
            bindings = _bindings(p, args[p.name], storage)
            lowering = _ProcedureLowering(
                coordinates, positions.get(p.name, {}), algorithms, p, bindings, fast, edges, listed
            )
            return _on_dies(lowering.lower(chains), callers[p.name])

        def best(p: Procedure) -> Procedure:
            # Blocks of edges are found as a procedure is lowered: once.
            chained = DieRates.of(die).has_hbm and not edges.arguments(p, args[p.name])
            choices = chains_of(p, mesh.sizes, fast) if chained else []
            return losing_least([partial(lowered, p, chains) for chains in ((), *choices)], die, mesh.sizes)

        return edges.bound(module.with_(level=Level.FABRIC, procedures=tuple(map(best, module.procedures))))


def _callers(module: Module) -> dict[str, Ints]:
    """A mask of the dies whose stage calls a procedure, by name of the procedure."""
    called = [{c.procedure for c, _ in calls(step)} for step in module.steps()]
    stage_dies = module.dies_used // module.stages
    return {
        p.name: per_die(int(p.name in called[die // stage_dies]) for die in range(module.dies_used))
        for p in module.procedures
    }


def _on_dies(procedure: Procedure, dies: Ints) -> Procedure:
    """The procedure with statements on the dies of a mask only."""
    if dies == 1:
        return procedure
    return replace(procedure, body=tuple(_masked(s, dies) for s in procedure.body))


def _masked(stmt: GraphStmt | FabricStmt, dies: Ints) -> FabricStmt:
    if isinstance(stmt, Kernel):
        return replace(stmt, where=times_each(stmt.where, dies))
    assert isinstance(stmt, Transfer)
    if isinstance(stmt.to, int):
        return stmt
    return replace(stmt, to=per_die(to if at(dies, i) else NOBODY for i, to in enumerate(stmt.to)))


def _is_view(stmt: GraphStmt) -> bool:
    return stmt.kind == "slice" if isinstance(stmt, Reshard) else stmt.definition.view


@dataclass(frozen=True, slots=True)
class Bindings:
    """Bindings of the outputs of a procedure, by number: the input of the same element in `aliases`, and in `exclusive`
    those whose storage no other argument has."""

    aliases: dict[int, str]
    exclusive: frozenset[int]


def _bindings(procedure: Procedure, args: tuple[Ref, ...], storage: dict[str, str]) -> Bindings:
    """The bindings of the outputs by a call with these arguments."""
    inputs = {(storage[r.array], r.index): v.name for v, r in zip(procedure.inputs, args, strict=False)}
    outputs = [(storage[r.array], r.index) for r in args[len(procedure.inputs) :]]
    arrays = Counter(storage[r.array] for r in args)
    return Bindings(
        {j: inputs[key] for j, key in enumerate(outputs) if key in inputs},
        frozenset(j for j, (array, _) in enumerate(outputs) if arrays[array] == 1),
    )


class _ProcedureLowering:
    """Lowers one procedure. `env`: the view of each value. `destinations`: the views of results that are computed in a
    given place; those in `accumulated` are added to it."""

    def __init__(
        self, coordinates: Coordinates, positions: Positions, algorithms: Algorithms, procedure: Procedure,
        bindings: Bindings, fast: Fast, edges: Edges, listed: dict[str, str],
    ) -> None:  # fmt: skip
        self.coordinates, self.positions = coordinates, positions
        self.mesh = mesh = coordinates.mesh
        self.algorithms = algorithms
        self.procedure = procedure
        self.arguments = [self._argument(j, bindings) for j in range(len(procedure.outputs))]
        names = {v.name for v in procedure.inputs} | set(self.arguments)
        self.build = FabricBuilder(mesh, {}, [], Names(names), fast.bytes, fast.tile, edges=edges)
        # Lists of edges have the names of their arrays; blocks of them will be arguments instead.
        self.listed = listed
        self.env = {
            v.name: whole_view(listed.get(v.name, v.name), self._local(v), v.type.dtype)
            for v in procedure.inputs
        }
        self.exclusive = bindings.exclusive
        self.destinations: dict[str, View] = {}
        self.accumulated: set[str] = set()
        self.in_flight = in_flight(procedure)
        self.sliced = Sliceable.of(procedure, mesh.sizes, fast.bytes)
        self._choose_destinations()

    def _local(self, value: Value) -> tuple[int, ...]:
        return value.type.local_shape(self.mesh.sizes)

    def _argument(self, j: int, bindings: Bindings) -> str:
        """The name of the argument of output j: that of the input which it replaces, if any."""
        return bindings.aliases.get(j) or f"out.{j}"

    def _choose_destinations(self) -> None:
        """Choose the views of results that need a given place: returned values, and parts of a stack."""
        computed = {v.name for s in self.procedure.statements for v in s.results}
        for argument, out in zip(self.arguments, self.procedure.outputs, strict=True):
            name = out.value.name
            if out.mode is Mode.WRITE and name in computed and name not in self.destinations:
                self.destinations[name] = whole_view(argument, self._local(out.value), out.value.type.dtype)
        for op in self.procedure.ops:
            if op.kind == "stack":
                self._place_parts(op)
        self._accumulate_in_place()

    def _accumulate_in_place(self) -> None:
        """Let products and sums whose only use is to be added to exclusive memory accumulate there."""
        read = {v.name for s in self.procedure.statements for v in s.operands}
        returned = Counter(out.value.name for out in self.procedure.outputs)
        products = {op.results[0].name for op in self.procedure.ops if op.kind in ("matmul", "sum")}
        for j, (argument, out) in enumerate(zip(self.arguments, self.procedure.outputs, strict=True)):
            name = out.value.name
            is_used = returned[name] > 1 or name in read | set(self.destinations)
            if out.mode is Mode.ADD and j in self.exclusive and not is_used and name in products:
                self.destinations[name] = whole_view(argument, self._local(out.value), out.value.type.dtype)
                self.accumulated.add(name)

    def _place_parts(self, op: Op) -> None:
        """Let the parts of a stack be computed in the stack."""
        result = op.results[0]
        whole = self.destinations.get(result.name)
        if whole is None:
            whole = self.build.buffer(result.name, self._local(result), result.type.dtype)
            self.destinations[result.name] = whole
        dim = op.attr("dim")
        assert isinstance(dim, int)
        producers = {v.name: s for s in self.procedure.statements for v in s.results}
        for i, part in enumerate(op.operands):
            producer = producers.get(part.name)
            if producer and not _is_view(producer) and part.name not in self.destinations:
                self.destinations[part.name] = indexed(whole, dim, i)

    # -- statements -------------------------------------------------------------------------------------

    def lower(self, chains: Iterable[Chain]) -> Procedure:
        """The procedure at the fabric level, these chains of its ops block by block."""
        for item in with_chains(self.procedure, chains):
            if isinstance(item, Chain):
                self._chain(item)
                continue
            self.build.source, self.build.span = item.results[0].name, item.span
            if isinstance(item, Reshard):
                self._reshard(item)
            else:
                self._op(item)
        self.build.source = ""
        for argument, out in zip(self.arguments, self.procedure.outputs, strict=True):
            self._return(argument, out)
        outputs = tuple(
            Output(Value(f, o.value.type), o.mode)
            for f, o in zip(self.arguments, self.procedure.outputs, strict=True)
        )
        inputs = [v for v in self.procedure.inputs if v.name not in self.listed]
        inputs += self.build.arguments.values()
        self.build.edges.read[self.procedure.name] = tuple(self.build.arguments)
        used = buffers_of(self.build.body)
        buffers: tuple[Buffer, ...] = tuple(b for b in self.build.buffers.values() if b.name in used)
        return replace(
            self.procedure,
            inputs=tuple(inputs),
            outputs=outputs,
            buffers=buffers,
            body=tuple(self.build.body),
        )

    def _return(self, argument: str, out: Output) -> None:
        target = whole_view(argument, self._local(out.value), out.value.type.dtype)
        source = self.env[out.value.name]
        if out.value.name in self.accumulated:
            return
        if out.mode is Mode.ADD:
            self.build.kernel("add", [target], [target, source])
        elif source != target:
            self.build.kernel("copy", [target], [source])

    def _reshard(self, s: Reshard) -> None:
        """Lower a reshard, unless a stream does it slice by slice."""
        if s.result.name not in self.env and s.result.name not in self.sliced.gathers:
            self._whole_reshard(s)

    def _whole_reshard(self, s: Reshard) -> None:
        algorithms = self.algorithms.together(self.in_flight.get(s.result.name, 1))
        self.env[s.result.name] = lower_reshard(
            self.build, s, self.env[s.operand.name], lambda _: self._destination(s.result), algorithms
        )

    def _op(self, op: Op) -> None:
        if op.definition.view:
            for i, v in enumerate(op.results):
                self.env[v.name] = part_view(op, i, self.env[op.operands[0].name])
        elif op.stream is None:
            LOWERINGS[op.kind](self._instance(op))
        elif not self._sliced_stream(op, op.stream):
            for reshard in reshards_of(op.operands, self.sliced.gathers).values():
                self.build.source, self.build.span = reshard.result.name, reshard.span
                self._whole_reshard(reshard)
            self.build.source, self.build.span = op.results[0].name, op.span
            lower_stream(slices(self._stream(op, op.stream, self._instance(op))))

    def _instance(self, op: Op) -> OpInstance:
        """The op on its operands and results, whose views are those of their values from now on."""
        reads = tuple(self.env[v.name] for v in op.operands)
        writes = tuple(self.env.get(v.name) or self._destination(v) for v in op.results)
        self.env.update(zip((v.name for v in op.results), writes, strict=True))
        accumulates = tuple(v.name in self.accumulated for v in op.results)
        # Tiles and chunks ask for the same again and again.
        return OpInstance(self.build, op, reads, writes, cache(partial(self._runs, op)), accumulates)

    def _stream(self, op: Op, stream: Stream, s: OpInstance) -> StreamInstance:
        groups = axis_groups(self.build, stream.axis, self.algorithms.neighbours(stream.axis))
        whole = StreamInstance(
            groups, op, stream, s.reads, s.writes, self._coordinates(op), s.runs, s.accumulate
        )
        return whole.without_empty_chunks()

    def _sliced_stream(self, op: Op, stream: Stream) -> bool:
        """Lower a stream together with the reshards that it can do slice by slice; if it has none, or no slices, not at
        all."""
        gathers = reshards_of(op.operands, self.sliced.gathers)
        scatters = reshards_of(op.results, self.sliced.scatters)
        if not gathers and not scatters:
            return False
        with self._standing_for(
            *(r.result for r in gathers.values()), *(r.operand for r in scatters.values())
        ):
            shared = factors_of(op, gathers, scatters)
            parts = slices(self._stream(op, stream, self._instance(op)), shared)
        if len(parts.slices) < 2:
            return False
        lower_stream(parts, *self._sliced_reshards(gathers, scatters))
        return True

    @contextmanager
    def _standing_for(self, *values: Value) -> Iterator[None]:
        """Views that stand for values which never are in memory as a whole."""
        names = {v.name: whole_view(v.name, self._local(v), v.type.dtype) for v in values}
        self.env.update(names)
        yield
        for name in names:
            del self.env[name]

    def _sliced_reshards(
        self, gathers: dict[int, Reshard], scatters: dict[int, Reshard]
    ) -> tuple[dict[int, SlicedReshard], dict[int, SlicedReshard]]:
        ending = {j: self._sliced_reshard(r, self._destination(r.result)) for j, r in scatters.items()}
        self.env.update((r.result.name, ending[j].shard) for j, r in scatters.items())
        beginning = {i: self._sliced_reshard(r, self.env[r.operand.name]) for i, r in gathers.items()}
        return beginning, ending

    def _sliced_reshard(self, r: Reshard, shard: View) -> SlicedReshard:
        return SlicedReshard(self.algorithms, r.axis, r.dim, shard, r.result.name, r.span)

    # -- chains -----------------------------------------------------------------------------------------

    def _chain(self, chain: Chain) -> None:
        """Lower a chain block by block; sums over blocks have the type of sums until the last."""
        totals = list(dict.fromkeys(chain.sums.values()))
        sums = {v.name: self._sums(v) for v in totals}
        with self._standing_for(
            *(v for op, _ in chain.members for v in op.results if v.name in chain.inside)
        ):
            self.env.update((name, sums[v.name]) for name, v in chain.sums.items())
            links = [self._link(op, factor, chain.shards) for op, factor in chain.members]
        take_turns(chain_turns(chain, links, self.build))
        for v in totals:
            self.build.source, self.env[v.name] = v.name, sums[v.name]
            if v.type.dtype is not sums[v.name].dtype:
                self.env[v.name] = self._destination(v)
                self.build.kernel("cast", [self.env[v.name]], [sums[v.name]])

    def _sums(self, total: Value) -> View:
        """Where a total is added up."""
        dtype = total.type.dtype
        if dtype is dtype.accumulator:
            return self._destination(total)
        return self.build.buffer(f"{total.name}.sums", self._local(total), dtype.accumulator)

    def _link(self, op: Op, factor: str, shards: int) -> Link:
        """An op of a chain, with the reshards that it does slice by slice."""
        if op.stream is None:
            return Link(self._instance(op), factor, shards, {}, {})
        gathers = reshards_of(op.operands, self.sliced.gathers)
        scatters = reshards_of(op.results, self.sliced.scatters)
        with self._standing_for(
            *(r.result for r in gathers.values()), *(r.operand for r in scatters.values())
        ):
            stream = self._stream(op, op.stream, self._instance(op))
        return Link(stream, factor, shards, *self._sliced_reshards(gathers, scatters))

    def _destination(self, value: Value) -> View:
        if value.name in self.destinations:
            return self.destinations[value.name]
        return self.build.buffer(value.name, self._local(value), value.type.dtype)

    def _runs(self, op: Op, factor: str) -> list[Run]:
        """The global coordinates of the local indices of a factor that no stream splits further."""
        coordinates = self._coordinates(op)
        if coordinates.zigzag and factor not in sequence_factors(op, self.positions):
            coordinates = replace(coordinates, zigzag=())  # widths and heads are in order
        # Positions of a sequence that were gathered keep their zigzag order.
        folded = next(iter(coordinates.zigzag), "")
        return coordinates.runs(split_axes(op, factor), op.sizes[factor], folded=folded)

    def _coordinates(self, op: Op) -> Coordinates:
        """The partition of the dimensions that an op asks for: only positions are in zigzag, which few ops ask for."""
        return self.coordinates if op.definition.positional else replace(self.coordinates, zigzag=())
