"""Reverse-mode differentiation: a tape that runs the calls of a forward module, and runs back over them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from wscc.diagnostics import Code, fail
from wscc.ir.array import Kind
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.op import Op, Value
from wscc.ir.step import Call, walk
from wscc.ir.types import DType
from wscc.reference import activations, arithmetic, attention, dropout, experts, graphs, layers, loss
from wscc.reference.noise import Noise
from wscc.reference.semantics import Array, Precision, Semantics, wide

SEMANTICS: Final[dict[str, Semantics]] = {
    **arithmetic.SEMANTICS,
    **activations.SEMANTICS,
    **layers.SEMANTICS,
    **dropout.SEMANTICS,
    **attention.SEMANTICS,
    **loss.SEMANTICS,
    **experts.SEMANTICS,
    **graphs.SEMANTICS,
}

Key = tuple[str, tuple[int, ...]]  # an array and the index of one of its elements
_K = TypeVar("_K", bound=Hashable)
Tensors = Mapping[str, Array]  # array name -> all its elements, shape (*extents, *type.shape)
Env = dict[str, Array]  # the values of one call by name


@dataclass(frozen=True, slots=True)
class Weights:
    """The values of a procedure that are parameters or made of parameters alone; gradients of these are summed in
    `dtype` from the start."""

    names: frozenset[str]
    dtype: DType

    @staticmethod
    def of(procedure: Procedure, parameters: set[str], dtype: DType) -> Weights:
        """Those of a procedure whose inputs `parameters` are parameters."""
        names = set(parameters)
        for op in procedure.ops:
            if op.operands and all(v.name in names for v in op.operands):
                names |= {v.name for v in op.results}
        return Weights(frozenset(names), dtype)

    def dtype_of_gradient(self, value: Value) -> DType:
        """The element type in which the gradient of `value` is summed."""
        return self.dtype if value.name in self.names else value.type.dtype


NO_WEIGHTS: Final = Weights(frozenset(), DType.F64)


@dataclass(frozen=True, slots=True)
class _Record:
    """One call that has run."""

    procedure: Procedure
    keys: tuple[Key, ...]
    env: Env

    @property
    def inputs(self) -> tuple[Key, ...]:
        return self.keys[: len(self.procedure.inputs)]

    @property
    def outputs(self) -> tuple[Key, ...]:
        return self.keys[len(self.procedure.inputs) :]


def run_ops(ops: tuple[Op, ...], env: Env, precision: Precision) -> None:
    """Evaluate `ops` in order, and add their results to `env`."""
    for op in ops:
        semantics = SEMANTICS[op.kind]
        results = semantics.forward(op, [wide(env[v.name]) for v in op.operands])
        for value, result in zip(op.results, results, strict=True):
            assert result.shape == value.type.shape, f"{op.kind}: {value.name} is {result.shape}"
            is_there = semantics.selects and _holds(value.type.dtype, op.operands[0].type.dtype)
            store = precision.exact if is_there else precision.store
            env[value.name] = store(result, value.type.dtype)


def _holds(dtype: DType, other: DType) -> bool:
    """Whether every number of type `other` is one of `dtype`."""
    return dtype.precision >= other.precision


def pull_back(
    ops: tuple[Op, ...], env: Env, grads: Env, precision: Precision, weights: Weights = NO_WEIGHTS
) -> None:
    """Add to `grads`, which has gradients of results, those of all values that the results depend on."""
    for op in reversed(ops):
        if not any(v.name in grads for v in op.results):
            continue
        dys = [wide(grads[v.name]) if v.name in grads else _zero(v, precision) for v in op.results]
        xs, ys = ([wide(env[v.name]) for v in values] for values in (op.operands, op.results))
        found = SEMANTICS[op.kind].vjp(op, xs, ys, dys)
        if precision.noise:
            found = _with_partial_sums(op, xs, ys, dys, found, precision.noise, weights)
        for value, grad in zip(op.operands, found, strict=True):
            if grad is not None and value.type.dtype.is_float:
                _accumulate(grads, value.name, grad, weights.dtype_of_gradient(value), precision)


def _with_partial_sums(
    op: Op, xs: list[Array], ys: list[Array], dys: list[Array], grads: Sequence[Array | None], noise: Noise,
    weights: Weights,
) -> list[Array | None]:  # fmt: skip
    """`grads` of the operands, those of weights as sums of rounded partial sums over what else the result has."""
    out = list(grads)
    for i, value in enumerate(op.operands):
        rows = [f for f in op.rule.outs[0] if f not in op.rule.ins[i]]
        grad = grads[i]
        if value.name not in weights.names or grad is None or not rows:
            continue
        signs = noise.signs(tuple(op.sizes[f] if f in rows else 1 for f in op.rule.outs[0]))
        contributions = SEMANTICS[op.kind].vjp(op, xs, ys, [dys[0] * signs, *dys[1:]])[i]
        assert contributions is not None
        out[i] = noise.summed(grad, contributions, weights.dtype)
    return out


def _zero(value: Value, precision: Precision) -> Array:
    return wide(np.zeros(value.type.shape, precision.of(value.type.dtype)))


def _accumulate(sums: dict[_K, Array], key: _K, x: Array, dtype: DType, precision: Precision) -> None:
    """Add `x`, which is stored by itself before, as results of ops are."""
    stored = precision.store(x, dtype)
    sums[key] = precision.store(wide(sums[key]) + wide(stored), dtype) if key in sums else stored


def _rounding(op: Op, env: Env, grads: Env) -> float:
    """The variance that rounding the op's results to their types, by u xi of each, adds to what `grads` belongs to."""
    results = [v for v in op.results if v.name in grads and v.type.dtype.is_float]
    with np.errstate(all="ignore"):  # what overflows here need not overflow in the run
        moved = [wide(env[v.name]) * wide(grads[v.name]) * v.type.dtype.roundoff for v in results]
        return sum(float(np.square(x, dtype=np.float64).sum()) / 3 for x in moved)


