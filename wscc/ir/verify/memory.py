"""The check of the memory map: every array and local has an aligned address inside its part of the arena.

That no two live buffers overlap is a property of the finished program, which `wscc verify` checks.
"""

from __future__ import annotations

from math import prod

from wscc.ir.array import Array
from wscc.ir.memory import ALIGNMENT, Memory, Placement
from wscc.ir.module import Module
from wscc.ir.verify.finding import Findings, Place


def check_memory(m: Module) -> Findings:
    """The mistakes in the memory map of a fabric module, if it has one; its arrays and procedures are right."""
    memory = m.memory
    if memory is None:
        return
    place = Place(f"memory of `{m.name}`", m.spans.memory)
    if not 0 <= memory.live_bytes <= memory.scratch_bytes <= memory.arena_bytes:
        yield place.wrong("bytes live, scratch and arena do not grow in this order")
    if [p.array for p in memory.arrays] != [a.name for a in m.arrays]:
        yield place.wrong("it does not place the arrays of the module, in order")
        return
    for array, placement in zip(m.arrays, memory.arrays, strict=True):
        yield from _placement(m, memory, array, placement)
    for p in m.procedures:
        for b in p.buffers:
            buffer = Place(f"buffer `%{b.name}` of `@{p.name}`", b.span)
            if b.address < 0 or b.address % ALIGNMENT:
                yield buffer.wrong(f"its address {b.address} is not a multiple of {ALIGNMENT}")
            elif b.address + b.bytes > memory.scratch_bytes:
                end = b.address + b.bytes
                yield buffer.wrong(f"it ends at {end}, beyond {memory.scratch_bytes} bytes of scratch")


def _placement(m: Module, memory: Memory, array: Array, p: Placement) -> Findings:
    place = Place(f"array `%{array.name}`", array.span)
    size = prod(array.type.local_shape(m.sizes)) * array.type.dtype.size
    if p.address % ALIGNMENT or p.stride % ALIGNMENT:
        yield place.wrong(f"its address {p.address} and stride {p.stride} are not multiples of {ALIGNMENT}")
    if array.count > 1 and p.stride < size:
        yield place.wrong(f"its stride {p.stride} is less than the {size} bytes of an element")
    end = p.address + p.stride * (array.count - 1) + size
    if array.handed:
        if p.address < 0 or end > memory.scratch_bytes:
            yield place.wrong(
                f"it is handed from call to call, and its bytes {p.address} to {end} are not in the scratch"
            )
    elif p.address < memory.scratch_bytes or end > memory.arena_bytes:
        yield place.wrong(f"its bytes {p.address} to {end} are not between the scratch and the arena's end")
    if array.storage and p.address != memory.placement(array.storage).address:
        yield place.wrong(f"it does not lie where its storage `%{array.storage}` lies")
