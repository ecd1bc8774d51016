"""The sharded form of a procedure: ops in their assignments, and reshards where a value has another layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from wscc.analysis.reshard_steps import cost, plan, reshard
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import GraphStmt, Op, Value
from wscc.ir.types import Layout, Reduction
from wscc.passes.partition.layouts import (
    PARTIAL,
    Assignment,
    operand_layouts,
    passing_axes,
    propagated,
    restricted,
    result_layouts,
)
from wscc.strategy import policy


@dataclass(frozen=True, slots=True)
class Target:
    """The layout that an output must have; None: that of its op, but without partial sums, or that in which all its
    readers read it if shards are as large: what is saved is saved for the gradients of those.

    With `open_`, partial sums over axes that split nothing may stay, beside those of `layout`.
    """

    layout: Layout | None
    open_: bool = False


# The assignment of an op, which is that of its forward op; None where it has none.
Assignments = Callable[[Op], Assignment | None]
ForwardLayouts = Callable[[str], Layout | None]


class BodyWriter:
    """Builds the sharded body of one procedure."""

    def __init__(
        self,
        procedure: Procedure,
        inputs: dict[str, Layout],
        targets: list[Target],
        assignment: Assignments,
        forward_layout: ForwardLayouts,
        sizes: dict[str, int],
    ) -> None:
        self.procedure = procedure
        self.sizes = sizes
        self.body: list[GraphStmt] = []
        self._assignment = assignment
        self._forward_layout = forward_layout
        self._targets = targets
        self._read: dict[str, set[Layout]] = {}
        self._names: set[str] = {v.name for v in procedure.inputs}
        self._names |= {v.name for op in procedure.ops for v in op.results}
        # The copies of each value, the first one that of its op; without those that are gathered again for each use.
        self._copies: dict[str, list[Value]] = {
            v.name: [Value(v.name, v.type.with_layout(inputs[v.name]))] for v in procedure.inputs
        }

    def write(self) -> Procedure:
        target_layouts = {
            o.value.name: t.layout for o, t in zip(self.procedure.outputs, self._targets, strict=True)
        }
        for op in self.procedure.ops:
            self._shard_op(op, target_layouts)
        outputs = tuple(
            Output(self._output(o, t), o.mode)
            for o, t in zip(self.procedure.outputs, self._targets, strict=True)
        )
        inputs = tuple(self._copies[v.name][0] for v in self.procedure.inputs)
        return replace(self.procedure, inputs=inputs, outputs=outputs, body=tuple(self.body))

    # -- ops --------------------------------------------------------------------------------------------

    def _shard_op(self, op: Op, target_layouts: dict[str, Layout | None]) -> None:
        natives = [self._copies[v.name][0].type.layout or Layout(()) for v in op.operands]
        if op.kind == "partial_sum":
            needs, gives = self._gradient_sum_layouts(op, natives)
        else:
            needs, gives = self._layouts(op, natives, target_layouts)
        for v, lay in zip(op.operands, needs, strict=True):
            self._read.setdefault(v.name, set()).add(lay)
        operands = tuple(self.resharded(v.name, lay) for v, lay in zip(op.operands, needs, strict=True))
        results = tuple(
            Value(v.name, v.type.with_layout(lay)) for v, lay in zip(op.results, gives, strict=True)
        )
        self.body.append(replace(op, operands=operands, results=results))
        self._copies.update((v.name, [v]) for v in results)

    def _layouts(
        self, op: Op, natives: list[Layout], target_layouts: dict[str, Layout | None]
    ) -> tuple[list[Layout], list[Layout]]:
        forward = self._assignment(op)
        if forward is None and not op.operands:
            target = target_layouts.get(op.results[0].name) or Layout.whole(len(op.results[0].type.shape))
            # Zeros may stand for partial sums; any other value must not be added up twice.
            return [], [target if op.attr("value") == 0.0 else target.completed()]
        assignment = dict(restricted(op, forward)) if forward is not None else propagated(op, natives)
        assigned_axes = {a for axes in assignment.values() for a in axes}
        passing = {*passing_axes(op, natives, assigned_axes)}
        if forward is not None and not op.origin:
            # Only a forward op: gradients are partial only where the operands of their op are.
            passing |= {*forward.get(PARTIAL, ())}
        if passing:
            assignment[PARTIAL] = tuple(sorted(passing))
        return operand_layouts(op, assignment), result_layouts(op, assignment)

    def _gradient_sum_layouts(self, op: Op, natives: list[Layout]) -> tuple[list[Layout], list[Layout]]:
        """Layouts of a sum of gradients: that of its value, and partial over the axes that split no dimension."""
        value_layout = (self._forward_layout(op.origin) if op.origin else None) or natives[0]
        dims = natives[0].dims if len({n.dims for n in natives}) == 1 else value_layout.dims
        split = {a for d in dims for a in d}
        partial = {a: kind for n in natives for a, kind in n.partial if a not in split}
        layout = Layout(dims).with_partial(partial)
        return [layout] * len(natives), [layout]

    # -- copies -----------------------------------------------------------------------------------------

    def resharded(self, name: str, layout: Layout) -> Value:
        """The value in `layout`, resharded from the cheapest of its copies."""
        copies = self._copies[name]
        for copy in copies:
            if copy.type.layout == layout:
                return copy
        source = min(copies, key=lambda p: cost(p.type.layout or layout, layout, p.type.shape, self.sizes))
        assert source.type.layout is not None
        reusable = True
        for step in plan(source.type.layout, layout):
            result = Value(self._fresh(f"{name}.{step.axis}"), source.type.with_layout(step.after))
            self.body.append(reshard(step, source, result))
            # A value that can stream is gathered for each use, so that no die ever holds all of it.
            reusable = reusable and not (step.kind == "all_gather" and policy(step.axis).stream)
            if reusable:
                copies.append(result)
            source = result
        return source

    def _fresh(self, hint: str) -> str:
        name = fresh(hint, self._names)
        self._names.add(name)
        return name

    def _as_read(self, name: str, copies: list[Value]) -> Value | None:
        """The copy that all readers of a value read, if its shards are as large as those of the first."""
        layouts = self._read.get(name, set())
        for copy in copies if len(layouts) == 1 else ():
            if copy.type.layout in layouts and self._shards(copy) == self._shards(copies[0]):
                return copy
        return None

    def _shards(self, value: Value) -> int:
        assert value.type.layout is not None
        return prod(self.sizes[a] for dim in value.type.layout.dims for a in dim)

    def _output(self, output: Output, target: Target) -> Value:
        copies = self._copies[output.value.name]
        native = copies[0].type.layout
        assert native is not None
        if target.layout is None:
            complete = [p for p in copies if p.type.layout is not None and not p.type.layout.partial]
            if as_read := self._as_read(output.value.name, complete):
                return as_read
            return complete[0] if complete else self.resharded(output.value.name, native.completed())
        layout = target.layout
        if target.open_:
            split = {a for d in layout.dims for a in d}
            partial = {a: k for a, k in native.partial if a not in split and k is Reduction.SUM}
            layout = layout.with_partial({**dict(layout.partial), **partial})
        assert output.mode is Mode.ADD or not layout.partial or target.open_ or layout == native
        return self.resharded(output.value.name, layout)
