"""The chain of segments as the search sees it, and where parameters rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import FORWARD
from wscc.ir.op import Op
from wscc.ir.step import Call, Loop
from wscc.ir.types import Layout
from wscc.passes.partition.layouts import Assignment, can_shard, operand_layouts
from wscc.passes.partition.search import Chain, Edge, Site
from wscc.strategy import policy, store


def forward_calls(module: Module) -> Iterator[tuple[Call, Loop | None]]:
    """The calls of forward procedures in chain order, each with its loop over layers if it has one."""
    for stmt in module.step:
        for inner in stmt.body if isinstance(stmt, Loop) else ():
            call = inner.body[0] if isinstance(inner, Loop) else inner
            if isinstance(call, Call) and call.procedure.endswith(FORWARD):
                yield call, inner if isinstance(inner, Loop) else None


def build_chain(module: Module) -> Chain:
    """One name per value across segments: the array's for what crosses them, `procedure/value` inside."""
    chain = Chain()
    arrays = {a.name: a for a in module.arrays}
    for call, loop in forward_calls(module):
        _add_segment(chain, module.procedure(call.procedure), call, loop, arrays)
    return chain


def _add_segment(
    chain: Chain, procedure: Procedure, call: Call, loop: Loop | None, arrays: dict[str, Array]
) -> None:
    names = {}
    for value, ref in zip(procedure.inputs, call.args, strict=False):
        names[value.name] = ref.array
        if arrays[ref.array].kind is Kind.PARAM:
            chain.params.setdefault(ref.array, value)
            chain.weights.add(ref.array)
        elif arrays[ref.array].kind is not Kind.CARRIED:
            chain.inputs.setdefault(ref.array, value)
    outputs = zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True)
    carried = [(o.value.name, ref.array) for o, ref in outputs if arrays[ref.array].kind is Kind.CARRIED]
    times = loop.count if loop else 1
    if loop:
        entering = {ref.array for ref in call.args[: len(procedure.inputs)]}
        chain.items.append(Edge(pins=tuple(a for _, a in carried if a in entering)))
    for op in procedure.ops:
        if is_weight_op(op, {n for n, c in names.items() if c in chain.weights}):
            names[op.results[0].name] = names[op.operands[0].name]
            continue
        names.update((v.name, f"{procedure.name}/{v.name}") for v in op.results)
        chain.items.append(
            Site(
                (procedure.name, op.results[0].name),
                op,
                tuple(names[v.name] for v in op.operands),
                tuple(names[v.name] for v in op.results),
                times,
            )
        )
    closes = tuple((names[v], array) for v, array in carried if names[v] != array)
    chain.items.append(Edge(closes=closes, times=times))


def is_weight_op(op: Op, weights: set[str]) -> bool:
    """A conversion of a weight: it runs where the weight rests, before anything is gathered."""
    return op.kind == "cast" and op.operands[0].name in weights


def seeds(module: Module, chain: Chain) -> dict[str, dict[str, int]]:
    """By input array and axis, the dimension that the axis splits. Refuses degrees that do not divide."""
    inputs = [a for a in module.arrays if a.kind is Kind.INPUT]
    chosen: dict[str, dict[str, int]] = {a.name: {} for a in inputs}
    for axis, degree in module.axes:
        dims = policy(axis).seed
        if not dims or not inputs:
            continue
        fitting = next(
            (d for d in dims if all(_divides(a, d, degree, chosen[a.name], module) for a in inputs)), None
        )
        if fitting is None:
            raise _no_seed(axis, degree, inputs[0], chosen[inputs[0].name], module)
        for a in inputs:
            chosen[a.name][axis] = fitting
    return {n: chosen.get(n, {}) for n in {*chain.inputs, *chosen}}


def _divides(array: Array, dim: int, degree: int, taken: dict[str, int], module: Module) -> bool:
    if dim >= len(array.type.shape):
        return False
    split = prod(module.sizes[a] for a, d in taken.items() if d == dim)
    return array.type.shape[dim] % (split * degree) == 0


def _no_seed(axis: str, degree: int, array: Array, taken: dict[str, int], module: Module) -> Exception:
    names = ("the batch", "the sequence")
    rows = []
    best = 1
    for dim in policy(axis).seed:
        left = array.type.shape[dim] // prod(module.sizes[a] for a, d in taken.items() if d == dim)
        rows.append(f"{names[dim]} of {left}")
        best = max(best, *(n for n in range(1, degree + 1) if left % n == 0))
    return fail(
        Code.DEGREE,
        f"`{axis} = {degree}` does not divide {' or '.join(rows)} per die",
        array.span,
        help=f"the nearest degree that works is `{axis} = {best}`",
    )


