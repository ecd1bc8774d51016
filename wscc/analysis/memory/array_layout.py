"""Place the arrays of the step, one after the other."""

from __future__ import annotations

from wscc.ir.array import Array
from wscc.ir.memory import Placement, aligned
from wscc.ir.module import Module


def element_stride(module: Module, array: Array) -> int:
    """Bytes from one element of the array to the next, on one die."""
    size = array.type.dtype.size
    for n in array.type.local_shape(module.sizes):
        size *= n
    return aligned(size)


def array_bytes(module: Module) -> dict[str, int]:
    """The bytes that each array adds to a die of its stage: 0 for one that lies in the storage of another."""
    needed = {a.name: 0 for a in module.arrays}
    for a in module.arrays:
        root = a.storage or a.name
        assert not module.array(root).storage, f"the storage of `{a.name}` is itself in another"
        needed[root] = max(needed[root], a.count * element_stride(module, a))
    return needed


def held(module: Module, stage: int) -> list[Array]:
    """The arrays of a die of the stage."""
    return [a for a in module.arrays if a.stage in (-1, stage)]


def resting_bytes(module: Module) -> int:
    """Bytes of arrays on a die of the fullest stage: without the locals of procedures."""
    needed = array_bytes(module)
    return max(sum(needed[a.name] for a in held(module, stage)) for stage in range(module.stages))


def place_arrays(module: Module, base: int) -> tuple[tuple[Placement, ...], int]:
    """The place of each array, from `base` on, and the end of the last.

    First come the arrays of all stages, then those of each stage, which start anew. Elements of arrays that
    share storage coincide (or there is but one), so their strides must agree.
    """
    needed = array_bytes(module)
    address: dict[str, int] = {}
    ends = {-1: aligned(base)}
    for a in sorted(module.arrays, key=lambda a: a.stage):
        end = ends.setdefault(a.stage, ends[-1])
        address[a.name] = end
        ends[a.stage] = end + needed[a.name]
    end = max(ends.values())
    placements = []
    for a in module.arrays:
        stride, root = element_stride(module, a), module.array(a.storage or a.name)
        assert stride == element_stride(module, root) or a.count == root.count == 1, (
            f"`{a.name}` and its storage `{root.name}` have elements of different sizes"
        )
        placements.append(Placement(a.name, address[root.name], stride))
    return tuple(placements), end
