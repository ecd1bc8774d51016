"""The element types of what the graph of a program, and its derivative, compute."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Final

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.interpreter.origins import LINEAR, SUMS, GraphTypes
from wscc.backends.interpreter.type_checks import bound, narrow_operands, narrowest
from wscc.diagnostics import Code, fail
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.types import DType
from wscc.passes.differentiate import Differentiate

# What the host has written, or an update.
_GIVEN: Final = frozenset({Kind.PARAM, Kind.INPUT})
# The instruction of an op, where its name is another.
_OPCODES: Final = {"partial_sum": "add", "embedding_bwd": "scatter_add"}


def graph_types(artifact: Artifact) -> GraphTypes | None:
    """The types of a program's graph, to which those of computed numbers are held in a checked run, whoever made its
    passes; None if all floats have one type, which then never changes."""
    if _have_one_type(artifact):
        return None
    graph = graph_module(artifact.graph)
    return _graph_types(graph, Differentiate().run(graph))


def _have_one_type(artifact: Artifact) -> bool:
    codes = {id(c): c for p in artifact.streams.programs for c in p.procedures}.values()
    types = {o.dtype for c in codes for x in c.body for o in (*x.writes, *x.reads)}
    return sum(t.is_float for t in types) < 2


def require_types(artifact: Artifact) -> None:
    """Raise `CompileError` W501 if an operand is narrower than the model's types say."""
    for code, i, words in narrow_operands(artifact):
        raise fail(Code.ARTIFACT, f"`{code.name}` instruction {i}: {words}")


def _graph_types(graph: Module, derived: Module) -> GraphTypes:
    train = graph.train
    products = [train.compute] if any(starmap(_multiplies_activations, bound(graph, {Kind.PARAM}))) else []
    sums = {opcode: [train.grads] for opcode in SUMS} | {
        "gemm": [train.compute.accumulator, train.grads, *products]
    }
    for op in _of_gradients(derived):
        opcode = _OPCODES.get(op.kind, op.kind)
        if opcode in SUMS:
            sums[opcode] += [v.type.dtype for v in op.results[SUMS[opcode] :]]
    changes = frozenset(c for p in bound(derived, _GIVEN) for c in _changes(*p))
    rounded = frozenset(
        op.results[0].type.dtype
        for p in derived.procedures
        for op in p.ops
        if op.kind == "matmul" and all(x.type.dtype is op.results[0].type.dtype for x in op.operands)
    )
    return GraphTypes(changes, rounded, {opcode: narrowest(types) for opcode, types in sums.items()})


def _of_gradients(derived: Module) -> Iterator[Op]:
    """The ops that compute gradients; a forward op that is recomputed is none."""
    forward = {
        f"{p.name}/{v.name}": op.kind
        for p in derived.procedures
        for op in p.ops
        if not op.origin
        for v in op.results
    }
    for p in derived.procedures:
        for op in p.ops:
            if op.origin and forward.get(op.origin) != op.kind:
                yield op


def _changes(procedure: Procedure, given: set[str]) -> Iterator[tuple[str, DType, DType]]:
    """The changes of type of what the procedure computes, or is not given."""
    for op in procedure.ops:
        if not (op.definition.linear or op.kind in LINEAR):
            continue
        for x in op.operands:
            from_, to = x.type.dtype, op.results[0].type.dtype
            if x.name not in given and from_ is not to:
                opcode = _OPCODES.get(op.kind, op.kind)
                yield opcode if opcode in LINEAR else "cast", from_, to


def _multiplies_activations(procedure: Procedure, parameters: set[str]) -> bool:
    """Whether a product has two operands that depend on more than parameters."""
    constant = set(parameters)
    for op in procedure.ops:
        if all(x.name in constant for x in op.operands):
            constant.update(v.name for v in op.results)
        elif op.kind == "matmul" and not any(x.name in constant for x in op.operands):
            return True
    return False
