"""The bytes that a die needs for a sharded module, as far as they are known before anything is lowered."""

from __future__ import annotations

from itertools import accumulate
from math import prod

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Value


def needed_bytes(sharded: Module) -> int:
    """The bytes of arrays on the fullest die, and of the locals of the procedure that has most at once."""
    return peak_array_bytes(sharded) + most_local(sharded)


def most_local(sharded: Module) -> int:
    """The most bytes of locals of a procedure that live at once, each as a whole."""
    return max((_live(sharded, p) for p in sharded.procedures), default=0)


def local_bytes(sharded: Module, v: Value) -> int:
    """The bytes of the part of a value that a die has."""
    return prod(v.type.local_shape(sharded.sizes)) * v.type.dtype.size


def _live(sharded: Module, p: Procedure) -> int:
    arguments = {v.name for v in p.arguments}
    spans: dict[str, tuple[Value, int, int]] = {}
    for i, s in enumerate(p.statements):
        for v in (*s.operands, *s.results):
            if v.name not in arguments:
                spans[v.name] = v, spans.get(v.name, (v, i, i))[1], i
    change = [0] * (len(p.statements) + 1)
    for v, first, last in spans.values():
        change[first] += local_bytes(sharded, v)
        change[last + 1] -= local_bytes(sharded, v)
    return max(accumulate(change), default=0)
