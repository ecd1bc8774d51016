"""The pass that gives every value a layout on the logical mesh, with the reshards and streams that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from wscc.diagnostics import Code, fail
from wscc.ir.module import Module
from wscc.passes.base import Fact, Pass
from wscc.passes.partition.chain import Chain, OpInstance, build_chain, seeds
from wscc.passes.partition.complete_partials import complete_arrays
from wscc.passes.partition.layouts import Assignment
from wscc.passes.partition.module_writer import ModuleWriter
from wscc.passes.partition.prices import Prices
from wscc.passes.partition.search import Assigned, Search
from wscc.passes.partition.streams import fuse_streams
from wscc.passes.partition.zigzag import with_zigzag_order
from wscc.strategy import nesting_order, policy, stage_axes

# A replacement of the search in tests: any legal choice must give a right program.
Chooser = Callable[[Search], Assigned]


@dataclass(frozen=True, slots=True)
class Partition(Pass):
    """Split the training step over the axes of the module.

    1. A beam search chooses a factor for every forward op and axis, at the prices of the wafer.
    2. Backward and recomputed ops take the choice of their forward op: same factor names, same split.
    3. The storage sharding of a parameter is that of its first user, split further over storage axes.
    4. Reshards stand where a value has another sharding than an op requires; gradients are resharded to their
       parameter, and stay partial sums over the axes that do not split it.
    5. Arrays that hold partial sums are completed once, after their last writer.
    6. Gathers and scatters on a streaming axis fold into their op (`stream`: collective matmul).
    7. Sequences that attention streams under a causal mask are in zigzag order where that takes less time.

    Before: %y = matmul(%x, %w) {b s k, k n -> b s n} : f32[8,64,256]
    After:  %y = matmul(%x, %w) {b s k, k n -> b s n} stream(n over tatp, in 1) : f32[8/tatp,64,256]

    Fails with W201 when a degree divides nothing that its axis may split, W202 when a weight cannot be sharded.
    """

    name: ClassVar[str] = "partition"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.DIFFERENTIATED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})

    stream: bool = True

    def run(self, module: Module) -> Module:
        return self.run_with(module, _choose)

    def run_with(self, module: Module, choose: Chooser) -> Module:
        """The module partitioned by the choices of `choose` in place of those of the search."""
        chain = build_chain(module)
        split = seeds(module, chain)
        inside = {a: n for a, n in module.sizes.items() if a not in stage_axes(module.sizes)}
        prices = Prices.of(module.machine, module.train.compute.size)
        search = Search(chain, inside, split, prices, module.train.zero)
        assigned = {k: _nested(v) for k, v in choose(search).items()}
        writer = ModuleWriter(module, chain, assigned, split)
        sharded = complete_arrays(writer.run(), writer.complete_layouts)
        if not self.stream:
            return sharded
        return with_zigzag_order(sharded.with_(procedures=tuple(map(fuse_streams, sharded.procedures))))


def _nested(choice: dict[str, str]) -> Assignment:
    """By factor, the axes that split it, in their nesting order; `choice` has the factor of each axis."""
    assignment: Assignment = {}
    for axis in nesting_order(choice):
        assignment[choice[axis]] = (*assignment.get(choice[axis], ()), axis)
    return assignment


def _choose(search: Search) -> Assigned:
    assigned = search.run()
    _refuse_idle_axes(search.sizes, search.chain, assigned)
    return assigned


def _refuse_idle_axes(sizes: dict[str, int], chain: Chain, assigned: Assigned) -> None:
    """Fail with W201 where an axis that splits weights cannot split one: it would only repeat work."""
    for axis, degree in sizes.items():
        if policy(axis).splits != "weights":
            continue
        for instance in chain.instances:
            if not _has_weight(instance, chain) or axis in assigned[instance.key]:
                continue
            name, shape = next(
                (n, v.type.shape)
                for n, v in zip(instance.operands, instance.op.operands, strict=True)
                if n in chain.weights
            )
            legal_degrees = [
                n
                for n in range(1, degree)
                if all(_splits(other, n) for other in chain.instances if _has_weight(other, chain))
            ]
            raise fail(
                Code.DEGREE,
                f"`{axis} = {degree}` divides no dimension of `{name}` {list(shape)} that it may split",
                instance.op.span,
                help=f"the nearest degree that divides every weight is `{axis} = {max(legal_degrees)}`",
            )


def _has_weight(instance: OpInstance, chain: Chain) -> bool:
    return instance.op.definition.has_weight and any(n in chain.weights for n in instance.operands)


def _splits(instance: OpInstance, degree: int) -> bool:
    return any(instance.op.rule.may_split(f) and n % degree == 0 for f, n in instance.op.sizes.items())
