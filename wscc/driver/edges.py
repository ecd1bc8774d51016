"""The edges of a module's graph: from its data file, or drawn from the seed where it has none."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.equal_dims import Dim, equal_dims
from wscc.analysis.sequence_dims import TokenDims
from wscc.diagnostics import Code, fail
from wscc.disjoint_sets import DisjointSets
from wscc.driver.node_order import node_order
from wscc.frontend import ast
from wscc.host.data_file import ORDER, Arrays, DataFile, read_data
from wscc.host.random import integers, key
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.strategy import PADS, SEQUENCE


def with_edges(graph: Module, data: bytes | None) -> Module:
    """The forward module with what its arrays of edges hold, of the bytes of its data file. `CompileError` W503 where
    the file has no such edges."""
    lists = [a for a in graph.arrays if a.kind is Kind.EDGES]
    if not lists:
        return graph
    nodes = _nodes(graph)
    file = None if data is None else DataFile(graph.train.data, data)
    if file is None:
        contents = {a.name: _drawn(a, nodes[a.name], graph.train.seed) for a in lists}
    else:
        arrays = _arrays(file, lists)
        contents = {a.name: _checked(arrays, a, nodes[a.name], file.name) for a in lists}
    return graph.with_(contents=contents)


def with_edges_of(graph: Module, file: ast.File) -> Module:
    """The same with the data file beside the file that the module was made of."""
    named = graph.train.data and any(a.kind is Kind.EDGES for a in graph.arrays)
    path = Path(file.items[0].span.file).parent / graph.train.data if named else None
    return with_edges(graph, read_data(path).content if path else None)


def prepared(graph: Module, data: bytes | None) -> tuple[Module, bytes | None]:
    """The forward module with its edges, and the bytes of its data, both in the order of nodes that suits its strategy,
    which the data then has as the array `ORDER`. Raises as `with_edges`."""
    graph = with_edges(graph, data)
    parts, dims = node_parts(graph), node_dims(graph)
    if data is None or parts < 2 or not dims:
        return graph, data
    (nodes,) = set(_nodes(graph).values())
    if nodes % parts:  # the last part has pads, and parts of the order are of one size
        return graph, data
    order = node_order(np.concatenate([*graph.contents.values()]), nodes, parts)
    file = DataFile(graph.train.data, data)
    arrays = in_order(graph, file.arrays(), order)
    return graph.with_(contents={n: arrays[n] for n in graph.contents}), file.holding(arrays | {ORDER: order})


def in_order(graph: Module, arrays: Arrays, order: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a file of data with nodes in another order: rows of nodes change places, ends of edges names."""
    place = np.argsort(order).astype(np.int32)
    dims, out = node_dims(graph), dict(arrays)
    for name, array in arrays.items():
        if name in graph.contents and array.size and array.min() >= 0 and array.max() < len(order):
            out[name] = place[array]
        elif name in dims and array.ndim > dims[name] and array.shape[dims[name]] == len(order):
            out[name] = array.take(order, axis=dims[name])
    return out


def node_parts(graph: Module) -> int:
    """The number of parts that axes split the nodes in; the last ones may have pads."""
    axes = TokenDims.of(graph, Fraction(PADS, 100)).axes
    return prod(graph.sizes[axis] for axis, dim in axes.items() if dim == SEQUENCE)


def node_dims(graph: Module) -> dict[str, int]:
    """By input, its dimension of nodes; empty if their order matters, to an op or because a parameter has them."""
    classes = equal_dims(graph)
    nodes = {
        classes[p.name, op.results[0].name, SEQUENCE] for p in graph.procedures for op in p.ops if _lists(op)
    }
    if len(nodes) != 1 or any(_minds(p, op, classes, nodes) for p in graph.procedures for op in p.ops):
        return {}
    held = [(a, d) for a in graph.arrays for d in range(len(a.type.shape)) if classes["", a.name, d] in nodes]
    if any(a.kind is Kind.PARAM for a, _ in held):
        return {}
    return {a.name: d for a, d in held if a.kind is Kind.INPUT}


def _lists(op: Op) -> bool:
    return op.definition.listed is not None


def _minds(p: Procedure, op: Op, classes: DisjointSets[Dim], nodes: set[Dim]) -> bool:
    """Whether an op would give something else for nodes in another order."""
    bound = op.rule.whole | op.rule.indexed | op.rule.streamed
    return not _lists(op) and any(
        classes[p.name, v.name, d] in nodes and (op.definition.positional or f in bound)
        for v, term in op.terms()
        for d, f in enumerate(term)
    )


def _nodes(graph: Module) -> dict[str, int]:
    """The number of nodes of each array of edges, that of every op that reads it."""
    return {
        ref.array: op.operands[1].type.shape[1]
        for call, _ in calls(graph.step)
        for procedure in [graph.procedure(call.procedure)]
        for value, ref in zip(procedure.inputs, call.args, strict=False)
        for op in procedure.ops
        if _lists(op) and op.operands[0].name == value.name
    }


def _arrays(file: DataFile, lists: list[Array]) -> Arrays:
    if not file.has_arrays:
        raise fail(
            Code.DATA, f"`{file.name}` is a text, and `{lists[0].name}` are edges",
            help="give arrays by name, in a `.npz` or `.safetensors` file",
        )  # fmt: skip
    return file.arrays()


def _checked(arrays: Arrays, a: Array, nodes: int, file: str) -> NDArray[Any]:
    found = arrays.get(a.name)
    if found is None:
        raise fail(
            Code.DATA, f"`{file}` has no array `{a.name}`", help=f"give the edges {list(a.type.shape)}"
        )
    if found.shape != a.type.shape:
        raise fail(
            Code.DATA,
            f"array `{a.name}` of `{file}` is {list(found.shape)}, and the model takes {list(a.type.shape)}",
            help="a row is one edge (to, from); declare as many as there are",
        )
    if found.dtype.kind not in "iu":
        raise fail(Code.DATA, f"array `{a.name}` of `{file}` holds {found.dtype}", help="give integers")
    wrong = ((found < 0) | (found >= nodes)).any(axis=1)
    if wrong.any():
        edge = int(wrong.argmax())
        raise fail(
            Code.DATA, f"`{a.name}[{edge}]` of `{file}` is {found[edge].tolist()}, and there are {nodes} nodes",
            help=f"number nodes from 0 to {nodes - 1}",
        )  # fmt: skip
    return np.ascontiguousarray(found, np.int32)


def _drawn(a: Array, nodes: int, seed: int) -> NDArray[Any]:
    """Edges between nodes drawn uniformly."""
    places = np.arange(a.type.elements, dtype=np.uint64)
    return integers(key("edges", seed, a.name), places, nodes).reshape(a.type.shape).astype(np.int32)
