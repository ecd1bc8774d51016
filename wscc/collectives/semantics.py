"""The semantics of each collective in NumPy, on whole vectors, which every executed plan is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wscc.collectives.plan import Op, Request

Vector = NDArray[np.float64]
# By die; a die without an entry holds nothing.
Vectors = dict[int, Vector]


def input_sizes(request: Request, whole: int, parts: Sequence[int]) -> dict[int, int]:
    """The number of elements that each die holds before the collective.

    `parts` are the numbers of elements of the shards (or, for all_to_all, of the blocks for each die), in the order of
    `request.dies`; `whole` is that of a vector that is not cut."""
    match request.op:
        case Op.ALL_GATHER:
            return dict(zip(request.dies, parts, strict=True))
        case Op.REDUCE_SCATTER | Op.ALL_TO_ALL:
            return dict.fromkeys(request.dies, sum(parts))
        case Op.ALL_REDUCE:
            return dict.fromkeys(request.dies, whole)
        case Op.BROADCAST | Op.P2P:
            return {request.root: whole}


def semantics(request: Request, inputs: Mapping[int, Vector], parts: Sequence[int]) -> Vectors:
    """The vector that each die holds after the collective. `parts` as in `input_sizes`."""
    dies, cuts = request.dies, np.cumsum(parts)[:-1]
    match request.op:
        case Op.ALL_GATHER:
            return dict.fromkeys(dies, np.concatenate([inputs[d] for d in dies]))
        case Op.REDUCE_SCATTER:
            return dict(zip(dies, np.split(_total(request, inputs), cuts), strict=True))
        case Op.ALL_REDUCE:
            return dict.fromkeys(dies, _total(request, inputs))
        case Op.ALL_TO_ALL:
            blocks = [np.split(inputs[d], cuts) for d in dies]
            return {d: np.concatenate([b[i] for b in blocks]) for i, d in enumerate(dies)}
        case Op.BROADCAST:
            return dict.fromkeys(dies, inputs[request.root])
        case Op.P2P:
            return {request.target: inputs[request.root]}


def _total(request: Request, inputs: Mapping[int, Vector]) -> Vector:
    total: Vector = np.sum([inputs[d] for d in request.dies], axis=0)
    return total
