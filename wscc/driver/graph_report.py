"""The part of a report about the graph of a model: what the order of its nodes saves, and what it costs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.gather_plan import Part, ring, used
from wscc.driver.edges import node_parts
from wscc.host.data_file import ORDER, DataFile
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.per_die import NOBODY
from wscc.ir.step import calls

_SEED = 0


def graph_report(graph: Module, data: bytes | None) -> dict[str, Any]:
    """Of each list of edges: the edges whose ends are on different dies, the bytes that products send in a step,
    forward and backward, from neighbour to neighbour on one ring of all parts, and the edges of the fullest part over
    those of the average one. `random_...`: the same for nodes in a random order. Empty for a model without a graph."""
    parts = node_parts(graph)
    ordered = data is not None and ORDER in _arrays(graph, data)
    words = ("metis" if find_spec("pymetis") else "networkx") if ordered else "given"
    return {
        name: _edges(edges, _products(graph, name), parts) | {"order": words}
        for name, edges in graph.contents.items()
    }


def _arrays(graph: Module, data: bytes) -> Any:
    file = DataFile(graph.train.data, data)
    return file.arrays() if graph.contents and file.has_arrays else {}


def _products(graph: Module, name: str) -> list[tuple[Op, int]]:
    """The ops that take these edges, and how often a step runs each."""
    return [
        (op, times)
        for call, times in calls(graph.step)
        for procedure in [graph.procedure(call.procedure)]
        for value, ref in zip(procedure.inputs, call.args, strict=False)
        for op in procedure.ops
        if ref.array == name and value in op.operands
    ]


def _edges(edges: NDArray[Any], products: list[tuple[Op, int]], parts: int) -> dict[str, Any]:
    nodes = products[0][0].operands[1].type.shape[1]
    # Of each product the values that all parts together send to a neighbour, and the gradients that come back.
    values = 2 * sum(op.operands[1].type.bytes * times for op, times in products)
    shuffled = np.random.default_rng(_SEED).permutation(nodes)[edges]
    blocks, random = (_blocks(e, nodes, parts) for e in (edges, shuffled))
    loads = blocks.sum(axis=1)
    return {
        "nodes": nodes,
        "edges": len(edges),
        "parts": parts,
        "cut_edges": _cut(blocks),
        "random_cut_edges": _cut(random),
        "sent_bytes": int(values * _shards_sent(blocks) / parts),
        "random_sent_bytes": int(values * _shards_sent(random) / parts),
        "imbalance": float(loads.max() / loads.mean()) if len(edges) else 1.0,
    }


def _blocks(edges: NDArray[Any], nodes: int, parts: int) -> NDArray[np.int64]:
    """The number of edges between each two parts [to, from]."""
    rows, columns = (edges // -(-nodes // parts)).astype(np.int64).T
    return np.bincount(rows * parts + columns, minlength=parts * parts).reshape(parts, parts)


def _cut(blocks: NDArray[np.int64]) -> int:
    return int(blocks.sum() - np.trace(blocks))


def _shards_sent(blocks: NDArray[np.int64]) -> float:
    """The shards that go over a link of the ring, halves as such."""
    if len(blocks) < 2:
        return 0.0
    plan = used(ring(len(blocks)), [set(np.flatnonzero(row).tolist()) for row in blocks])
    return sum(
        (1.0 if move.part is Part.WHOLE else 0.5) * sum(q != NOBODY for q in move.to)
        for round_ in plan.rounds
        for move in round_
    )


def graph_words(graph: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a summary."""
    return [
        (
            "graph",
            f"{name}: {g['cut_edges']:,} of {g['edges']:,} edges cut (random order {g['random_cut_edges']:,}), "
            f"{g['sent_bytes']:,} bytes sent (random {g['random_sent_bytes']:,}), imbalance {g['imbalance']:.2f}, "
            f"order {g['order']}",
        )
        for name, g in graph.items()
        if g["parts"] > 1
    ]
