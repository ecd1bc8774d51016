"""The pass that gives every value a layout on the logical mesh, with the reshards and streams that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from wscc.diagnostics import Code, CompileError, fail
from wscc.ir.module import Module
from wscc.passes.base import Fact, Pass
from wscc.passes.partition.chain import Chain, OpInstance, build_chain, lower_degrees, seeds
from wscc.passes.partition.complete_partials import complete_arrays
from wscc.passes.partition.expert_axes import check_experts
from wscc.passes.partition.layouts import Assignment
from wscc.passes.partition.module_writer import ModuleWriter
from wscc.passes.partition.prices import Prices
from wscc.passes.partition.search import Assigned, Search
from wscc.passes.partition.streams import fuse_streams
from wscc.passes.partition.zigzag import with_zigzag_order
from wscc.strategy import Degrees, nesting_order, policy, stage_axes

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

    @staticmethod
    def check(module: Module) -> None:
        """Fail with W201 where some degree divides nothing, which is known before any factor is chosen."""
        _checked(module)

    def run_with(self, module: Module, choose: Chooser) -> Module:
        """The module partitioned by the choices of `choose` in place of those of the search."""
        chain, split = _checked(module)
        inside = {a: n for a, n in module.sizes.items() if a not in stage_axes(module.sizes)}
        prices = Prices.of(module.machine, module.train.compute.size, module.die)
        search = Search(chain, inside, split, prices, module.train.zero)
        assigned = {k: _nested(v) for k, v in choose(search).items()}
        writer = ModuleWriter(module, chain, assigned, split)
        sharded = complete_arrays(writer.run(), writer.complete_layouts)
        if not self.stream:
            return sharded
        return with_zigzag_order(sharded.with_(procedures=tuple(map(fuse_streams, sharded.procedures))))


def _checked(module: Module) -> tuple[Chain, dict[str, dict[str, int]]]:
    """The chain of a module with what splits its inputs, if each degree divides something. Fails with W201."""
    chain = build_chain(module)
    split = seeds(module, chain)
    _refuse_indivisible(module, chain)
    check_experts(module, chain)
    return chain, split


def _nested(choice: dict[str, str]) -> Assignment:
    """By factor, the axes that split it, in their nesting order; `choice` has the factor of each axis."""
    assignment: Assignment = {}
    for axis in nesting_order(choice):
        assignment[choice[axis]] = (*assignment.get(choice[axis], ()), axis)
    return assignment


def _choose(search: Search) -> Assigned:
    assigned = search.run()
    for axis in _weight_axes(search.sizes):
        for instance in search.chain.instances:
            if _has_weight(instance, search.chain) and axis not in assigned[instance.key]:
                raise _idle(axis, instance, search.chain, tuple(search.sizes.items()))
    return assigned


def _weight_axes(sizes: Iterable[str]) -> list[str]:
    """The axes that split weights: one that cannot split a weight would only repeat work."""
    return [axis for axis in sizes if policy(axis).splits == "weights"]


def _refuse_indivisible(module: Module, chain: Chain) -> None:
    """Fail with W201 where no assignment can split a weight: the search, which takes long, need not be asked."""
    for axis in _weight_axes(module.sizes):
        for instance in chain.instances:
            if _has_weight(instance, chain) and not _splits(instance, module.sizes[axis]):
                raise _idle(axis, instance, chain, module.axes)


def _idle(axis: str, instance: OpInstance, chain: Chain, axes: Degrees) -> CompileError:
    """The W201 of an axis that cannot split the weight of an instance."""
    name, shape = next(
        (n, v.type.shape)
        for n, v in zip(instance.operands, instance.op.operands, strict=True)
        if n in chain.weights
    )
    degree = dict(axes)[axis]
    return fail(
        Code.DEGREE,
        f"`{axis} = {degree}` divides no dimension of `{name}` {chain.shape_words(name, shape)} that it may split",
        instance.op.span,
        candidates=[
            change
            for change in lower_degrees(axes, axis, instance.op.sizes.values())
            if all(
                _splits(other, dict(change.parallel or ()).get(axis, 1))
                for other in chain.instances
                if _has_weight(other, chain)
            )
        ],
    )


def _has_weight(instance: OpInstance, chain: Chain) -> bool:
    return instance.op.definition.has_weight and any(n in chain.weights for n in instance.operands)


def _splits(instance: OpInstance, degree: int) -> bool:
    return any(instance.op.rule.may_split(f) and n % degree == 0 for f, n in instance.op.sizes.items())
