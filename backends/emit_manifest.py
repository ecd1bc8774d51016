"""What the host must know of a planned module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Final

from wscc.ir.artifact import HostTensor, Manifest
from wscc.ir.module import Kind, Module

# The name of the data file inside the artifact.
DATA: Final = "data.bin"
HOST_KINDS: Final = (Kind.PARAM, Kind.GRAD, Kind.STATE, Kind.INPUT, Kind.SCALAR)


def manifest_of(module: Module) -> Manifest:
    """Arrays of `HOST_KINDS`, in the order of the module, with their addresses.

    Of the data file only the name is kept: where it lay must not change the artifact.
    """
    assert module.memory is not None
    wafer = module.machine
    tensors = tuple(
        HostTensor(a.name, a.kind, a.type, a.extents, place.address, place.stride, a.init)
        for a, place in zip(module.arrays, module.memory.arrays, strict=True)
        if a.kind in HOST_KINDS
    )

    def number(die: tuple[int, int]) -> int:
        return die[0] * wafer.cols + die[1]

    return Manifest(
        module.name,
        module.axes,
        wafer.rows,
        wafer.cols,
        tuple(sorted(number(d) for d in wafer.dead_dies)),
        tuple(sorted((number(a), number(b)) for a, b in wafer.dead_links)),
        tensors,
        replace(module.train, data=PurePath(module.train.data).name),
        DATA if module.train.data else "",
    )
