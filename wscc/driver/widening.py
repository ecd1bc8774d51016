"""Programs that may widen what they compute: their own graph does, or a pass of a user's own may."""

from __future__ import annotations

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.passes.differentiate import Differentiate

# What the host has written, or an update.
_GIVEN = frozenset({Kind.PARAM, Kind.INPUT})


def widens_results(artifact: Artifact) -> bool:
    """True if the forward or the backward pass widens what is neither a parameter nor data, such as weights of labels
    in a computation in bf16, or gradients of a parameter with all dimensions of an activation; or if a pass that wscc
    does not know has run."""
    return bool(artifact.own_passes) or _widens_results(Differentiate().run(graph_module(artifact.graph)))


def _widens_results(module: Module) -> bool:
    kinds = {a.name: a.kind for a in module.arrays}
    widened = {p.name: inputs for p in module.procedures if (inputs := _widened(p))}
    if any(None in inputs for inputs in widened.values()):
        return True
    return any(
        kinds[call.args[i].array] not in _GIVEN
        for call, _ in calls(module.step)
        for i in widened.get(call.procedure, ())
        if i is not None
    )


def _widened(p: Procedure) -> set[int | None]:
    """The inputs of which a cast widens one, by number; None where it widens what the procedure has computed."""
    numbers: dict[str, int] = {v.name: i for i, v in enumerate(p.inputs)}
    return {numbers.get(op.operands[0].name) for op in p.ops if _widens(op)}


def _widens(op: Op) -> bool:
    if op.kind != "cast":
        return False
    from_, to = op.operands[0].type.dtype, op.results[0].type.dtype
    return from_.is_float and to.is_float and from_.size < to.size
