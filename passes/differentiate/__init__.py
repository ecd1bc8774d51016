"""Turn a forward module into a training step: forward, backward, gradient norm and update procedures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from wscc.diagnostics import CompileError
from wscc.ir.array import Array, Kind, Relation, Role
from wscc.ir.builder import Builder
from wscc.ir.module import Mode, Module, Output, Procedure
from wscc.ir.naming import FORWARD, Names
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref, Step
from wscc.ir.types import DType, TensorType
from wscc.passes.base import Fact, Pass
from wscc.passes.differentiate.backward import backward_procedure
from wscc.passes.differentiate.form import check_form
from wscc.passes.differentiate.update import SQUARED_NORM, Weight, moments_of, update_procedures

# Scalars that the step keeps: the squared norm of all gradients, and the number of the step.
_SCALARS = ("norm2", "t")


@dataclass(frozen=True, slots=True)
class Segment:
    """A link of the chain: a forward procedure, called once or in a loop `variable` < `count` over layers."""

    procedure: Procedure
    call: Call
    variable: str = ""
    count: int = 1

    def over_layers(self, call: Call) -> Call | Loop:
        """`call` in the loop of the segment over its layers, if it has one."""
        return Loop(self.variable, self.count, (call,)) if self.variable else call

    def elements(self, ref: Ref) -> range:
        """The interval of indices that `ref` takes over the layers."""
        stride = sum(c for a in ref.index for v, c in a.terms if v == self.variable)
        first = sum(a.base for a in ref.index)
        last = first + stride * (self.count - 1)
        return range(min(first, last), max(first, last) + 1)

    def reversed(self, ref: Ref) -> Ref:
        """The reference for layers that run backwards: layer l becomes count - 1 - l."""
        return replace(ref, index=tuple(_reversed(a, self.variable, self.count) for a in ref.index))


def _reversed(a: Affine, variable: str, count: int) -> Affine:
    shift = sum(c * (count - 1) for v, c in a.terms if v == variable)
    return replace(a, base=a.base + shift, terms=tuple((v, -c if v == variable else c) for v, c in a.terms))


@dataclass(frozen=True, slots=True)
class Differentiate(Pass):
    """Give every segment a backward procedure, and the module its optimizer step.

    A segment is a pure function of loop-carried values and parameters. Its backward procedure takes the gradients
    of its carried results, its residuals (forward values saved for it) and the parameters, and returns the gradients
    of its carried operands and, added up over micro-batches, of its parameters. `Train.recompute` selects the
    residuals: every value that it reads (`none`), only results of contractions and attention (`selective`), or no
    value (`full`); it recomputes the others (Chen et al., arXiv 1604.06174, section 3).

    Before: step { loop mb { call @block(x[l], w[l], x[l+1]) } }
    After:  step { loop mb { .. @block.fwd .. @block.bwd .. }  .. @block.norm ..  .. @block.update .. }
    """

    name: ClassVar[str] = "differentiate"
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.DIFFERENTIATED})

    def run(self, module: Module) -> Module:
        if mistakes := [*check_form(module, _SCALARS)]:
            raise CompileError(*mistakes)
        prepare, chain = _split_step(module)
        segments = [_segment(module, stmt) for stmt in chain.body]
        builder = _StepBuilder(module, segments)
        for segment in segments:
            builder.add_segment(segment)
        return builder.training_module(prepare, chain)


def _split_step(module: Module) -> tuple[Step, Loop]:
    """The statements before the micro-batch loop that holds the chain, and that loop (the last statement)."""
    *before, chain = module.step
    assert isinstance(chain, Loop), "a forward module ends with its micro-batch loop"
    return tuple(before), chain


def _segment(module: Module, stmt: Call | Loop) -> Segment:
    if isinstance(stmt, Call):
        return Segment(module.procedure(stmt.procedure), stmt)
    (call,) = stmt.body
    assert isinstance(call, Call)
    return Segment(module.procedure(call.procedure), call, stmt.variable, stmt.count)


class _StepBuilder:
    """Builder of the training module, segment by segment."""

    def __init__(self, module: Module, segments: list[Segment]) -> None:
        self.module = module
        self.arrays = {a.name: a for a in module.arrays}
        self.names = Names([*self.arrays, *_SCALARS])
        # Named before residuals, so that the names of gradients and moments do not depend on the model's names.
        self.weights = {
            a.name: Weight(
                a,
                self.names.of((a.name, "grad"), f"{a.name}.grad"),
                tuple(self.names.of((a.name, m), f"{a.name}.{m}") for m in moments_of(module.train)),
            )
            for a in module.arrays
            if a.kind is Kind.PARAM
        }
        for a in module.arrays:
            if a.kind is Kind.CARRIED:
                self._gradient(a.name)
        self.forward_names = {s.procedure.name for s in segments}
        self.procedures = [p for p in module.procedures if p.name not in self.forward_names]
        self.forward: list[Call | Loop] = []
        self.backward: list[Call | Loop] = []
        # Carried arrays whose gradients are added up from zero; the others' are written once, double-buffered.
        several_reads = _with_several_reads(segments, self.arrays)
        self.accumulated = several_reads | _with_unread_elements(segments, self.arrays)
        self.grads: dict[str, Segment] = {}
        self.writers: dict[str, int] = {}
        for s in segments:
            for value, ref in zip(s.procedure.inputs, s.call.args, strict=False):
                if self.arrays[ref.array].kind is Kind.PARAM and value.type.dtype.is_float:
                    self.grads.setdefault(ref.array, s)
                    # A parameter that every layer shares is read once per layer.
                    times = 1 if self.arrays[ref.array].extents else s.count
                    self.writers[ref.array] = self.writers.get(ref.array, 0) + times

    # -- one segment ------------------------------------------------------------------------------------

    def add_segment(self, s: Segment) -> None:
        inputs = dict(zip((v.name for v in s.procedure.inputs), s.call.args, strict=False))
        outputs = dict(zip(s.procedure.outputs, s.call.args[len(s.procedure.inputs) :], strict=True))
        differentiable = [v for v in s.procedure.inputs if self._has_grad(inputs[v.name].array)]
        params = {n for n, ref in inputs.items() if self.arrays[ref.array].kind is Kind.PARAM}
        differentiated = [o for o in s.procedure.outputs if self._has_part_in_loss(outputs[o])]
        primal = replace(s.procedure, outputs=tuple(differentiated))
        result = backward_procedure(primal, differentiable, params, self.module.train)
        residuals = [self._residual(s, v) for v in result.residuals]
        forward = replace(
            s.procedure,
            name=f"{s.procedure.name}{FORWARD}",
            outputs=(*s.procedure.outputs, *(Output(v) for v in result.residuals)),
        )
        self.forward.append(s.over_layers(Call(forward.name, (*s.call.args, *residuals))))
        seeds = {
            o.value.name: self._carried_grad(outputs[o]) for o in s.procedure.outputs if o.mode is Mode.WRITE
        }
        refs = {**inputs, **dict(zip((v.name for v in result.residuals), residuals, strict=True))}
        args = [refs[n] for n in result.reads] + [seeds[n] for n in result.seeds]
        args += [self._grad_ref(inputs[v.name]) for v in result.wrt]
        modes = [self._grad_mode(inputs[v.name]) for v in result.wrt]
        gradients = tuple(Output(g, m) for g, m in zip(result.grads, modes, strict=True))
        self.procedures += [forward, replace(result.procedure, outputs=gradients)]
        reversed_args = tuple(s.reversed(r) for r in args)
        self.backward.insert(0, s.over_layers(Call(result.procedure.name, reversed_args)))

    def _has_part_in_loss(self, ref: Ref) -> bool:
        return self.arrays[ref.array].kind is not Kind.STATISTIC

    def _residual(self, s: Segment, value: Value) -> Ref:
        name = self.names.of((s.procedure.name, value), f"{s.procedure.name}.{value.name}")
        extents = (s.count,) if s.variable else ()
        self.arrays[name] = Array(name, value.type, Kind.RESIDUAL, extents)
        return Ref(name, (Affine(0, ((s.variable, 1),)),) if s.variable else ())

    def _has_grad(self, array: str) -> bool:
        a = self.arrays[array]
        return a.kind in (Kind.PARAM, Kind.CARRIED) and a.type.dtype.is_float

    def _grad_ref(self, ref: Ref) -> Ref:
        """The element that holds the gradient of `ref`: of the parameter's gradient, or of the carried gradient."""
        array = self.arrays[ref.array]
        if array.kind is not Kind.PARAM:
            return self._carried_grad(ref)
        grad = self._gradient(array.name)
        grad_type = TensorType(array.type.shape, self.module.train.grads)
        relation = Relation(Role.GRADIENT, array.name)
        self.arrays.setdefault(grad, Array(grad, grad_type, Kind.GRAD, array.extents, relation=relation))
        return Ref(grad, ref.index)

    def _gradient(self, array: str) -> str:
        return self.names.of((array, "grad"), f"{array}.grad")

    def _carried_grad(self, ref: Ref) -> Ref:
        array = self.arrays[ref.array]
        grad = self._gradient(array.name)
        relation = Relation(Role.GRADIENT, array.name)
        double_buffered = bool(array.extents) and array.name not in self.accumulated
        extents = (2,) if double_buffered else array.extents
        self.arrays.setdefault(grad, Array(grad, array.type, Kind.CARRIED, extents, relation=relation))
        return Ref(grad, tuple(replace(a, modulus=2) for a in ref.index) if double_buffered else ref.index)

    def _grad_mode(self, ref: Ref) -> Mode:
        """WRITE where one call gives the whole gradient, which then needs no zeros before it; ADD elsewhere."""
        if self.arrays[ref.array].kind is Kind.PARAM:
            sole_writer = self.writers[ref.array] == 1 and self.module.train.microbatches == 1
        else:
            sole_writer = ref.array not in self.accumulated
        return Mode.WRITE if sole_writer else Mode.ADD

    # -- the whole step ---------------------------------------------------------------------------------

    def training_module(self, prepare: Step, chain: Loop) -> Module:
        accumulated = {o.array for p, call in self._bwd_calls() for o in _accumulated_refs(p, call)}
        gradients = {n: self.arrays[self._gradient(n)] for n in self.grads}
        per_step = [a for a in gradients.values() if a.name in accumulated]
        # Every accumulated array, read or not: an element that no call reads keeps the zeros as its gradient.
        per_microbatch = [
            self.arrays[g] for n in sorted(self.accumulated) if (g := self._gradient(n)) in self.arrays
        ]
        zero_per_step = self._zeroing("zero", per_step)
        zero_per_microbatch = self._zeroing("zero.carried", per_microbatch)
        self.arrays["norm2"] = Array("norm2", SQUARED_NORM, Kind.SCALAR)
        self.arrays["t"] = Array("t", TensorType((), DType.I32), Kind.SCALAR)
        self.procedures.append(_begin())
        begin = Call("begin", (Ref("t"), Ref("t"), Ref("norm2")))
        norms, updates = self._updates()
        body = replace(chain, body=(*self.forward, *zero_per_microbatch, *self.backward))
        step = (begin, *prepare, *zero_per_step, body, *norms, *updates)
        return self.module.with_(
            arrays=tuple(self.arrays.values()), procedures=tuple(self.procedures), step=step
        )

    def _bwd_calls(self) -> Iterator[tuple[Procedure, Call]]:
        by_name = {p.name: p for p in self.procedures}
        for stmt in self.backward:
            call = stmt if isinstance(stmt, Call) else stmt.body[0]
            assert isinstance(call, Call)
            yield by_name[call.procedure], call

    def _zeroing(self, name: str, arrays: list[Array]) -> list[Call | Loop]:
        """Calls that write zeros to every element of `arrays`, with one procedure for each loop length."""
        stmts: list[Call | Loop] = []
        for extents, group in _by_extents(arrays).items():
            procedure = f"{name}.{extents[0]}" if extents else name
            b = Builder()
            outs = [Output(_zeros(b, a)) for a in group]
            self.procedures.append(Procedure(procedure, (), tuple(outs), tuple(b.ops)))
            index = (Affine(0, (("l", 1),)),) if extents else ()
            call = Call(procedure, tuple(Ref(a.name, index) for a in group))
            stmts.append(Loop("l", extents[0], (call,)) if extents else call)
        return stmts

    def _updates(self) -> tuple[list[Call | Loop], list[Call | Loop]]:
        """The norm calls and the update calls, with parameters grouped by the segment that owns them."""
        norms: list[Call | Loop] = []
        updates: list[Call | Loop] = []
        owners: dict[str, tuple[Segment, list[Weight]]] = {}
        for name, segment in self.grads.items():
            # Parameters of a repeat that its layers share are updated once, beside those of each layer.
            shared = bool(segment.variable) and not self.arrays[name].extents
            owner = f"{segment.procedure.name}{'.shared' if shared else ''}"
            owners.setdefault(owner, (segment, []))[1].append(self.weights[name])
        for owner, (segment, weights) in owners.items():
            update = update_procedures(owner, weights, self.module.train)
            self.procedures += update.procedures
            for a in update.state:
                self.arrays[a.name] = a
            layered = bool(weights[0].param.extents)
            index = (Affine(0, ((segment.variable, 1),)),) if layered else ()
            for stmts, calls in ((norms, update.norm_calls(index)), (updates, (update.update_call(index),))):
                stmts += [segment.over_layers(call) if layered else call for call in calls]
        return norms, updates


