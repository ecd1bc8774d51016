"""Seconds that a die takes for the ops of a sharded procedure, before it is lowered: an estimate to compare parts of a
model by."""

from __future__ import annotations

from math import prod

from wscc.analysis.cost import DieRates
from wscc.analysis.flops import computed_flops
from wscc.analysis.op_axes import working_axes
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op


def procedure_seconds(module: Module, procedure: Procedure) -> float:
    """Seconds of one call on a die: of each op its work at the peak, or the bytes of its operands and results at the
    bandwidth of the HBM, whichever is longer. Left out are messages, the SRAM and tiles that are not full."""
    rates = DieRates.of(module.die)
    return sum(max(_work(op, module, rates), _access(op, module, rates)) for op in procedure.ops)


def _work(op: Op, module: Module, rates: DieRates[float]) -> float:
    if not op.flops:
        return 0.0
    split = prod(module.sizes[a] for a in working_axes(op))
    return rates.compute(float(computed_flops(op, module)) / split)


def _access(op: Op, module: Module, rates: DieRates[float]) -> float:
    values = [v for i, (v, _) in enumerate(op.terms()) if i != op.definition.table]
    return rates.hbm(sum(v.type.dtype.size * prod(v.type.local_shape(module.sizes)) for v in values))
