"""The chain of forward ops that the search walks, and the dimensions of inputs that axes split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

from wscc.analysis.sequence_dims import makes_positions, token_dims
from wscc.diagnostics import Code, Proposal, fail
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import FORWARD
from wscc.ir.op import Op, Value
from wscc.ir.step import Call, Loop
from wscc.strategy import PADS, SEQUENCE, Degrees, divisors, policy, with_degree


@dataclass(frozen=True, slots=True)
class OpInstance:
    """An instance of an op in the chain, which runs `times` times a step.

    `key` is (procedure, first result); `operands` and `results` are names that hold over all segments.
    """

    key: tuple[str, str]
    op: Op
    operands: tuple[str, ...]
    results: tuple[str, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The entry to a repeat, or the end of a segment, where values change names.

    On entry to a repeat, `pins` names the loop-carried values whose sharding is fixed from there on. At the end of a
    segment each (inner, outer) of `renames` makes the inner value the loop-carried value `outer`, in the pinned
    sharding if there is one; else in its own, but without partial sums.
    """

    pins: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    times: int = 1


@dataclass(slots=True)
class Chain:
    """The forward ops of all segments in order, with one name per value across segments."""

    items: list[OpInstance | Boundary] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)
    params: dict[str, Value] = field(default_factory=dict)
    unpadded: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)

    @property
    def instances(self) -> list[OpInstance]:
        return [i for i in self.items if isinstance(i, OpInstance)]

    def shape_words(self, name: str, shape: tuple[int, ...]) -> str:
        """The shape of a parameter in words: as the model has it, and with its pads."""
        unpadded = self.unpadded.get(name)
        return f"{list(unpadded)} (with pads {list(shape)})" if unpadded else f"{list(shape)}"


def forward_calls(module: Module) -> Iterator[tuple[Call, Loop | None]]:
    """The calls of forward procedures in the order of the chain, each with its loop over layers, if it has one."""
    for stmt in module.step:
        for inner in stmt.body if isinstance(stmt, Loop) else ():
            call = inner.body[0] if isinstance(inner, Loop) else inner
            if isinstance(call, Call) and call.procedure.endswith(FORWARD):
                yield call, inner if isinstance(inner, Loop) else None


def build_chain(module: Module) -> Chain:
    """The chain of a module. A value that crosses segments has the name of its array, others `procedure/value`."""
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
            if unpadded := arrays[ref.array].unpadded:
                chain.unpadded[ref.array] = unpadded
            chain.weights.add(ref.array)
        elif arrays[ref.array].kind is not Kind.CARRIED:
            chain.inputs.setdefault(ref.array, value)
    outputs = zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True)
    carried = [(o.value.name, ref.array) for o, ref in outputs if arrays[ref.array].kind is Kind.CARRIED]
    times = loop.count if loop else 1
    if loop:
        operands = {ref.array for ref in call.args[: len(procedure.inputs)]}
        chain.items.append(Boundary(pins=tuple(a for _, a in carried if a in operands)))
    for op in procedure.ops:
        if is_weight_op(op, {n for n, c in names.items() if c in chain.weights}):
            names[op.results[0].name] = names[op.operands[0].name]
            continue
        names.update((v.name, f"{procedure.name}/{v.name}") for v in op.results)
        chain.items.append(
            OpInstance(
                (procedure.name, op.results[0].name),
                op,
                tuple(names[v.name] for v in op.operands),
                tuple(names[v.name] for v in op.results),
                times,
            )
        )
    renames = tuple((names[v], array) for v, array in carried if names[v] != array)
    chain.items.append(Boundary(renames=renames, times=times))


def is_weight_op(op: Op, weights: set[str]) -> bool:
    """Whether the op converts a weight, which it does in the storage sharding, before any all-gather."""
    return op.kind == "cast" and op.operands[0].name in weights


def seeds(module: Module, chain: Chain) -> dict[str, dict[str, int]]:
    """By input array and axis, the dimension that the axis splits; and, by result of an op that makes positions of its
    own, where axes split those. Fails with W201 for a degree that divides no dimension of the inputs."""
    inputs = [a for a in module.arrays if a.kind is Kind.INPUT]
    split_dims: dict[str, dict[str, int]] = {a.name: {} for a in inputs}
    for axis, dim in token_dims(module).items():
        if dim is None:
            raise _no_seed(axis, inputs, split_dims, module)
        for a in inputs:
            if dim < len(a.type.shape):
                split_dims[a.name][axis] = dim
    sequence = [a for a, dim in token_dims(module).items() if dim == SEQUENCE]
    made = {i.results[0]: dict.fromkeys(sequence, SEQUENCE) for i in chain.instances if makes_positions(i.op)}
    return {n: split_dims.get(n, {}) for n in {*chain.inputs, *split_dims}} | made


def _no_seed(
    axis: str, inputs: list[Array], split_dims: dict[str, dict[str, int]], module: Module
) -> Exception:
    """The W201 of an axis, by the input of most dimensions."""
    array, degree = max(inputs, key=lambda a: len(a.type.shape)), module.sizes[axis]
    names = ("the batch", "the sequence")
    sizes = {
        names[dim]: array.type.shape[dim]
        // prod(module.sizes[a] for a, d in split_dims[array.name].items() if d == dim)
        for dim in policy(axis).seed
        if dim < len(array.type.shape)
    }
    if not sizes:
        return fail(
            Code.DEGREE, f"`{axis} = {degree}` splits a sequence, and no input has one", array.span,
            candidates=[Proposal(with_degree(module.axes, axis, 1))],
        )  # fmt: skip
    words = " or ".join(f"{n} of {size} per die{_pads_words(size, degree)}" for n, size in sizes.items())
    padded = {d for size in sizes.values() for d in divisors(degree) if 100 * (-size % d) <= PADS * size}
    return fail(
        Code.DEGREE,
        f"`{axis} = {degree}` does not divide {words}",
        array.span,
        candidates=lower_degrees(module.axes, axis, sizes.values(), padded),
    )


def _pads_words(size: int, degree: int) -> str:
    """The reason why a size has no pads so that a degree divides it, if that is how many they would be."""
    pads = -size % degree
    more = f" (with pads {size + pads}, {100 * pads / size:.0f} % more, and {PADS} % is the most)"
    return more if 100 * pads > PADS * size else ""


def lower_degrees(axes: Degrees, axis: str, sizes: Iterable[int], more: Iterable[int] = ()) -> list[Proposal]:
    """Strategies with the lower degrees of one axis that divide one of the sizes, or are among `more`, the highest
    first."""
    degree = dict(axes)[axis]
    lower = {d for size in sizes for d in divisors(size)} | {*more}
    return [Proposal(with_degree(axes, axis, d)) for d in sorted(lower, reverse=True) if d < degree]
