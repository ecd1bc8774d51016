"""A check that no operand of an instruction is narrower than the types of a model say.

Arithmetic reads at least the type of computation; what `InstructionDef` calls sums is kept in the type in which that
is added up, f32 for bf16; an update reads and writes parameters and gradients in theirs. Results of arithmetic may be
gradients of parameters, and so may be narrower than computation, if these are; and it may read such gradients where
the graph computes something of parameters alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import starmap

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.step import calls
from wscc.ir.streams.instruction_def import InstructionDef
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Code, Instruction
from wscc.ir.train import Train
from wscc.ir.types import DType


def narrow_operands(artifact: Artifact) -> Iterator[tuple[Code, int, str]]:
    """Each instruction with an operand that is too narrow: its procedure, its number and what is wrong, in words."""
    graph = graph_module(artifact.graph)
    train, known = graph.train, dict[tuple[str, ...], str]()
    reads_gradients = any(starmap(_computes_on_parameters, bound(graph, {Kind.PARAM})))
    for code in {id(c): c for p in artifact.streams.programs for c in p.procedures}.values():
        wrong: dict[int, str] = {}  # by id of the instruction
        for x in {id(x): x for x in code.body}.values():
            key = (x.opcode, *[o.dtype for o in x.writes], *[o.dtype for o in x.reads])
            if key not in known:
                known[key] = next(_mistakes(x, train, reads_gradients), "")
            if known[key]:
                wrong[id(x)] = known[key]
        for i, x in enumerate(code.body if wrong else ()):
            if id(x) in wrong:
                yield code, i, wrong[id(x)]


def _mistakes(x: Instruction, train: Train, reads_gradients: bool) -> Iterator[str]:
    row, writes = INSTRUCTIONS[x.opcode], len(x.writes)
    for n, (name, o) in enumerate(zip(row.names, (*x.writes, *x.reads), strict=True)):
        least = _least(row, name, train, gradients=n < writes or reads_gradients)
        if o.dtype.is_float and o.dtype.size < least.size and not row.any_type:
            yield (
                f"`{name}` of `{x.opcode}` is {o.dtype}, and computation in {train.compute} with parameters in"
                f" {train.params} and gradients in {train.grads} has at least {least} there"
            )


def _least(row: InstructionDef, name: str, train: Train, *, gradients: bool) -> DType:
    """The narrowest type that an operand of arithmetic may have, which may be `gradients` of parameters."""
    if name in row.sums:
        return train.compute.accumulator
    if name in row.doubles:
        return DType.F64
    if row.updates:
        return train.params if name == "w" else train.grads
    return narrowest([train.compute, train.grads] if gradients or row.gradients else [train.compute])


def narrowest(types: Iterable[DType]) -> DType:
    """The narrowest of some types of floats."""
    return min(types, key=lambda t: t.size)


def bound(module: Module, kinds: Iterable[Kind]) -> Iterator[tuple[Procedure, set[str]]]:
    """Each procedure, with those of its inputs to which all calls bind arrays of these kinds alone."""
    kind_of = {a.name: a.kind for a in module.arrays}
    others: dict[str, set[int]] = {}
    for call, _ in calls(module.step):
        found = {i for i, ref in enumerate(call.args) if kind_of[ref.array] not in kinds}
        others.setdefault(call.procedure, set()).update(found)
    for p in module.procedures:
        yield p, {v.name for i, v in enumerate(p.inputs) if i not in others.get(p.name, set())}


def _computes_on_parameters(procedure: Procedure, parameters: set[str]) -> bool:
    """Whether an op has parameters alone, and is no conversion of one."""
    weights = set(parameters)
    for op in procedure.ops:
        if op.operands and all(x.name in weights for x in op.operands):
            if op.kind != "cast":
                return True
            weights.update(v.name for v in op.results)
    return False
