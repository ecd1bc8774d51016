"""The manifest of a planned module: the mesh, the wafer, and the addresses of the arrays that the host accesses."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import PurePath
from typing import Final

from wscc.ir.array import Array, Kind
from wscc.ir.memory import Placement
from wscc.ir.module import Module
from wscc.ir.streams.artifact import HostPart, HostTensor, Manifest
from wscc.machine.wafer import Wafer

# The name of the data file inside the artifact.
DATA: Final = "data.bin"
HOST_KINDS: Final = (Kind.PARAM, Kind.GRAD, Kind.STATE, Kind.INPUT, Kind.EDGES, Kind.SCALAR, Kind.STATISTIC)


def manifest_of(module: Module) -> Manifest:
    """The manifest: arrays of `HOST_KINDS`, in the order of the module, with the addresses of all their parts.

    Of the data file it has the name alone: its folder must not change the artifact.
    """
    assert module.memory is not None
    wafer = module.machine
    parts: dict[str, list[tuple[Array, Placement]]] = {}
    for a, place in zip(module.arrays, module.memory.arrays, strict=True):
        if a.kind in HOST_KINDS:
            parts.setdefault(a.of or a.name, []).append((a, place))
    tensors = tuple(_tensor(name, held) for name, held in parts.items())

    def number(die: tuple[int, int]) -> int:
        return die[0] * wafer.cols + die[1]

    return Manifest(
        module.name,
        module.axes,
        module.stages,
        wafer.rows,
        wafer.cols,
        tuple(sorted(number(d) for d in wafer.dead_dies)),
        dead_links_of(wafer),
        tensors,
        replace(module.train, data=PurePath(module.train.data).name),
        DATA if module.train.data else "",
        wafer.torus,
        wafer.planes or 0,
        wafer.hub,
        wafer.network,
    )


def dead_links_of(wafer: Wafer) -> tuple[tuple[int, int], ...]:
    """The links of the mesh that are dead, not up or were never built, as numbers of dies."""
    links = (*wafer.missing_links, *wafer.unbuilt_links())
    return tuple(sorted((wafer.number(a), wafer.number(b)) for a, b in links))


def _tensor(name: str, held: list[tuple[Array, Placement]]) -> HostTensor:
    parts = tuple(HostPart(a.stage, a.first, a.count, p.address, p.stride) for a, p in held)
    first = held[0][0]
    extents = first.extents
    if extents:
        each = prod(extents[1:])
        extents = (max(p.first + p.count for p in parts) // each, *extents[1:])
    return HostTensor(
        name, first.kind, first.type, extents, first.init, parts, first.relation, first.zigzag,
        first.unpadded, first.filler,
    )  # fmt: skip
