"""Addresses of the arrays of a step, placed one after the other, and the bytes that arrays take on a die."""

from __future__ import annotations

from collections import defaultdict

from wscc.analysis.memory.handed import handed_places
from wscc.analysis.memory.stride import element_stride
from wscc.ir.array import Array
from wscc.ir.memory import Placement, aligned
from wscc.ir.module import Module


def array_bytes(module: Module) -> dict[str, int]:
    """The bytes that each array adds to a die of its stage, by name: 0 for one in the storage of another, or among the
    locals."""
    array_sizes = {a.name: 0 for a in module.arrays}
    for a in module.arrays:
        root = a.storage or a.name
        assert not module.array(root).storage, f"the storage of `{a.name}` is itself in another"
        if not a.handed:
            array_sizes[root] = max(array_sizes[root], a.count * element_stride(module, a))
    return array_sizes


def arrays_of_stage(module: Module, stage: int) -> list[Array]:
    """The arrays that dies of a stage have: those of all stages and its own."""
    return [a for a in module.arrays if a.stage in (-1, stage)]


def peak_array_bytes(module: Module) -> int:
    """Bytes of arrays on a die of the stage that has most, without the locals of procedures."""
    array_sizes = array_bytes(module)
    of_stage: dict[int, int] = defaultdict(int)
    for a in module.arrays:
        of_stage[a.stage] += array_sizes[a.name]
    shared = of_stage.pop(-1, 0)
    return shared + max(of_stage.values(), default=0)


def place_arrays(module: Module, base: int) -> tuple[tuple[Placement, ...], int]:
    """The placement of each array from address `base` on, and the end of the last array; those that calls hand on lie
    where `handed_places` says.

    Arrays of all stages come first; behind them, those of each stage start at the same address. Elements of arrays that
    share storage coincide (or there is but one), so their strides must agree.
    """
    array_sizes = array_bytes(module)
    address = handed_places(module)
    ends = {-1: aligned(base)}
    for a in sorted((a for a in module.arrays if not a.handed), key=lambda a: a.stage):
        end = ends.setdefault(a.stage, ends[-1])
        address[a.name] = end
        ends[a.stage] = end + array_sizes[a.name]
    end = max(ends.values())
    placements = []
    for a in module.arrays:
        stride, root = element_stride(module, a), module.array(a.storage) if a.storage else a
        assert root is a or stride == element_stride(module, root) or a.count == root.count == 1, (
            f"`{a.name}` and its storage `{root.name}` have elements of different sizes"
        )
        placements.append(Placement(a.name, address[root.name], stride))
    return tuple(placements), end
