"""The dimensions that may have pads, by the roots of their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wscc.analysis.equal_dims import Dim
from wscc.disjoint_sets import DisjointSets
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import FORWARD
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.passes.pad.zeros import keeps_zeros


def paddable(module: Module, classes: DisjointSets[Dim]) -> dict[Dim, int]:
    """The size of each class of equal dimensions of a weight in which pads of zeros stay zeros and change nothing.

    A weight has two dimensions or more: what only vectors have, such as gains, is not split.
    """
    unfit = {classes[dim] for dim in (*_fixed(module), *_unfit(module))}
    return {
        classes["", a.name, d]: n
        for a in module.arrays
        if a.kind is Kind.PARAM and len(a.type.shape) > 1
        for d, n in enumerate(a.type.shape)
        if classes["", a.name, d] not in unfit
    }


def _fixed(module: Module) -> Iterator[Dim]:
    """The dimensions of arrays whose sizes stay: of inputs, and of what has pads."""
    for a in module.arrays:
        if a.kind is Kind.INPUT or a.unpadded:
            yield from (("", a.name, d) for d in range(len(a.type.shape)))


def _refused(module: Module, allows: Callable[[Op, str], bool]) -> Iterator[Dim]:
    """The dimensions of forward procedures that an op of it does not allow pads in."""
    for p in module.procedures:
        for op in p.ops if p.name.endswith(FORWARD) else ():
            for v, term in op.terms():
                yield from ((p.name, v.name, d) for d, factor in enumerate(term) if not allows(op, factor))


def _unfit(module: Module) -> Iterator[Dim]:
    """A dimension of each class whose pads would not stay zeros, or could be seen as a row of a statistic."""
    arrays = {a.name: a for a in module.arrays}
    yield from _refused(module, keeps_zeros)
    for p in module.procedures:
        if p.name.endswith(FORWARD):
            yield from _read_with_statistics(p)
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        statistics = _statistics(p)
        for v, ref in zip(p.arguments, call.args, strict=True):
            if v.name in statistics and arrays[ref.array].kind is not Kind.RESIDUAL:
                yield from ((p.name, v.name, d) for d in range(len(v.type.shape)))


def _read_with_statistics(p: Procedure) -> Iterator[Dim]:
    """The dimensions of what an op of a forward procedure reads or gives, if it reads statistics."""
    statistics = _statistics(p)
    for op in p.ops:
        if any(v.name in statistics for v in op.operands):
            for v, _ in op.terms():
                yield from ((p.name, v.name, d) for d in range(len(v.type.shape)))


def _statistics(p: Procedure) -> set[str]:
    """Results of attention besides the first: a maximum and a sum over keys, which is not 0 where the scores are."""
    return {v.name for op in p.ops if op.kind == "attention" for v in op.results[1:]}
