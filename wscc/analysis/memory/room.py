"""An upper bound of the memory that a die needs, known before anything is lowered."""

from __future__ import annotations

from math import prod
from typing import Final

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.ir.memory import aligned
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op

# Of the whole values of a procedure: buffers of messages, slices on their way, sums, and what packing leaves empty.
_COPIES: Final = 4


def most_bytes(sharded: Module) -> int:
    """More bytes than any plan of the module takes on a die: its arrays there, and each value of the largest procedure
    as if one die held all of it, several times over."""
    return peak_array_bytes(sharded) + _COPIES * max(map(_whole_bytes, sharded.procedures), default=0)


def _whole_bytes(procedure: Procedure) -> int:
    """Bytes of all values of a procedure, unsplit, each aligned."""
    values = {v.name: v for v in (*procedure.inputs, *(o.value for o in procedure.outputs))}
    for stmt in procedure.statements:
        results = stmt.results if isinstance(stmt, Op) else (stmt.result,)
        values.update((v.name, v) for v in results)
    return sum(aligned(prod(v.type.shape) * v.type.dtype.size) for v in values.values())
