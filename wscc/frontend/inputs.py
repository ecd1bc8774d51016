"""The arrays of the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping

from wscc.diagnostics import Code, fail
from wscc.frontend import ast
from wscc.frontend.builtins import EDGES
from wscc.frontend.evaluate import integer
from wscc.ir.array import Array, Kind
from wscc.ir.types import DType, TensorType


def input_array(s: ast.Input, sizes: Mapping[str, int], calls: int) -> Array:
    """The array of an input, an element for each call; of `edges[count]`, pairs (to, from) of nodes that are the same
    for all. Raises W101 for edges of another rank."""
    shape = tuple(integer(d, sizes) for d in s.dims)
    if s.dtype.id != EDGES:
        return Array(s.name.id, TensorType(shape, DType(s.dtype.id)), Kind.INPUT, (calls,), span=s.span)
    if len(shape) != 1:
        raise fail(
            Code.SHAPE, f"`{s.name.id}` has {len(shape)} dimensions, and edges have one, their number", s.span,
            help=f"write `input {s.name.id} : {EDGES}[count]`",
        )  # fmt: skip
    return Array(s.name.id, TensorType((*shape, 2), DType.I32), Kind.EDGES, span=s.span)