# Empty parts of tiles, up to so much, are cheaper than adding up results chunk by chunk.
_RAGGED: Final = 0.05


@dataclass(frozen=True, slots=True)
class Resting:
    """Decides how parameters lie between steps, on dies whose matrix units have a side of `tile`."""

    chain: Chain
    sizes: dict[str, int]
    assigned: dict[tuple[str, str], Assignment]
    zero: int = 0
    tile: int = 1

    def owned(self, name: str, rest: Layout) -> Layout:
        """How what the optimizer keeps of a parameter lies, and the gradient that it reads: as the parameter
        itself, and split further over axes that share out its state, in the first dimension that divides."""
        shape = self.chain.params[name].type.shape
        for axis in self.sizes:
            if store(axis, self.zero) != "state" or axis in rest.axes:
                continue
            for d, n in enumerate(shape):
                if n % (prod(self.sizes[a] for a in rest.dims[d]) * self.sizes[axis]) == 0:
                    rest = rest.closed(d, axis)
                    break
        return rest

    def layout(self, name: str) -> Layout:
        """As its first user wants it, and split further over storage axes if it is a matrix or table."""
        users = [(s, i) for s in self.chain.sites for i, n in enumerate(s.operands) if n == name]
        site, i = users[0]
        layout = operand_layouts(site.op, self.assigned[site.key])[i].completed()
        if not any(s.op.definition.has_weight for s, _ in users):
            return layout
        # Streaming axes first: what is gathered whole, at the minor end, is gathered before the stream starts.
        axes = sorted(self.sizes, key=lambda a: not policy(a).stream)
        axes = [a for a in axes if store(a, self.zero) == "shard" and a not in layout.axes]
        for i, axis in enumerate(axes):
            layout = self._sharded(name, layout, axis, axes[i + 1 :], users)
        return layout

    def _sharded(
        self, name: str, layout: Layout, axis: str, rest: list[str], users: list[tuple[Site, int]]
    ) -> Layout:
        """Split further over `axis`, so that the axes of `rest` still find their dimensions."""
        shape = self.chain.params[name].type.shape
        left = [n // prod(self.sizes[a] for a in dim) for n, dim in zip(shape, layout.dims, strict=True)]
        degree, others = self.sizes[axis], [self.sizes[a] for a in rest]
        fitting = [d for d, n in enumerate(left) if n % degree == 0]
        roomy = [
            d
            for d in fitting
            if can_shard([n // degree if e == d else n for e, n in enumerate(left)], others)
        ]
        if not fitting:
            raise fail(
                Code.UNEVEN,
                f"no dimension of `{name}` {list(shape)} divides by `{axis} = {degree}`"
                + (f" beside {' '.join(layout.axes)}" if layout.axes else ""),
                help=f"choose `{axis}` so that it divides one of {', '.join(map(str, shape))}",
            )
        streams = {d for d in fitting if any(policy(a).stream for a in layout.dims[d])}
        if policy(axis).stream:
            best = min(
                roomy or fitting,
                key=lambda d: (self._is_ragged(left[d] // degree), _stream_price(users, d), -shape[d], d),
            )
        else:
            best = min(roomy or fitting, key=lambda d: (d not in streams, d))
        return layout.closed(best, axis)

    def _is_ragged(self, chunk: int) -> bool:
        """Whether tiles are far from full where a chunk is one side of a GEMM."""
        return -(-chunk // self.tile) * self.tile > (1 + _RAGGED) * chunk


def _stream_price(users: list[tuple[Site, int]], dim: int) -> tuple[bool, int, int]:
    """What it costs to stream a weight in chunks of one dimension: results (forward, and of the gradient of
    the other operand) that must be added up chunk by chunk, and in how many pieces a chunk's GEMM falls."""
    added, pieces = 0, 1
    for site, i in users:
        rule = site.op.rule
        factor = rule.ins[i][dim]
        others = [(v, t) for j, (v, t) in enumerate(zip(site.op.operands, rule.ins, strict=True)) if j != i]
        ends = [*zip(site.op.results, rule.outs, strict=True), *others]
        added += sum(v.type.elements for v, t in ends if factor not in t and v.type.dtype.is_float)
        pieces = max(pieces, _pieces(rule.ins[i], dim, set(rule.outs[0]), site.op.sizes))
    return pieces > 4, added, pieces


def _pieces(term: tuple[str, ...], dim: int, out: set[str], sizes: dict[str, int]) -> int:
    """Factors before `dim` on its side of the GEMM: they cannot merge with a slice of it."""
    return prod(sizes[f] for f in term[:dim] if (f in out) == (term[dim] in out))
