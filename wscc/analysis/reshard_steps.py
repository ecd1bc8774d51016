"""From one layout to another: the primitive steps, and what they cost.

A dimension is opened and closed only at its minor end, so a plan undoes the minor axes of a dimension before
its major ones and never needs to permute blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from wscc.ir.op import Op, Reshard, Value
from wscc.ir.types import Layout, Reduction


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One primitive: `dim` is gathered, scattered or sliced; `to` is where all_to_all splits instead."""

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
        while step := (
            self._reduce_scatter() or self._slice() or self._all_reduce() or self._regroup()
            or self._late_all_reduce() or self._mask()
        ):  # fmt: skip
            yield step

    def _now(self, kind: str, axis: str, **more: object) -> ReshardStep:
        layout = Layout(tuple(map(tuple, self.dims))).with_partial(self.partial)
        return ReshardStep(kind, axis, layout, **more)  # type: ignore[arg-type]

    def _fits(self, d: int) -> bool:
        """Whether what dimension `d` is split by now is a major part of what the target wants."""
        return tuple(self.dims[d]) == self.target.dims[d][: len(self.dims[d])]

    def _next(self, d: int) -> str | None:
        wanted, have = self.target.dims[d], self.dims[d]
        return wanted[len(have)] if self._fits(d) and len(have) < len(wanted) else None

    def _surplus(self) -> list[str]:
        """Axes whose partial state the target does not want."""
        return [a for a, kind in self.partial.items() if self.keep.get(a) != kind]

    def _reduce_scatter(self) -> ReshardStep | None:
        for axis in self._surplus():
            d = self.target.dim_of(axis)
            if d is not None and self._next(d) == axis and self.partial[axis] is Reduction.SUM:
                del self.partial[axis]
                self.dims[d].append(axis)
                return self._now("reduce_scatter", axis, dim=d)
        return None

    def _slice(self) -> ReshardStep | None:
        used = {a for dim in self.dims for a in dim}
        for d in range(len(self.dims)):
            axis = self._next(d)
            if axis and axis not in self.partial and axis not in used:
                self.dims[d].append(axis)
                return self._now("slice", axis, dim=d)
        return None

    def _all_reduce(self, late: bool = False) -> ReshardStep | None:
        for axis in self._surplus():
            kind = self.partial[axis]
            if late or self.target.dim_of(axis) is None or kind is not Reduction.SUM:
                del self.partial[axis]
                return self._now("all_reduce", axis, reduction=kind)
        return None

    def _late_all_reduce(self) -> ReshardStep | None:
        return self._all_reduce(late=True)

    def _regroup(self) -> ReshardStep | None:
        wrong = [d for d in range(len(self.dims)) if not self._fits(d)]
        for d in wrong:
            for e in range(len(self.dims)):
                if e != d and self._next(e) == self.dims[d][-1]:
                    axis = self.dims[d].pop()
                    self.dims[e].append(axis)
                    return self._now("all_to_all", axis, dim=d, to=e)
        if wrong:
            axis = self.dims[wrong[0]].pop()
            return self._now("all_gather", axis, dim=wrong[0])
        return None

    def _mask(self) -> ReshardStep | None:
        for axis, kind in self.keep.items():
            if axis not in self.partial:
                assert kind is Reduction.SUM, "a maximum has no neutral part to mask with"
                self.partial[axis] = kind
                return self._now("mask", axis)
        return None


def reshard(step: ReshardStep, source: Value, made: Value) -> Reshard:
    """The step as a statement."""
    return Reshard(step.kind, step.axis, source, made, step.dim, step.to, step.reduction)


def received_elements(step: ReshardStep, shape: tuple[int, ...], sizes: dict[str, int]) -> float:
    """Elements that a die receives in one primitive step (bandwidth-optimal collective)."""
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
    """Elements received per die to get from `source` to `target`."""
    return sum(received_elements(step, shape, sizes) for step in plan(source, target))


def moving(op: Op) -> list[Value]:
    """The values that travel."""
    assert op.stream is not None
    return [op.operands[i] for i in op.stream.moving_in] + [op.results[j] for j in op.stream.moving_out]
