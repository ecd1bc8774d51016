"""Programs of a single reshard, by a given algorithm, on the dies of a module: what they take is what the reshard will.

An estimate adds up rounds. In a program, messages go in the order in which `schedule` posts and sends, which is one for
all dies, `route` leads them around full links, and those of several hops meet there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from wscc.diagnostics import Code, CompileError
from wscc.ir.array import Array, Kind
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import Value
from wscc.ir.step import Call, Ref
from wscc.ir.types import DType, Layout, TensorType
from wscc.ir.views import whole_view
from wscc.passes.lower_collectives.algorithm import Algorithm, Lone, Reduction
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.reshards import all_gather, all_reduce, axis_groups, reduce_scatter

_NAME: Final = "alone"
_TYPES: Final = {t.size: t for t in DType}


def rehearse(
    module: Module, seconds: Callable[[Module], float], lone: Lone, by: Algorithm | Reduction
) -> float:
    """Seconds of a reshard of a module whose dies are placed, in all groups of its axis at once; `seconds` gives those
    of the step of a lowered module. Infinite where it has no room."""
    try:
        return seconds(_program(module, lone, by))
    except CompileError as error:
        if error.diagnostics[0].code is not Code.OUT_OF_MEMORY:
            raise
        return inf


def _program(module: Module, lone: Lone, by: Algorithm | Reduction) -> Module:
    long = (module.sizes[lone.axis] * lone.shape[0], *lone.shape[1:])
    x = _value("x", long if lone.kind == "reduce_scatter" else lone.shape, lone.element)
    y = _value("y", long if lone.kind == "all_gather" else lone.shape, lone.element)
    build = FabricBuilder(LogicalMesh(module.axes), {}, [], Names({"x", "y"}))
    read, written = (whole_view(v.name, v.type.shape, v.type.dtype) for v in (x, y))
    if isinstance(by, Reduction):
        all_reduce(axis_groups(build, lone.axis, by.gather), by, read, written, _NAME)
    else:
        lower = all_gather if lone.kind == "all_gather" else reduce_scatter
        lower(axis_groups(build, lone.axis, by), read, written, 0, _NAME)
    buffers = tuple(build.buffers.values())
    procedure = Procedure(_NAME, (x,), (Output(y),), tuple(build.body), buffers)
    return module.with_(
        level=Level.FABRIC,
        arrays=tuple(Array(v.name, v.type, Kind.CARRIED) for v in (x, y)),
        procedures=(procedure,),
        step=(Call(_NAME, (Ref(x.name), Ref(y.name))),),
        contents={},
    )


def _value(name: str, shape: tuple[int, ...], element: int) -> Value:
    return Value(name, TensorType(shape, _TYPES[element]).with_layout(Layout(((),) * len(shape))))
