"""The sharded form of a module: layouts of all arrays, and all procedures rewritten with them."""

from __future__ import annotations

from dataclasses import replace

from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Level, Mode, Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import Layout
from wscc.passes.partition.body_writer import BodyWriter, Target
from wscc.passes.partition.chain import Chain, forward_calls
from wscc.passes.partition.layouts import Assignment
from wscc.passes.partition.storage_sharding import StorageSharding
from wscc.strategy import nesting_order, policy


class ModuleWriter:
    """Writer of the sharded module; `layouts` holds the layout of each array that it has determined."""

    def __init__(
        self, module: Module, chain: Chain, assigned: dict[tuple[str, str], Assignment],
        split: dict[str, dict[str, int]],
    ) -> None:  # fmt: skip
        self.module = module
        self.assigned = assigned
        self.arrays = {a.name: a for a in module.arrays}
        self.layouts: dict[str, Layout] = {}
        # Layouts of complete gradients, which may differ from those in which contributions are added up.
        self.complete_layouts: dict[str, Layout] = {}
        self.sharded: dict[str, Procedure] = {}
        storage = StorageSharding(chain, module.sizes, assigned, module.train.zero, module.die.tile)
        for a in module.arrays:
            if a.kind is Kind.INPUT:
                self.layouts[a.name] = _input_layout(a, split[a.name], module)
            elif a.kind is Kind.PARAM:
                self.layouts[a.name] = storage.layout(a.name)
            elif a.kind in (Kind.SCALAR, Kind.STATISTIC, Kind.EDGES):
                self.layouts[a.name] = Layout.whole(len(a.type.shape))
        self._add_gradients_and_moments(storage)
        # Every procedure has one static call.
        self.bindings = {c.procedure: c.args for c, _ in calls(module.step)}

    def _add_gradients_and_moments(self, storage: StorageSharding) -> None:
        for a in self.module.arrays:
            if a.relation is None or self.arrays[a.relation.array].kind is not Kind.PARAM:
                continue
            layout = self.layouts[a.relation.array]
            optimizer_layout = storage.optimizer_layout(a.relation.array, layout)
            self.layouts[a.name] = layout if a.is_a(Role.GRADIENT) else optimizer_layout
            if a.is_a(Role.GRADIENT):
                self.complete_layouts[a.name] = optimizer_layout

    def run(self) -> Module:
        """The module at level `sharded`, with arrays that may hold partial sums."""
        forward = [c.procedure for c, _ in forward_calls(self.module)]
        others = [p.name for p in self.module.procedures if p.name not in forward]
        others = [*(n for n in others if self._reads(n)), *(n for n in others if not self._reads(n))]
        # Forward procedures fix the layouts of carried values and residuals; procedures that only write come last,
        # since they write in the layout of the array.
        for name in forward:
            self._rewrite(name)
        # Contributions to one sum must agree on its partial axes: the first turn collects them, the second writes.
        for _ in range(2):
            for name in [*others, *forward]:
                self._rewrite(name)
        arrays = tuple(replace(a, type=a.type.with_layout(self.layouts[a.name])) for a in self.module.arrays)
        procedures = tuple(self.sharded[p.name] for p in self.module.procedures)
        return self.module.with_(level=Level.SHARDED, arrays=arrays, procedures=procedures)

    def _reads(self, name: str) -> bool:
        return bool(self.module.procedure(name).inputs)

    def _rewrite(self, name: str) -> None:
        procedure = self.module.procedure(name)
        args = self.bindings[name]
        inputs = {
            v.name: self._read_layout(ref.array) for v, ref in zip(procedure.inputs, args, strict=False)
        }
        out_refs = args[len(procedure.inputs) :]
        targets = [
            self._target(ref.array, o.mode) for o, ref in zip(procedure.outputs, out_refs, strict=True)
        ]
        writer = BodyWriter(
            procedure,
            inputs,
            targets,
            lambda op: self._assignment(name, op),
            self._forward_layout,
            self.module.sizes,
        )
        rewritten = writer.write()
        self.sharded[name] = rewritten
        for out, ref in zip(rewritten.outputs, out_refs, strict=True):
            layout = out.value.type.layout
            assert layout is not None
            self._record(ref.array, layout)

    def _read_layout(self, array: str) -> Layout:
        """The layout in which procedures read an array: complete, since partial sums are completed before."""
        if array in self.complete_layouts:
            return self.complete_layouts[array]
        layout = self.layouts.get(array) or self._related_layout(array)
        assert layout is not None, f"`{array}` is read before it is written"
        return layout.completed()

    def _related_layout(self, array: str) -> Layout | None:
        """The layout of the array to which the array is related (that of the value, for a gradient)."""
        relation = self.arrays[array].relation
        return self.layouts.get(relation.array) if relation else None

    def _target(self, array: str, mode: Mode) -> Target:
        a = self.arrays[array]
        layout = self.layouts.get(array)
        if layout is None and a.kind is Kind.CARRIED:
            layout = self._related_layout(array)
        sums = a.kind in (Kind.GRAD, Kind.SCALAR, Kind.STATISTIC) and layout is not None
        return Target(layout, open_=sums)

    def _record(self, array: str, layout: Layout) -> None:
        recorded = self.layouts.get(array)
        if recorded is None:
            self.layouts[array] = layout
            return
        self.layouts[array] = recorded.with_partial({**dict(recorded.partial), **dict(layout.partial)})

    def _assignment(self, name: str, op: Op) -> Assignment | None:
        procedure, _, value = op.origin.rpartition("/")
        return self.assigned.get((procedure, value) if op.origin else (name, op.results[0].name))

    def _forward_layout(self, origin: str) -> Layout | None:
        """The layout of the forward value `procedure/value`; None where it has none."""
        name, _, value = origin.rpartition("/")
        procedure = self.module.procedure(name)
        for v, ref in zip(procedure.inputs, self.bindings[name], strict=False):
            if v.name == value:
                return self.layouts[ref.array].completed()
        for op in self.sharded[name].statements:
            for result in op.results:
                if result.name == value and result.type.layout is not None:
                    return result.type.layout.completed()
        return None


def _input_layout(array: Array, split_dims: dict[str, int], module: Module) -> Layout:
    dims = tuple(
        tuple(a for a in nesting_order(module.sizes) if split_dims.get(a) == d and policy(a).seed)
        for d in range(len(array.type.shape))
    )
    return Layout(dims)