def _accumulated_refs(procedure: Procedure, call: Call) -> Iterator[Ref]:
    for out, ref in zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True):
        if out.mode is Mode.ADD:
            yield ref


def _by_extents(arrays: list[Array]) -> dict[tuple[int, ...], list[Array]]:
    groups: dict[tuple[int, ...], list[Array]] = {}
    for a in arrays:
        groups.setdefault(a.extents, []).append(a)
    return groups


def _zeros(b: Builder, array: Array) -> Value:
    term = " ".join(f"i{n}" for n in range(len(array.type.shape)))
    sizes = {f"i{n}": s for n, s in enumerate(array.type.shape)}
    return b.one(
        "fill",
        [],
        f" -> {term}",
        sizes=sizes,
        dtypes=[array.type.dtype],
        attrs={"value": 0.0},
        hints=[array.name],
    )


def _begin() -> Procedure:
    """The procedure that counts the step and zeroes the gradient norm."""
    b = Builder()
    t = b.input("t", TensorType((), DType.I32))
    ticked = b.one("tick", [t], " -> ", dtypes=[DType.I32], hints=["t.next"])
    norm2 = b.one("fill", [], " -> ", dtypes=[SQUARED_NORM.dtype], attrs={"value": 0.0}, hints=["norm2"])
    return Procedure("begin", (t,), (Output(ticked), Output(norm2)), tuple(b.ops))


