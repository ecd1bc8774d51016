"""The step with addresses: each reference to an array element becomes an affine address."""

from __future__ import annotations

from math import prod

from wscc.ir.array import Array
from wscc.ir.memory import Placement
from wscc.ir.module import Module
from wscc.ir.step import Call, Loop, Ref
from wscc.ir.streams.program import Address, ProgramCall, ProgramLoop, ProgramStep


def program_steps(module: Module) -> tuple[ProgramStep, ...]:
    """The step of each stage of a planned module."""
    assert module.memory is not None
    places = {p.array: p for p in module.memory.arrays}
    arrays = {a.name: a for a in module.arrays}

    def address(ref: Ref) -> Address:
        return _address(arrays[ref.array], places[ref.array], ref)

    def convert(step: tuple[Call | Loop, ...]) -> ProgramStep:
        return tuple(
            ProgramLoop(s.variable, s.count, convert(s.body))
            if isinstance(s, Loop)
            else ProgramCall(s.procedure, tuple(map(address, s.args)))
            for s in step
        )

    return tuple(map(convert, module.steps()))


def _address(array: Array, place: Placement, ref: Ref) -> Address:
    """Elements lie in row-major order of the extents."""
    base, terms = place.address, []
    assert len(ref.index) == len(array.extents), f"`{array.name}` takes {len(array.extents)} indices"
    for i, index in enumerate(ref.index):
        stride = place.stride * prod(array.extents[i + 1 :])
        if index.terms:
            terms.append((index, stride))
        else:
            base += index.at({}) * stride
    return Address(base, tuple(terms))
