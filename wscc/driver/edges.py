"""The edges of a module's graph: from its data file, or drawn from the seed where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail
from wscc.host.data_file import Arrays, DataFile
from wscc.host.random import integers, key
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module
from wscc.ir.step import calls


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


def _nodes(graph: Module) -> dict[str, int]:
    """The number of nodes of each array of edges, that of every op that reads it."""
    return {
        ref.array: op.operands[1].type.shape[1]
        for call, _ in calls(graph.step)
        for procedure in [graph.procedure(call.procedure)]
        for value, ref in zip(procedure.inputs, call.args, strict=False)
        for op in procedure.ops
        if op.definition.listed is not None and op.operands[op.definition.listed].name == value.name
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
