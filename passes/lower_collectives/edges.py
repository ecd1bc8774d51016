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
from wscc.ir.per_die import Ints, at, per_die
from wscc.ir.step import Call, Loop, Ref, Stage
from wscc.ir.types import DType, Layout, TensorType
from wscc.passes.lower_collectives.edge_blocks import EdgeBlocks

# Of a set of blocks: edges, whether rows and columns change places, and the shape.
_Kind = tuple[str, bool, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Block:
    """A block on each die, at a place (row, column) of its own. `where`: a mask of the dies on which it has edges."""

    kind: _Kind
    places: tuple[Ints, Ints]
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
    _made: dict[tuple[Block, str], str] = field(default_factory=dict)
    _sorted: dict[_Kind, EdgeBlocks] = field(default_factory=dict)

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

    def block(
        self, name: str, nodes: tuple[int, int], shape: tuple[int, int], places: tuple[Ints, Ints], *,
        is_backwards: bool,
    ) -> Block:  # fmt: skip
        """The blocks of `shape`, rows and columns, at these places (row, column) of each die: of the edges `name` as a
        matrix of `nodes` rows and columns, or of its transpose."""
        name = self._module.array(name).of or name  # stages have copies
        kind = name, is_backwards, shape
        if kind not in self._sorted:
            rows, columns = self._listed(name).T[:: -1 if is_backwards else 1]
            self._sorted[kind] = EdgeBlocks.of(rows, columns, nodes, shape)
        counts = self._sorted[kind].counts(self._dies(places))
        return Block(kind, places, per_die(int(n > 0) for n in counts))

    def entries(self, block: Block) -> str:
        """The array of the entries of a block: starts of rows, then columns."""
        if (block, "") not in self._made:
            ordered, dies = self._sorted[block.kind], self._dies(block.places)
            room = max(1, *ordered.counts(dies))
            parts = [ordered.entries(place, room) for place in dies]
            self._made[block, ""] = self._array(block, "entries", parts, DType.I32)
        return self._made[block, ""]

    def weights(self, block: Block, weights: str, dtype: DType) -> str:
        """The array of the weights of the edges of a block, of a kind of `wscc.ir.graphs.WEIGHTS`."""
        key = block, f"{weights} {dtype}"
        if key not in self._made:
            ordered, dies = self._sorted[block.kind], self._dies(block.places)
            of_edge = edge_weights(self._listed(block.kind[0]), ordered.nodes, weights)
            room = max(1, *ordered.counts(dies))
            parts = [ordered.weights(of_edge, place, room) for place in dies]
            self._made[key] = self._array(block, weights, parts, dtype)
        return self._made[key]

    def numbers(self, block: Block) -> str:
        """The array of the numbers of the edges of a block, in the order of its entries."""
        if (block, "numbers") not in self._made:
            ordered, dies = self._sorted[block.kind], self._dies(block.places)
            own = np.arange(len(self._listed(block.kind[0])))
            room = max(1, *ordered.counts(dies))
            parts = [ordered.weights(own, place, room).astype(np.int32) for place in dies]
            self._made[block, "numbers"] = self._array(block, "numbers", parts, DType.I32)
        return self._made[block, "numbers"]

    def _dies(self, places: tuple[Ints, Ints]) -> list[tuple[int, int]]:
        return [(at(places[0], d), at(places[1], d)) for d in range(self._module.dies_used)]

    def _listed(self, name: str) -> NDArray[Any]:
        if name not in self._module.contents:
            words = f"the edges `{name}` are not in the text of a module"
            raise fail(Code.BAD_IR, words, help="compile the `.wsl` file with its data")
        return self._module.contents[name]

    def _array(self, block: Block, what: str, parts: list[NDArray[Any]], dtype: DType) -> str:
        """A new array with a part for each die, whatever its stage."""
        name = self._names.new(f"{block.kind[0]}.{what}")
        whole = np.concatenate(parts)  # the host rounds weights to their type
        layout = Layout((tuple(a for a, _ in self._module.axes),))
        self.arrays[name] = Array(name, TensorType(whole.shape, dtype, layout), Kind.EDGES)
        self.contents[name] = whole
        return name
