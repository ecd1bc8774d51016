"""Rewrite one procedure with layouts: every op in its assignment, reshards where a value lies otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wscc.analysis.reshard_steps import cost, plan, reshard
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import GraphStmt, Op, Value
from wscc.ir.types import Layout, Reduction
from wscc.passes.partition.layouts import (
    PARTIAL,
    Assignment,
    following,
    operand_layouts,
    passed,
    restricted,
    result_layouts,
)
from wscc.strategy import policy


@dataclass(frozen=True, slots=True)
class Target:
    """Where an output must lie. `open_`: partial sums over axes that split nothing may stay, beside those of
    `layout`; `native`: it may stay as the op left it, but complete."""

    layout: Layout | None
    open_: bool = False


# The assignment of the forward op that an op belongs to; None where it has no origin.
Origins = Callable[[Op], Assignment | None]
Homes = Callable[[str], Layout | None]


class BodyWriter:
    """Builds the sharded body of one procedure."""

    def __init__(
        self,
        procedure: Procedure,
        inputs: dict[str, Layout],
        targets: list[Target],
        assignment: Origins,
        home: Homes,
        sizes: dict[str, int],
    ) -> None:
        self.procedure = procedure
        self.sizes = sizes
        self.body: list[GraphStmt] = []
        self._assignment = assignment
        self._home = home
        self._targets = targets
        self._names: set[str] = {v.name for v in procedure.inputs}
        self._names |= {v.name for op in procedure.ops for v in op.results}
        # Every place of a value, the native one first; a place that is gathered again on each use is absent.
        self._places: dict[str, list[Value]] = {
            v.name: [Value(v.name, v.type.with_layout(inputs[v.name]))] for v in procedure.inputs
        }

    def write(self) -> Procedure:
        wanted = {o.value.name: t.layout for o, t in zip(self.procedure.outputs, self._targets, strict=True)}
        for op in self.procedure.ops:
            self._op(op, wanted)
        outputs = tuple(
            Output(self._output(o, t), o.mode)
            for o, t in zip(self.procedure.outputs, self._targets, strict=True)
        )
        inputs = tuple(self._places[v.name][0] for v in self.procedure.inputs)
        return replace(self.procedure, inputs=inputs, outputs=outputs, body=tuple(self.body))

    # -- ops --------------------------------------------------------------------------------------------

    def _op(self, op: Op, wanted: dict[str, Layout | None]) -> None:
        natives = [self._places[v.name][0].type.layout or Layout(()) for v in op.operands]
        if op.kind == "partial_sum":
            needs, gives = self._gather_sum(op, natives)
        else:
            needs, gives = self._layouts(op, natives, wanted)
        operands = tuple(self.get(v.name, lay) for v, lay in zip(op.operands, needs, strict=True))
        results = tuple(
            Value(v.name, v.type.with_layout(lay)) for v, lay in zip(op.results, gives, strict=True)
        )
        self.body.append(replace(op, operands=operands, results=results))
        self._places.update((v.name, [v]) for v in results)

    def _layouts(
        self, op: Op, natives: list[Layout], wanted: dict[str, Layout | None]
    ) -> tuple[list[Layout], list[Layout]]:
        known = self._assignment(op)
        if known is None and not op.operands:
            target = wanted.get(op.results[0].name) or Layout.whole(len(op.results[0].type.shape))
            # Zero is a part of any sum of zeros; anything else must not be added up twice.
            return [], [target if op.attr("value") == 0.0 else target.completed()]
        assignment = dict(restricted(op, known)) if known is not None else following(op, natives)
        taken = {a for axes in assignment.values() for a in axes}
        passing = {*passed(op, natives, taken)}
        if known is not None and not op.origin:
            # The search let partial sums through a forward op; its gradients pass them only if they are some.
            passing |= {*known.get(PARTIAL, ())}
        if passing:
            assignment[PARTIAL] = tuple(sorted(passing))
        return operand_layouts(op, assignment), result_layouts(op, assignment)

    def _gather_sum(self, op: Op, natives: list[Layout]) -> tuple[list[Layout], list[Layout]]:
        """A sum of gradients lies where its value lies, and stays partial over axes that split nothing."""
        home = (self._home(op.origin) if op.origin else None) or natives[0]
        dims = natives[0].dims if len({n.dims for n in natives}) == 1 else home.dims
        split = {a for d in dims for a in d}
        partial = {a: kind for n in natives for a, kind in n.partial if a not in split}
        layout = Layout(dims).with_partial(partial)
        return [layout] * len(natives), [layout]

    # -- places -----------------------------------------------------------------------------------------

    def get(self, name: str, layout: Layout) -> Value:
        """The value in the layout, resharded from the cheapest place that it has."""
        places = self._places[name]
        for place in places:
            if place.type.layout == layout:
                return place
        source = min(places, key=lambda p: cost(p.type.layout or layout, layout, p.type.shape, self.sizes))
        assert source.type.layout is not None
        keep = True
        for step in plan(source.type.layout, layout):
            made = Value(self._fresh(f"{name}.{step.axis}"), source.type.with_layout(step.after))
            self.body.append(reshard(step, source, made))
            # What can travel in chunks is gathered for each use, so that no die ever holds all of it.
            keep = keep and not (step.kind == "all_gather" and policy(step.axis).stream)
            if keep:
                places.append(made)
            source = made
        return source

    def _fresh(self, hint: str) -> str:
        name = fresh(hint, self._names)
        self._names.add(name)
        return name

    def _output(self, output: Output, target: Target) -> Value:
        places = self._places[output.value.name]
        native = places[0].type.layout
        assert native is not None
        if target.layout is None:
            whole = [p for p in places if p.type.layout is not None and not p.type.layout.partial]
            return whole[0] if whole else self.get(output.value.name, native.completed())
        layout = target.layout
        if target.open_:
            split = {a for d in layout.dims for a in d}
            kept = {a: k for a, k in native.partial if a not in split and k is Reduction.SUM}
            layout = layout.with_partial({**dict(layout.partial), **kept})
        assert output.mode is Mode.ADD or not layout.partial or target.open_ or layout == native
        return self.get(output.value.name, layout)
