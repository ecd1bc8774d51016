"""An estimate of the seconds of a step from the sharded module alone, by which strategies are ranked.

For each op: the longer of its FLOPs at the efficiency of its tiles, and its bytes in HBM; a stream also hides what it
moves. Reshards are added: rounds of neighbours, on links that groups of inner axes share. A value is taken to lie in
HBM if it is larger than an eighth of the SRAM, an array if those of its stage fill more than half of it.

Rates are those of the wafer (`wscc.analysis.cost`). Left out are queues for links and memories, routes and damage,
copies into SRAM, and that reshards hide behind work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt, prod
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.flops import computed_flops
from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.analysis.op_axes import working_axes
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import Call, Loop, calls

_LOCAL_SHARE: Final = 8
_ARRAY_SHARE: Final = 2
# Of a group of n, the shares of the whole tensor that cross a link, per ring direction.
_PASSES: Final = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}


def estimate(sharded: Module, microbatches: int) -> float:
    """The seconds of a step of so many micro-batches, of which the module has some: those of the slowest stage, times
    (m v + p - 1) / (m v) for filling the pipeline (p stages, m micro-batches, v chunks of layers on a stage)."""
    machine = sharded.machine
    costs = _Costs(sharded, Rates.of(machine), peak_array_bytes(sharded) * _ARRAY_SHARE > machine.die.sram)
    seconds = {p.name: costs.procedure(p) for p in sharded.procedures}
    more, of_tokens = microbatches / sharded.train.microbatches, _of_tokens(sharded)

    def step_seconds(step: tuple[Call | Loop, ...]) -> float:
        return sum(
            times * seconds[c.procedure] * (1 if of_tokens.isdisjoint(ref.array for ref in c.args) else more)
            for c, times in calls(step)
        )

    slots = microbatches * (sharded.train.interleave if sharded.stages > 1 else 1)
    return max(map(step_seconds, sharded.steps())) * (slots + sharded.stages - 1) / slots


def _of_tokens(module: Module) -> frozenset[str]:
    """The arrays that calls for one micro-batch touch, and no others: inputs, and what is computed of them, but for
    gradients of parameters that stages exchange."""
    parameters = {a.of or a.name for a in module.arrays if a.kind is Kind.PARAM}
    return frozenset(
        a.name
        for a in module.arrays
        if a.kind in (Kind.INPUT, Kind.RESIDUAL)
        or (a.kind is Kind.CARRIED and not (a.relation and a.relation.array in parameters))
    )


@dataclass(slots=True)
class _Costs:
    module: Module
    rates: Rates[float]
    arrays_in_hbm: bool
    hops: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The hops between peers: on an outer axis about the width of a square of the dies of the inner axes."""
        inner = 1
        for axis, size in reversed(self.module.axes):
            self.hops[axis] = isqrt(inner - 1) + 1 if inner > 1 else 1
            inner *= size

    def procedure(self, p: Procedure) -> float:
        arguments = {v.name for v in p.arguments}
        return sum(
            self._reshard(s, arguments) if isinstance(s, Reshard) else self._op(s, arguments)
            for s in p.statements
        )

    def _op(self, op: Op, arguments: set[str]) -> float:
        work = max(self._compute(op), self._hbm(op, arguments))
        if op.stream is None:
            return work
        whole = self.module.sizes[op.stream.axis] * sum(map(self._local, self._moving(op)))
        return max(work, self._moved(op.stream.axis, whole, 1)) + self._latency(op.stream.axis)

    # -- work on a die ----------------------------------------------------------------------------------

    def _compute(self, op: Op) -> float:
        if not op.flops:
            return 0.0
        split = prod(self.module.sizes[a] for a in working_axes(op))
        flops = float(computed_flops(op, self.module)) / split
        return self.rates.die.compute(flops / self._efficiency(op))

    def _efficiency(self, op: Op) -> float:
        """Part of the peak that the products of a die reach."""
        local: dict[str, int] = {}
        for value, term in op.terms():
            for factor, n in zip(term, value.type.local_shape(self.module.sizes), strict=True):
                local[factor] = max(n, local.get(factor, 1))
        if op.stream is not None:
            factor = op.stream.factor
            local[factor] = max(1, local[factor] // self.module.sizes[op.stream.axis])
        a, b, out = op.rule.ins[0], op.rule.ins[1], op.rule.outs[0]
        if op.definition.positional:  # products of queries, keys and widths, one for each head
            sides = [local[a[1]], local[b[1]], local[a[-1]]]
        else:
            rows, columns, inner = set(a) - set(b), set(b) - set(a), (set(a) & set(b)) - set(out)
            sides = [prod(local[f] for f in side) for side in (rows, columns, inner)]
        return self.rates.die.efficiency(sides)

    def _hbm(self, op: Op, arguments: set[str]) -> float:
        """A turn of a stream passes over all that is not cut in chunks; what moves is read where it rests, then lies in
        slots."""
        turns = self.module.sizes[op.stream.axis] if op.stream else 1
        moving = self._moving(op)
        amounts: dict[str, int] = {}
        for v, term in op.terms():
            if self._in_hbm(v, arguments):
                is_cut = op.stream is not None and op.stream.factor in term
                amounts[v.name] = self._local(v) * (1 if v in moving or is_cut else turns)
        if op.definition.table is not None:
            amounts.pop(op.operands[op.definition.table].name, None)
        return self.rates.die.hbm(sum(amounts.values()))

    def _moving(self, op: Op) -> list[Value]:
        if op.stream is None:
            return []
        return [
            *(op.operands[i] for i in op.stream.moving_in),
            *(op.results[j] for j in op.stream.moving_out),
        ]

    def _in_hbm(self, v: Value, arguments: set[str]) -> bool:
        """Whether the value is taken to lie in HBM."""
        if v.name in arguments and self.arrays_in_hbm:
            return True
        return self._local(v) * _LOCAL_SHARE > self.module.machine.die.sram

    def _local(self, v: Value) -> int:
        return prod(v.type.local_shape(self.module.sizes)) * v.type.dtype.size

    # -- links ------------------------------------------------------------------------------------------

    def _reshard(self, op: Reshard, arguments: set[str]) -> float:
        ends = (op.operand, op.result)
        memory = self.rates.die.hbm(sum(self._local(v) for v in ends if self._in_hbm(v, arguments)))
        if op.kind in ("slice", "mask"):
            return memory
        axis = op.axis
        whole = max(map(self._local, ends))
        if op.kind in _PASSES:
            moved = self._moved(axis, whole, _PASSES[op.kind])
        elif op.kind == "all_to_all":
            moved = self._over(axis, whole * self.module.sizes[axis] // 8)
        else:
            moved = self._over(axis, whole)
        return max(moved, memory) + self._latency(axis)

    def _moved(self, axis: str, whole: int, passes: int) -> float:
        """Shards go round both ways; two dies exchange theirs."""
        n = self.module.sizes[axis]
        return self._over(axis, passes * whole * (n - 1) // n // (2 if n > 2 else 1))

    def _over(self, axis: str, amount: int) -> float:
        return self.rates.link.busy(amount * self.hops[axis])

    def _latency(self, axis: str) -> float:
        rounds = max(1, self.module.sizes[axis] // 2)
        return rounds * self.hops[axis] * self.rates.link.latency
