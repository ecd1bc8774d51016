"""Parameters that are matrices, which the usual rule of weight decay is for: biases and gains are not."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.analysis.sequence_dims import SequenceDims
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls


def matrices(module: Module) -> frozenset[str]:
    """The parameters of a forward module with two dimensions or more that are a weight or a table, each by its use:

    - an operand of a product (`@`, `project`), whatever its dimensions: `[d, kv, group, e]` too;
    - the table of an `embedding`;
    - a table of positions: one of its dimensions is the sequence.

    It may be cast, scaled, split or combined with other parameters on the way. A bias or a gain is none of these,
    though it may have two dimensions, as `[kv, e]`. In PyTorch, where these are flat, the same are those with
    `p.dim() >= 2`.
    """
    ranks = {a.name: len(a.type.shape) for a in module.arrays if a.kind is Kind.PARAM}
    # The parameters that each array is made of, and nothing else: of a parameter, itself.
    sources: dict[str, frozenset[str]] = {n: frozenset((n,)) for n in ranks}
    sequences = SequenceDims.of(module).arrays
    found = {n for n in ranks if sequences[n]}
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        made = {
            v.name: sources[ref.array]
            for v, ref in zip(p.inputs, call.args, strict=False)
            if ref.array in sources
        }
        found.update(n for used in _uses(p, made) for n in used)
        for out, ref in zip(p.outputs, call.args[len(p.inputs) :], strict=True):
            if out.value.name in made:
                sources[ref.array] = made[out.value.name]
    return frozenset(n for n in found if ranks[n] >= 2)


def _uses(procedure: Procedure, made: dict[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """The parameters that each product or table is made of; `made` gets the values made of parameters alone."""
    for op in procedure.ops:
        yield from (made[v.name] for i, v in enumerate(op.operands) if v.name in made and _is_weight(op, i))
        if op.operands and all(v.name in made for v in op.operands):
            of = frozenset().union(*(made[v.name] for v in op.operands))
            made.update((v.name, of) for v in op.results)


def _is_weight(op: Op, operand: int) -> bool:
    """Whether this operand of an op is a matrix of a product, or a table of rows."""
    return op.definition.form == "contraction" or (op.kind == "embedding" and op.definition.table == operand)