class Tape:
    """One step of a forward module. `memory` starts with parameters and inputs; arrays that are only added to
    start from zero. Every value of every call is kept, so memory grows with layers and micro-batches.

    `ValueError` if a parameter or input is missing or of another shape; `CompileError` W601 for a step that reads what
    it has not written.
    """

    def __init__(self, module: Module, params: Tensors, inputs: Tensors, precision: Precision) -> None:
        self.module, self.precision = module, precision
        self.arrays = {a.name: a for a in module.arrays}
        self.procedures = {p.name: p for p in module.procedures}
        self.memory: dict[Key, Array] = {}
        self.records: list[_Record] = []
        # After `gradients`: the variance of its scalar where every value is rounded once, to first order.
        self.rounding = 0.0
        for a in module.arrays:
            if a.kind in (Kind.PARAM, Kind.INPUT):
                self._load(a.name, params if a.kind is Kind.PARAM else inputs)
            elif a.kind is Kind.EDGES:
                self._load(a.name, module.contents)

    def _load(self, name: str, tensors: Tensors) -> None:
        a = self.arrays[name]
        shape = (*a.extents, *a.type.shape)
        if name not in tensors or tensors[name].shape != shape:
            actual = list(tensors[name].shape) if name in tensors else "missing"
            raise ValueError(f"`{name}` must be {list(shape)} and is {actual}")
        stored = self.precision.exact(tensors[name], a.type.dtype)
        for index in np.ndindex(a.extents):
            self.memory[name, index] = stored[index]

    def run(self) -> None:
        """Run every call of the step, in order."""
        for call, variables in walk(self.module.step):
            self._call(call, variables)

    def _call(self, call: Call, variables: dict[str, int]) -> None:
        procedure = self.procedures[call.procedure]
        keys = tuple((ref.array, tuple(i.at(variables) for i in ref.index)) for ref in call.args)
        record = _Record(procedure, keys, {})
        for value, key in zip(procedure.inputs, record.inputs, strict=True):
            record.env[value.name] = self.read(key)
        run_ops(procedure.ops, record.env, self.precision)
        for output, key in zip(procedure.outputs, record.outputs, strict=True):
            result = record.env[output.value.name]
            if output.mode is Mode.WRITE:
                self.memory.pop(key, None)
            _accumulate(self.memory, key, wide(result), self.arrays[key[0]].type.dtype, self.precision)
        self.records.append(record)

    def read(self, key: Key) -> Array:
        """An element that is there; `CompileError` W601 if no call has written it."""
        if key not in self.memory:
            name, index = key
            raise fail(
                Code.BAD_IR, f"the step reads `%{name}{list(index) or ''}`, which no call before has written"
            )
        return self.memory[key]

    def gradients(self, of: str) -> dict[Key, Array]:
        """Gradients of the scalar array `of` with respect to every parameter element that some call has read."""
        adjoints: dict[Key, Array] = {(of, ()): np.ones((), self.precision.of(self.arrays[of].type.dtype))}
        for record in reversed(self.records):
            self._reverse(record, adjoints)
        read = {k: None for r in self.records for k in r.inputs if self.arrays[k[0]].kind is Kind.PARAM}
        return {k: adjoints[k] if k in adjoints else self._zero_grad(k) for k in read}

    def _reverse(self, record: _Record, adjoints: dict[Key, Array]) -> None:
        grads: Env = {}
        for output, key in zip(record.procedure.outputs, record.outputs, strict=True):
            # A write ends the live range of the element's earlier value; an addition extends it.
            seed = adjoints.pop(key, None) if output.mode is Mode.WRITE else adjoints.get(key)
            if seed is not None and output.value.type.dtype.is_float:
                _accumulate(grads, output.value.name, wide(seed), output.value.type.dtype, self.precision)
        pull_back(record.procedure.ops, record.env, grads, self.precision, self._weights(record))
        self.rounding += sum(_rounding(op, record.env, grads) for op in record.procedure.ops)
        for value, key in zip(record.procedure.inputs, record.inputs, strict=True):
            if value.name in grads:
                _accumulate(adjoints, key, wide(grads[value.name]), self._grad_dtype(key), self.precision)

    def _weights(self, record: _Record) -> Weights:
        inputs = zip(record.procedure.inputs, record.inputs, strict=True)
        parameters = {v.name for v, key in inputs if self.arrays[key[0]].kind is Kind.PARAM}
        return Weights.of(record.procedure, parameters, self.module.train.grads)

    def _grad_dtype(self, key: Key) -> DType:
        array = self.arrays[key[0]]
        return self.module.train.grads if array.kind is Kind.PARAM else array.type.dtype

    def _zero_grad(self, key: Key) -> Array:
        return np.zeros(self.arrays[key[0]].type.shape, self.precision.of(self._grad_dtype(key)))
