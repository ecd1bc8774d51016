"""Plans that take a value from one layout to another in primitive reshard steps, and the elements that each step moves.

A dimension is split and joined only at its minor end, so a plan undoes the minor axes of a dimension before its major
ones and never needs to permute blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from wscc.ir.op import Op, Reshard, Value
from wscc.ir.types import Layout, Reduction
from wscc.strategy import holds_replicas, policy


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One primitive of `kind` along `axis` that ends in layout `after`: `dim` is gathered, scattered or sliced, and
    `to` is the dimension that all_to_all splits instead."""

    kind: str
    axis: str
    after: Layout
    dim: int = -1
    to: int = -1
    reduction: Reduction | None = None


def plan(source: Layout, target: Layout) -> list[ReshardStep]:
    """The steps from `source` to `target`, cheapest kinds first: reduce_scatter, slice, all_reduce,
    all_to_all, all_gather, mask."""
    return list(_Planner(source, target).steps())


class _Planner:
    def __init__(self, source: Layout, target: Layout) -> None:
        self.dims = [list(d) for d in source.dims]
        self.partial = dict(source.partial)
        self.target = target
        self.keep = dict(target.partial)

    def steps(self) -> Iterator[ReshardStep]:
        """The steps, one at a time, the cheapest kind that applies first."""
        while step := (
            self._reduce_scatter() or self._slice() or self._all_reduce() or self._regroup()
            or self._late_all_reduce() or self._mask()
        ):  # fmt: skip
            yield step

    def _step(self, kind: str, axis: str, **fields: object) -> ReshardStep:
        layout = Layout(tuple(map(tuple, self.dims))).with_partial(self.partial)
        return ReshardStep(kind, axis, layout, **fields)  # type: ignore[arg-type]

    def _is_prefix(self, d: int) -> bool:
        """Whether the axes that split dimension `d` now are the major ones of the target's."""
        return tuple(self.dims[d]) == self.target.dims[d][: len(self.dims[d])]

    def _next_axis(self, d: int) -> str | None:
        """The axis that has to split dimension `d` next, if it can be split now."""
        target, current = self.target.dims[d], self.dims[d]
        return target[len(current)] if self._is_prefix(d) and len(current) < len(target) else None

    def _unwanted_partials(self) -> list[str]:
        """Axes along which the value is partial, but the target is not (or by another reduction)."""
        return sorted((a for a, kind in self.partial.items() if self.keep.get(a) != kind), key=_rank)

    def _reduce_scatter(self) -> ReshardStep | None:
        for axis in self._unwanted_partials():
            d = self.target.dim_of(axis)
            if d is not None and self._next_axis(d) == axis and self.partial[axis] is Reduction.SUM:
                del self.partial[axis]
                self.dims[d].append(axis)
                return self._step("reduce_scatter", axis, dim=d)
        return None

    def _slice(self) -> ReshardStep | None:
        used = {a for dim in self.dims for a in dim}
        for d in range(len(self.dims)):
            axis = self._next_axis(d)
            if axis and axis not in self.partial and axis not in used:
                self.dims[d].append(axis)
                return self._step("slice", axis, dim=d)
        return None

    def _all_reduce(self, late: bool = False) -> ReshardStep | None:
        for axis in self._unwanted_partials():
            kind = self.partial[axis]
            if late or self.target.dim_of(axis) is None or kind is not Reduction.SUM:
                del self.partial[axis]
                return self._step("all_reduce", axis, reduction=kind)
        return None

    def _late_all_reduce(self) -> ReshardStep | None:
        return self._all_reduce(late=True)

    def _regroup(self) -> ReshardStep | None:
        misplaced = [d for d in range(len(self.dims)) if not self._is_prefix(d)]
        misplaced.sort(key=lambda d: _rank(self.dims[d][-1]), reverse=True)
        for d in misplaced:
            for e in range(len(self.dims)):
                if e != d and self._next_axis(e) == self.dims[d][-1]:
                    axis = self.dims[d].pop()
                    self.dims[e].append(axis)
                    return self._step("all_to_all", axis, dim=d, to=e)
        if misplaced:
            axis = self.dims[misplaced[0]].pop()
            return self._step("all_gather", axis, dim=misplaced[0])
        return None

    def _mask(self) -> ReshardStep | None:
        for axis, kind in self.keep.items():
            if axis not in self.partial:
                assert kind is Reduction.SUM, "a maximum has no neutral part to mask with"
                self.partial[axis] = kind
                return self._step("mask", axis)
        return None


def _rank(axis: str) -> tuple[bool, bool]:
    """Axes that streams are made for come first: their steps are those next to the op, which may stream along them."""
    return not policy(axis).stream, holds_replicas(axis)


def reshard(step: ReshardStep, source: Value, result: Value) -> Reshard:
    """The statement that makes `result` from `source` by this step."""
    return Reshard(step.kind, step.axis, source, result, step.dim, step.to, step.reduction)


def received_elements(step: ReshardStep, shape: tuple[int, ...], sizes: dict[str, int]) -> float:
    """Elements that a die receives in one step, by the bandwidth-optimal algorithm (Thakur et al., "Optimization of
    Collective Communication Operations in MPICH", 2005). `shape` is global, `sizes` those of the axes."""
    n = sizes[step.axis]
    local = prod(shape) / prod(sizes[a] for a in step.after.axes)
    if step.kind in ("slice", "mask"):
        return 0.0
    if step.kind == "permute":
        return local / n
    if step.kind == "all_gather":
        return local * (n - 1) / n
    if step.kind == "reduce_scatter":
        return local * (n - 1)
    if step.kind == "all_to_all":
        return local * (n - 1) / n
    return 2 * local * (n - 1) / n


def cost(source: Layout, target: Layout, shape: tuple[int, ...], sizes: dict[str, int]) -> float:
    """Elements that a die receives in all steps of the plan from `source` to `target`."""
    return sum(received_elements(step, shape, sizes) for step in plan(source, target))


def moving_values(op: Op) -> list[Value]:
    """Operands and results of a streamed op (a collective matmul) whose shards move between dies."""
    assert op.stream is not None
    return [op.operands[i] for i in op.stream.moving_in] + [op.results[j] for j in op.stream.moving_out]
