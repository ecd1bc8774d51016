"""Give every value a layout on the logical mesh, and insert the reshards and streams that this needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Level, Mode, Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import Layout
from wscc.passes.base import Fact, Pass
from wscc.passes.partition.chain import Resting, build_chain, forward_calls, seeds
from wscc.passes.partition.complete_partials import complete_arrays
from wscc.passes.partition.layouts import Assignment
from wscc.passes.partition.prices import Prices
from wscc.passes.partition.rewrite import BodyWriter, Target
from wscc.passes.partition.search import Assigned, Chain, Search, Site
from wscc.passes.partition.streams import fuse_streams
from wscc.passes.partition.zigzag import with_order
from wscc.strategy import policy, stage_axes

# Replaces the search in tests: any choice among the legal ones must give a right program.
Choosing = Callable[[Search], Assigned]


@dataclass(frozen=True, slots=True)
class Partition(Pass):
    """Split the training step over the axes of the module.

    1. Search a factor for every forward op and axis, at the prices of the wafer (`search`, `prices`).
    2. Backward and recomputed ops take the choice of their forward op: same factor names, same split.
    3. Parameters rest as their first user wants them, and sharded over storage axes.
    4. Bodies are rewritten: reshards where a value lies otherwise than an op wants it; gradients go to where
       their parameter rests, and stay partial over axes that do not split it.
    5. Arrays left partial are completed once, after their last writer.
    6. Gathers and scatters on a streaming axis fold into their op (`stream`).
    7. Sequences that attention streams under a causal mask may lie in zigzag (`zigzag`).

    Before: %y = matmul(%x, %w) {b s k, k n -> b s n} : f32[8,64,256]
    After:  %y = matmul(%x, %w) {b s k, k n -> b s n} stream(n over tatp, in 1) : f32[8/tatp,64,256]

    Fails with W201 when a degree divides nothing that its axis may split, W202 when a weight cannot be sharded.
    """

    name: ClassVar[str] = "partition"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.DIFFERENTIATED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})

    stream: bool = True

    def run(self, module: Module) -> Module:
        return self.run_with(module, _search)

    def run_with(self, module: Module, choose: Choosing) -> Module:
        """`run` with another chooser in place of the search."""
        chain = build_chain(module)
        split = seeds(module, chain)
        inside = {a: n for a, n in module.sizes.items() if a not in stage_axes(module.sizes)}
        prices = Prices.of(module.machine, module.train.compute.size)
        search = Search(chain, inside, split, prices, module.train.zero)
        assigned = {k: _in_mesh_order(v, module) for k, v in choose(search).items()}
        rewriter = _Rewriter(module, chain, assigned, split)
        sharded = complete_arrays(rewriter.run(), rewriter.owned)
        if not self.stream:
            return sharded
        return with_order(sharded.with_(procedures=tuple(map(fuse_streams, sharded.procedures))))


def _in_mesh_order(choice: dict[str, str], module: Module) -> Assignment:
    out: Assignment = {}
    for axis in module.sizes:
        if axis in choice:
            out[choice[axis]] = (*out.get(choice[axis], ()), axis)
    return out


def _search(search: Search) -> Assigned:
    assigned = search.run()
    _refuse_idle_axes(search.sizes, search.chain, assigned)
    return assigned


def _refuse_idle_axes(sizes: dict[str, int], chain: Chain, assigned: Assigned) -> None:
    """An axis that must split weights and cannot would only repeat work; the user meant something else."""
    for axis, degree in sizes.items():
        if policy(axis).splits != "weights":
            continue
        for site in chain.sites:
            if not _has_weight(site, chain) or axis in assigned[site.key]:
                continue
            name, shape = next(
                (n, v.type.shape)
                for n, v in zip(site.operands, site.op.operands, strict=True)
                if n in chain.weights
            )
            works = [
                n
                for n in range(1, degree)
                if all(_splits(s, n) for s in chain.sites if _has_weight(s, chain))
            ]
            raise fail(
                Code.DEGREE,
                f"`{axis} = {degree}` divides no dimension of `{name}` {list(shape)} that it may split",
                site.op.span,
                help=f"the nearest degree that divides every weight is `{axis} = {max(works)}`",
            )


def _has_weight(site: Site, chain: Chain) -> bool:
    return site.op.definition.has_weight and any(n in chain.weights for n in site.operands)


def _splits(site: Site, degree: int) -> bool:
    return any(site.op.rule.may_split(f) and n % degree == 0 for f, n in site.op.sizes.items())


class _Rewriter:
    """Rewrites all procedures; `layouts` is where each array lies, as far as known."""

    def __init__(
        self, module: Module, chain: Chain, assigned: dict[tuple[str, str], Assignment],
        split: dict[str, dict[str, int]],
    ) -> None:  # fmt: skip
        self.module = module
        self.assigned = assigned
        self.arrays = {a.name: a for a in module.arrays}
        self.layouts: dict[str, Layout] = {}
        # How gradients lie once they are complete, where that is not how contributions are added up.
        self.owned: dict[str, Layout] = {}
        self.done: dict[str, Procedure] = {}
        resting = Resting(chain, module.sizes, assigned, module.train.zero, module.machine.die.tile)
        for a in module.arrays:
            if a.kind is Kind.INPUT:
                self.layouts[a.name] = _seeded(a, split[a.name], module)
            elif a.kind is Kind.PARAM:
                self.layouts[a.name] = resting.layout(a.name)
            elif a.kind is Kind.SCALAR:
                self.layouts[a.name] = Layout.whole(len(a.type.shape))
        for a in module.arrays:
            if a.relation is not None and self.arrays[a.relation.array].kind is Kind.PARAM:
                rest = self.layouts[a.relation.array]
                owned = resting.owned(a.relation.array, rest)
                self.layouts[a.name] = rest if a.is_a(Role.GRADIENT) else owned
                if a.is_a(Role.GRADIENT):
                    self.owned[a.name] = owned
        # Every procedure has one static call.
        self.bindings = {c.procedure: c.args for c, _ in calls(module.step)}

    def run(self) -> Module:
        forward = [c.procedure for c, _ in forward_calls(self.module)]
        rest = [p.name for p in self.module.procedures if p.name not in forward]
        # Forward procedures fix how carried values and residuals lie; procedures that only write come last, for
        # they write whatever lies there.
        for name in forward:
            self._rewrite(name)
        # Contributions to one sum must agree on what is partial: gather all of them first, then write.
        for _ in range(2):
            for name in [
                *(n for n in rest if self._reads(n)),
                *(n for n in rest if not self._reads(n)),
                *forward,
            ]:
                self._rewrite(name)
        arrays = tuple(replace(a, type=a.type.with_layout(self.layouts[a.name])) for a in self.module.arrays)
        procedures = tuple(self.done[p.name] for p in self.module.procedures)
        return self.module.with_(level=Level.SHARDED, arrays=arrays, procedures=procedures)

    def _reads(self, name: str) -> bool:
        return bool(self.module.procedure(name).inputs)

    def _rewrite(self, name: str) -> None:
        procedure = self.module.procedure(name)
        args = self.bindings[name]
        inputs = {v.name: self._complete(ref.array) for v, ref in zip(procedure.inputs, args, strict=False)}
        out_refs = args[len(procedure.inputs) :]
        targets = [
            self._target(ref.array, o.mode) for o, ref in zip(procedure.outputs, out_refs, strict=True)
        ]
        writer = BodyWriter(
            procedure, inputs, targets, lambda op: self._assignment(name, op), self._home, self.module.sizes
        )
        made = writer.write()
        self.done[name] = made
        for out, ref in zip(made.outputs, out_refs, strict=True):
            layout = out.value.type.layout
            assert layout is not None
            self._learn(ref.array, layout)

    def _complete(self, array: str) -> Layout:
        """Readers see an array complete; what is partial is completed before they run."""
        if array in self.owned:
            return self.owned[array]
        known = self.layouts.get(array) or self._layout_of_value(array)
        assert known is not None, f"`{array}` is read before it is written"
        return known.completed()

    def _layout_of_value(self, array: str) -> Layout | None:
        """Of the value that the array is the gradient of; it lies as that does."""
        relation = self.arrays[array].relation
        return self.layouts.get(relation.array) if relation else None

    def _target(self, array: str, mode: Mode) -> Target:
        a = self.arrays[array]
        known = self.layouts.get(array)
        if known is None and a.kind is Kind.CARRIED:
            known = self._layout_of_value(array)
        sums = a.kind in (Kind.GRAD, Kind.SCALAR) and known is not None
        return Target(known, open_=sums)

    def _learn(self, array: str, layout: Layout) -> None:
        known = self.layouts.get(array)
        if known is None:
            self.layouts[array] = layout
            return
        self.layouts[array] = known.with_partial({**dict(known.partial), **dict(layout.partial)})

    def _assignment(self, name: str, op: Op) -> Assignment | None:
        procedure, _, value = op.origin.rpartition("/")
        return self.assigned.get((procedure, value) if op.origin else (name, op.results[0].name))

    def _home(self, origin: str) -> Layout | None:
        """How the forward value `procedure/value` lies."""
        name, _, value = origin.rpartition("/")
        procedure = self.module.procedure(name)
        for v, ref in zip(procedure.inputs, self.bindings[name], strict=False):
            if v.name == value:
                return self.layouts[ref.array].completed()
        for op in self.done[name].statements:
            for result in op.results:
                if result.name == value and result.type.layout is not None:
                    return result.type.layout.completed()
        return None


def _seeded(array: Array, split: dict[str, int], module: Module) -> Layout:
    dims = tuple(
        tuple(a for a in module.sizes if split.get(a) == d and policy(a).seed)
        for d in range(len(array.type.shape))
    )
    return Layout(dims)
