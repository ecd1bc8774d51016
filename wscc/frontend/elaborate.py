"""Elaboration of a resolved file to its forward module: arrays, a procedure per segment, the step that calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wscc.analysis.uses import unread_parameters
from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Span, fail
from wscc.frontend import ast
from wscc.frontend.evaluate import integer, number
from wscc.frontend.inputs import input_array
from wscc.frontend.resolve import Resolved
from wscc.frontend.segments import Segment, chain
from wscc.frontend.tensors import Scope
from wscc.frontend.training.groups import with_rates
from wscc.ir import construct as nn
from wscc.ir.array import Array, Init, Kind
from wscc.ir.builder import Builder
from wscc.ir.module import HeaderSpans, Level, Mode, Module, Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref
from wscc.ir.train import Train
from wscc.ir.types import DType, TensorType
from wscc.strategy import mesh_axes

MICROBATCH, LAYER = "mb", "l"
RESERVED = ("loss", "count", "norm2", "t")


def elaborate(resolved: Resolved) -> Module:
    """The forward module of one training run (`wscc.ir.module`), checked for shapes.

    Raises W101 for shapes that do not fit, W007 for reserved or repeated names, W103 for a parameter or input
    that the loss does not use.
    """
    return _Model(resolved).module()


@dataclass(slots=True)
class _Carried:
    """A loop-carried value: its array, which has an element for each version of the value."""

    name: str
    type: TensorType
    span: Span
    versions: int = 0


@dataclass(slots=True)
class _Model:
    """The module under construction; each segment adds its procedure, arrays and carried values."""

    resolved: Resolved
    arrays: dict[str, Array] = field(default_factory=dict)
    carried: list[_Carried] = field(default_factory=list)
    procedures: list[Procedure] = field(default_factory=list)
    # The array and the index of the current version of each carried name.
    current: dict[str, tuple[_Carried, int]] = field(default_factory=dict)
    draws: int = 0  # calls of `dropout`
    # The words of `decay` on parameters, by name.
    decays: dict[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        config = self.resolved.config
        return {**self.resolved.sizes, "batch": config.batch // config.calls}

    @property
    def stats(self) -> DType:
        """The element type of losses and counts, which is never bf16."""
        return DType.F64 if self.resolved.config.dtypes.compute is DType.F64 else DType.F32

    def module(self) -> Module:
        config = self.resolved.config
        self._declare()
        segments = chain(self.resolved.model)
        start, prepare = self._counting({s.name for s in segments})
        body = [_SegmentBuilder(self, s).build() for s in segments]
        arrays = [*self.arrays.values(), *(_carried_array(c, self.arrays) for c in self.carried)]
        train = Train(
            batch=config.batch, microbatches=config.calls, optimizer=config.optimizer, lr_schedule=config.lr_schedule,
            clip=config.clip, compute=config.dtypes.compute, params=config.dtypes.params,
            grads=config.dtypes.grads, recompute=config.recompute,
            zero=config.zero, interleave=config.interleave, stages=config.stages, data=config.data,
            validation_rows=config.validation_rows, validation_percent=config.validation_percent, seed=config.seed,
        )  # fmt: skip
        step = (
            start,
            *self._statistics_from_zero({s.name for s in segments}),
            Loop(MICROBATCH, config.calls, (prepare,)),
            Loop(MICROBATCH, config.calls, tuple(body)),
        )
        name = self.resolved.model.name.id
        module = Module(
            name, Level.GRAPH, mesh_axes(dict(config.strategy)), train, self.resolved.wafer, tuple(arrays),
            tuple(self.procedures), step, spans=HeaderSpans(stages=config.stages_span),
        )  # fmt: skip
        _refuse_unused(module)
        return with_rates(module, config.decay, config.groups, self.decays)

    # -- declarations -----------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Add the inputs and the parameters of the model itself; those of a repeat belong to its segment."""
        for s in self.resolved.model.body.lines:
            if isinstance(s, ast.Input):
                self.add(input_array(s, self.sizes, self.resolved.config.calls))
            elif isinstance(s, ast.Param):
                self.param(s, self.sizes, s.name.id, ())
        if "labels" not in self.arrays:
            raise fail(
                Code.STRUCTURE, "the model has no input `labels`", self.resolved.model.name.span,
                help="write `input labels : i32[batch, seq]`; the loss counts its valid entries",
            )  # fmt: skip

    def param(self, s: ast.Param, sizes: Mapping[str, int], name: str, extents: tuple[int, ...]) -> Array:
        shape = tuple(integer(d, sizes) for d in s.dims)
        std = float(number(s.init.argument, sizes)) if s.init.argument is not None else 0.0
        kind = TensorType(shape, self.resolved.config.dtypes.params)
        if s.decay is not None:
            self.decays[name] = s.decay.id
        return self.add(Array(name, kind, Kind.PARAM, extents, Init(s.init.kind.id, std), span=s.name.span))

    def add(self, array: Array) -> Array:
        if array.name in self.arrays or array.name in RESERVED:
            first = self.arrays.get(array.name)
            raise CompileError(
                Diagnostic(
                    Code.DUPLICATE,
                    f"`{array.name}` is " + ("defined twice" if first else "a reserved name"),
                    Label(array.span),
                    (Label(first.span, "first here"),) if first else (),
                    "rename it",
                )
            )
        self.arrays[array.name] = array
        return array

    def _counting(self, segments: set[str]) -> tuple[Call, Call]:
        """Calls that zero the loss and the count of valid labels, and that add a micro-batch to the count."""
        start, prepare = fresh("start", segments), fresh("prepare", segments)
        scalar = TensorType((), self.stats)
        for name in ("loss", "count"):
            self.arrays[name] = Array(name, scalar, Kind.SCALAR)
        b = Builder()
        zeros = [
            b.one("fill", [], " -> ", dtypes=[self.stats], attrs={"value": 0.0}, hints=[n])
            for n in ("loss", "count")
        ]
        self.procedures.append(Procedure(start, (), tuple(Output(v) for v in zeros), tuple(b.ops)))
        b = Builder()
        labels = b.input("labels", self.arrays["labels"].type)
        term = " ".join(nn.leading(nn.rank_of(labels)))
        count = b.one("count", [labels], f"{term} -> ", dtypes=[self.stats])
        self.procedures.append(Procedure(prepare, (labels,), (Output(count, Mode.ADD),), tuple(b.ops)))
        argument = Ref("labels", (Affine(0, ((MICROBATCH, 1),)),))
        return Call(start, (Ref("loss"), Ref("count"))), Call(prepare, (argument, Ref("count")))

    def _statistics_from_zero(self, segments: set[str]) -> list[Call | Loop]:
        """Calls that zero the statistics of a step, layer by layer."""
        statistics = [a for a in self.arrays.values() if a.kind is Kind.STATISTIC]
        statements: list[Call | Loop] = []
        for extents in dict.fromkeys(a.extents for a in statistics):
            group = [a for a in statistics if a.extents == extents]
            name = fresh("start.statistics", segments | {p.name for p in self.procedures})
            b = Builder()
            zeros = [
                b.one(
                    "fill",
                    [],
                    " -> e",
                    sizes={"e": n},
                    dtypes=[a.type.dtype],
                    attrs={"value": 0.0},
                    hints=[a.name],
                )
                for a in group
                for n in a.type.shape
            ]
            self.procedures.append(Procedure(name, (), tuple(map(Output, zeros)), tuple(b.ops)))
            index = (Affine(0, ((LAYER, 1),)),) if extents else ()
            call = Call(name, tuple(Ref(a.name, index) for a in group))
            statements.append(Loop(LAYER, extents[0], (call,)) if extents else call)
        return statements

    def add_versions(
        self, name: str, value: Value, span: Span, count: int = 1, *, is_read: bool = False
    ) -> tuple[_Carried, int]:
        """The carried value of a name and the first of its `count` new versions (one per layer). `is_read`: the
        segment reads the version before. Raises W101 where a layer would read another type than it writes."""
        previous = self.current.get(name)
        if previous is None or previous[0].type != value.type:
            if count > 1 and previous and is_read:
                raise fail(
                    Code.SHAPE,
                    f"`{name}` is {value.type} at the end of a layer and {previous[0].type} at its start", span,
                    help="what a `repeat` hands on must be as it was before",
                )  # fmt: skip
            taken = {c.name for c in self.carried} | {*self.arrays, *RESERVED}
            unique = (
                name
                if name not in taken
                else next(f"{name}.{n}" for n in range(1, 99) if f"{name}.{n}" not in taken)
            )
            carried = _Carried(unique, value.type, span)
            self.carried.append(carried)
        else:
            carried = previous[0]
        first = carried.versions
        carried.versions += count
        self.current[name] = (carried, carried.versions - 1)
        return carried, first