def _with_several_reads(segments: list[Segment], arrays: dict[str, Array]) -> frozenset[str]:
    """Carried arrays with an element that more than one dynamic call reads."""
    reads: dict[str, list[tuple[int, int]]] = {}
    several: set[str] = set()
    for s in segments:
        for _, ref in zip(s.procedure.inputs, s.call.args, strict=False):
            if arrays[ref.array].kind is not Kind.CARRIED:
                continue
            span = s.elements(ref)
            if s.count > 1 and len(span) == 1:
                several.add(ref.array)
            reads.setdefault(ref.array, []).append((span.start, span.stop))
    for name, spans in reads.items():
        spans.sort()
        if any(a[1] > b[0] for a, b in pairwise(spans)):
            several.add(name)
    return frozenset(several)


def _with_unread_elements(segments: list[Segment], arrays: dict[str, Array]) -> frozenset[str]:
    """Carried arrays with an element that some call writes and no call reads.

    Examples: the last `y` of a `repeat` that passes it from layer to layer only, or all but the last `y` of a
    `repeat` whose layers do not read it.
    """
    written: dict[str, list[range]] = {}
    read: dict[str, list[range]] = {}
    for s in segments:
        inputs = len(s.procedure.inputs)
        for refs, intervals in ((s.call.args[:inputs], read), (s.call.args[inputs:], written)):
            for ref in refs:
                if arrays[ref.array].kind is Kind.CARRIED:
                    intervals.setdefault(ref.array, []).append(s.elements(ref))
    return frozenset(n for n, writes in written.items() if not _covers(read.get(n, []), writes))


def _covers(spans: list[range], targets: list[range]) -> bool:
    """Whether the union of `spans` contains all of `targets`; compares ends alone, for layers may be many."""
    ends = {end for span in spans for end in (span.start, span.stop)}
    return all(
        any(point in span for span in spans)
        for target in targets
        for point in {target.start, *(end for end in ends if end in target)}
    )
