"""The edges of a module as arrays of blocks: each die has those that its instructions take, and no others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array, Kind
from wscc.ir.graphs import edge_weights
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import Op
from wscc.ir.per_die import Ints, at, per_die
from wscc.ir.step import Call, Loop, Ref, Stage
from wscc.ir.types import DType, Layout, TensorType
from wscc.passes.lower_collectives.edge_blocks import EdgeBlocks

# Of a set of blocks: edges, weights, whether rows and columns change places, the shape, and the place on each die.
_Key = tuple[str, str, bool, tuple[int, int], DType, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Block:
    """The names of the arrays of a block on each die, and a mask of the dies on which it has edges."""

    entries: str
    weights: str
    where: Ints


@dataclass(slots=True)
class Edges:
    """The arrays of blocks of a module, made as they are asked for; equal ones are made once. `read`: those that a
    procedure takes in place of lists of edges, by its name."""

    module: Module | None = None
    arrays: dict[str, Array] = field(default_factory=dict)
    contents: dict[str, NDArray[Any]] = field(default_factory=dict)
    read: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _names: Names = field(init=False)
    _blocks: dict[_Key, Block] = field(default_factory=dict)
    _sorted: dict[tuple[str, str, bool, tuple[int, int]], EdgeBlocks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = Names({a.name for a in self._module.arrays} if self.module else ())

    @property
    def _module(self) -> Module:
        assert self.module is not None
        return self.module

    def arguments(self, procedure: Procedure, args: tuple[Ref, ...]) -> dict[str, str]:
        """The arrays of the lists of edges that a procedure takes, by the name of the argument."""
        inputs = zip(procedure.inputs, args, strict=False)
        return {v.name: r.array for v, r in inputs if self._module.array(r.array).kind is Kind.EDGES}

    def bound(self, lowered: Module) -> Module:
        """The module, whose procedures take blocks, with these in place of lists of edges in arrays and calls."""
        lists = {a.name for a in lowered.arrays if a.kind is Kind.EDGES}
        if not lists:
            return lowered
        outputs = {p.name: len(p.outputs) for p in lowered.procedures}

        def rebound(stmt: Call | Loop | Stage) -> Call | Loop | Stage:
            if not isinstance(stmt, Call):
                return replace(stmt, body=tuple(map(rebound, stmt.body)))  # type: ignore[arg-type]
            end = len(stmt.args) - outputs[stmt.procedure]
            inputs = [r for r in stmt.args[:end] if r.array not in lists]
            blocks = map(Ref, self.read[stmt.procedure])
            return replace(stmt, args=(*inputs, *blocks, *stmt.args[end:]))

        arrays = (*(a for a in lowered.arrays if a.name not in lists), *self.arrays.values())
        return lowered.with_(arrays=arrays, step=tuple(map(rebound, lowered.step)), contents=self.contents)

    def block(self, name: str, op: Op, shape: tuple[int, int], places: tuple[Ints, Ints]) -> Block:
        """The blocks of `shape` of the edges `name` that an op takes, at these places (row, column) of each die."""
        weights, is_backward = str(op.attr("weights")), not op.definition.differentiable
        dtype = op.results[0].type.dtype.accumulator
        key = (name, weights, is_backward, shape, dtype, *places)
        if key not in self._blocks:
            ordered = self._ordered(name, weights, is_backward, shape, op)
            self._blocks[key] = self._made(name, ordered, places, dtype)
        return self._blocks[key]

    def _ordered(
        self, name: str, weights: str, is_backward: bool, shape: tuple[int, int], op: Op
    ) -> EdgeBlocks:
        key = (name, weights, is_backward, shape)
        if key not in self._sorted:
            if name not in self._module.contents:
                words = f"the edges `{name}` are not in the text of a module"
                raise fail(Code.BAD_IR, words, help="compile the `.wsl` file with its data")
            edges = self._module.contents[name]
            nodes = op.results[0].type.shape[1], op.operands[1].type.shape[1]
            of_edge = edge_weights(edges, max(nodes), weights)
            rows, columns = (edges[:, 1], edges[:, 0]) if is_backward else (edges[:, 0], edges[:, 1])
            self._sorted[key] = EdgeBlocks.of(rows, columns, of_edge, nodes, shape)
        return self._sorted[key]

    def _made(self, name: str, ordered: EdgeBlocks, places: tuple[Ints, Ints], dtype: DType) -> Block:
        dies = [(at(places[0], d), at(places[1], d)) for d in range(self._module.dies_used)]
        counts = ordered.counts(dies)
        packed = [ordered.packed(place, max(1, *counts)) for place in dies]
        entries = self._array(f"{name}.entries", [e for e, _ in packed], DType.I32)
        weights = self._array(f"{name}.weights", [w for _, w in packed], dtype)
        return Block(entries, weights, per_die(int(n > 0) for n in counts))

    def _array(self, hint: str, parts: list[NDArray[Any]], dtype: DType) -> str:
        """A new array with a part for each die."""
        name = self._names.new(hint)
        whole = np.concatenate(parts).astype(dtype.numpy)
        layout = Layout((tuple(a for a, _ in self._module.axes),))
        self.arrays[name] = Array(name, TensorType(whole.shape, dtype, layout), Kind.EDGES)
        self.contents[name] = whole
        return name