def _refuse_unused(module: Module) -> None:
    if unused := unread_parameters(module):
        raise CompileError(
            *(
                Diagnostic(
                    Code.STRUCTURE,
                    f"parameter `{a.name}` is never used",
                    Label(a.span),
                    help="remove it, or use it in the loss",
                )
                for a in unused
            )
        )


def _carried_array(c: _Carried, arrays: Mapping[str, Array]) -> Array:
    name = c.name if c.name not in arrays else f"{c.name}.carried"
    return Array(name, c.type, Kind.CARRIED, (c.versions,), span=c.span)


class _SegmentBuilder:
    """The construction of one segment's procedure; implements `tensors.Frame`."""

    def __init__(self, model: _Model, segment: Segment) -> None:
        self.model = model
        self.segment = segment
        self.builder = Builder()
        self.inputs: list[Value] = []
        self.refs: list[Ref] = []
        self._bound: dict[str, Value] = {}
        self._count: Value | None = None  # not among the names of the program, which may have a `count` too
        self._keys: Value | None = None  # of random draws
        self._carried_out: list[Value] = []
        self._statistics: list[tuple[Value, Ref]] = []
        self.layers = 0
        if segment.repeat is not None:
            self.layers = integer(segment.repeat.count, model.sizes)
        # Carried names that change from layer to layer, with the version that the first layer reads.
        self._carried_in = {
            n: model.current[n] for n in segment.carried if self.layers and n in model.current
        }
        self.scope = Scope(self, model.resolved.blocks, model.sizes)
        self.scope.declare = self._declare

    # -- Frame ------------------------------------------------------------------------------------------

    def tensor(self, name: ast.Name) -> Value | None:
        key = name.id
        if key in self._bound:
            return self._bound[key]
        if key in self.model.current:
            return self._bind_carried(key)
        array = self.model.arrays.get(key)
        if array is None or array.kind is Kind.SCALAR:
            return None
        index = (Affine(0, ((MICROBATCH, 1),)),) if array.kind is Kind.INPUT else ()
        return self._bind(key, array, index)

    def lists_edges(self, value: Value) -> bool:
        arrays = {v.name: ref.array for v, ref in zip(self.inputs, self.refs, strict=True)}
        array = self.model.arrays.get(arrays.get(value.name, ""))
        return array is not None and array.kind is Kind.EDGES

    def count(self) -> Value:
        if self._count is None:
            self._count = self._argument("count", self.model.arrays["count"], ())
        return self._count

    @property
    def sequences(self) -> int:
        return self.model.resolved.config.batch

    def draw(self) -> tuple[Value, int]:
        if self._keys is None:
            name = fresh(f"{self.segment.name}.keys", {*self.model.arrays, *RESERVED})
            config = self.model.resolved.config
            layers = ((self.layers, Affine(0, ((LAYER, 1),))),) if self.layers else ()
            indices = ((config.calls, Affine(0, ((MICROBATCH, 1),))), *layers)
            kind = TensorType((self.model.sizes["batch"],), DType.I32)
            array = self.model.add(Array(name, kind, Kind.INPUT, tuple(n for n, _ in indices)))
            self._keys = self._argument("keys", array, tuple(i for _, i in indices))
        self.model.draws += 1
        return self._keys, self.model.draws - 1

    def count_tokens(self, chosen: Value, dropped: Value) -> None:
        extents = (self.layers,) if self.layers else ()
        for value, what in ((chosen, "chosen"), (dropped, "dropped")):
            name = fresh(f"{self.segment.name}.{what}", {*self.model.arrays, *RESERVED})
            self.model.add(Array(name, value.type, Kind.STATISTIC, extents))
            self._statistics.append((value, Ref(name, (Affine(0, ((LAYER, 1),)),) if self.layers else ())))

    def _bind_carried(self, key: str) -> Value:
        carried, version = self.model.current[key]
        terms = ((LAYER, 1),) if key in self._carried_in else ()
        array = Array(carried.name, carried.type, Kind.CARRIED)
        return self._bind(key, array, (Affine(version, terms),))

    def _bind(self, key: str, array: Array, index: tuple[Affine, ...]) -> Value:
        """The argument for an array element; parameters and floats of the data are converted to the type of
        computation once."""
        value = self._argument(key, array, index)
        if array.kind is Kind.PARAM or (array.kind is Kind.INPUT and array.type.dtype.is_float):
            value = nn.cast(self.builder, value, self.model.resolved.config.dtypes.compute, span=array.span)
        self._bound[key] = value
        return value

    def _argument(self, key: str, array: Array, index: tuple[Affine, ...]) -> Value:
        value = self.builder.input(key, array.type)
        self.inputs.append(value)
        self.refs.append(Ref(array.name, index))
        return value

    def _declare(self, s: ast.Param, sizes: Mapping[str, int], prefix: str) -> Value:
        """A parameter of a repeat's body (one per layer) or of a block call."""
        local = f"{prefix}{s.name.id}"
        name = f"{self.segment.name}.{local}" if self.layers else local
        if prefix:
            name = fresh(name, self.model.arrays)
        array = self.model.param(s, sizes, name, (self.layers,) if self.layers else ())
        index = (Affine(0, ((LAYER, 1),)),) if self.layers else ()
        return self._bind(local, array, index)

    # -- the segment ------------------------------------------------------------------------------------

    def build(self) -> Call | Loop:
        """The call of the segment's procedure, in a loop over layers for a `repeat`. Raises W101, W103."""
        outputs: list[Output] = []
        out_refs: list[Ref] = []
        for s in self.segment.statements:
            if isinstance(s, ast.Assign):
                self.scope.assign(s)
            elif isinstance(s, ast.Param):
                self.scope.values[s.name.id] = self._declare(s, self.model.sizes, "")
            elif isinstance(s, ast.Loss):
                value = self.scope.one(s.value)
                if value.type.shape:
                    raise fail(Code.SHAPE, f"the loss is {value.type}, not one number", s.value.span)
                outputs.append(Output(value, Mode.ADD))
                out_refs.append(Ref("loss"))
        for name in self.segment.carried:
            out, ref = self._output(name)
            outputs.insert(len(outputs) - len([r for r in out_refs if r.array == "loss"]), out)
            out_refs.insert(len(out_refs) - len([r for r in out_refs if r.array == "loss"]), ref)
        outputs += [Output(value, Mode.ADD) for value, _ in self._statistics]
        out_refs += [ref for _, ref in self._statistics]
        procedure = Procedure(self.segment.name, tuple(self.inputs), tuple(outputs), tuple(self.builder.ops))
        self.model.procedures.append(procedure)
        call = Call(procedure.name, (*self.refs, *out_refs))
        return Loop(LAYER, self.layers, (call,)) if self.layers else call

    def _output(self, name: str) -> tuple[Output, Ref]:
        """The output of a carried name, and the array element that takes it."""
        value, span = self.scope.values[name], self._span_of(name)
        if not value.type.dtype.is_float:
            raise fail(
                Code.STRUCTURE,
                f"`{name}` holds integers, and only what is computed crosses a `repeat`",
                span,
                help="use the input under its own name",
            )
        if value in self.inputs or value in self._carried_out or self._makes_positions(value):
            # An alias of an input or of an earlier output: a copy goes out, so that each element has a writer of
            # its own. Positions that an op makes are whole, and axes split them where they are read: in the copy.
            value = nn.scale(self.builder, value, 1.0)
        self._carried_out.append(value)
        if not self.layers:
            carried, version = self.model.add_versions(name, value, span)
            return Output(value), Ref(carried.name, (Affine(version),))
        carried, first = self.model.add_versions(name, value, span, self.layers, is_read=name in self._bound)
        return Output(value), Ref(carried.name, (Affine(first, ((LAYER, 1),)),))

    def _makes_positions(self, value: Value) -> bool:
        return any(op.definition.makes_positions and value in op.results for op in self.builder.ops)

    def _span_of(self, name: str) -> Span:
        spans = [
            t.span
            for s in self.segment.statements
            if isinstance(s, ast.Assign)
            for t in s.targets
            if t.id == name
        ]
        return spans[-1]
