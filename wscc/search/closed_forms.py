"""Lower bounds of plans from the model alone, in closed form: seconds of a step, and bytes of a die.

They hold for whatever the passes make of a plan, as long as a micro-batch goes through the layers in their order,
there and back, and every split is even. They are used to leave candidates out, never to rank them.

*compute*: FLOPs of the model at the peak of the dies used. On p stages with m micro-batches, stage k works on its first
after the stages before it, which end after its last: step >= w_1 + .. + w_(k-1) + m w_k for the seconds w of a
micro-batch, forward and backward. However W = w_1 + .. + w_p is divided, one of these is at least
W / (1 - (1 - 1 / m)^p); for equal stages it is W (m + p - 1) / p (GPipe, arXiv 1811.06965, section 2.3).

*hbm*: a pass over X bytes reads at least X - SRAM of them from HBM. Each micro-batch passes over the weights of its
products forward and backward; the update reads weights, gradients and state, and writes weights and state.

Rates are those of the wafer (`wscc.analysis.cost`). Left out, as all of it only adds: links, tiles that are not full,
bytes of activations, and waiting of any kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from wscc.analysis.cost import DieRates
from wscc.analysis.experts import expert_counts
from wscc.analysis.flops import model_flops
from wscc.analysis.memory.array_layout import array_bytes
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.machine.wafer import Wafer
from wscc.search.space import CHOICES, Scale, Strategy, Values, replicas_of, stages_of
from wscc.strategy import dies_of, policy, store


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of all programs of some plans: seconds of a step, and bytes of a die."""

    compute: float
    hbm: float
    bytes: int

    @property
    def seconds(self) -> float:
        return max(self.compute, self.hbm)


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """The terms of the bounds that all plans of a program share."""

    wafer: Wafer
    scale: Scale
    flops: int
    # Bytes of the weights of products, in the smaller of the types in which they are stored and multiplied.
    streamed: int
    stored: dict[Kind, int]  # bytes of parameters, gradients and optimizer state

    @staticmethod
    def of(graph: Module, step: Module) -> ClosedForms:
        """The terms of a forward module `graph`, and of the same differentiated, `step`, both on one die."""
        sizes = array_bytes(step)
        stored = {k: sum(sizes[a.name] for a in step.arrays if a.kind is k) for k in _STORED}
        layers = max(times for _, times in calls(graph.step)) // graph.train.microbatches
        return ClosedForms(
            graph.machine, Scale(graph.train.batch, layers, gcd(*expert_counts(graph)) or 1),
            model_flops(graph) - _masked(graph),
            _multiplied(graph), stored,
        )  # fmt: skip

    def bound(self, strategy: Strategy, values: Values) -> Bound:
        """The lower bounds of all plans of a strategy whose choices take one of these values each."""
        of = {
            choice.key: list(map(int, v)) for choice, v in zip(CHOICES, values, strict=True) if not _words(v)
        }
        zero = max(of["zero"])
        calls_ = [max(1, self.scale.batch // (dies_of(replicas_of(strategy)) * m)) for m in of["microbatch"]]
        owned = {kind: amount // _shards(strategy, kind, zero) for kind, amount in self.stored.items()}
        compute = self._compute(strategy, max(calls_), max(of["interleave"]))
        hbm = self._hbm(owned, self.streamed // _shards(strategy, Kind.PARAM, zero), min(calls_))
        return Bound(compute, hbm, sum(owned.values()))

    def _compute(self, strategy: Strategy, m: int, interleave: int) -> float:
        stages = stages_of(strategy)
        plain = DieRates.of(self.wafer.die).compute(self.flops / dies_of(strategy))
        if stages == 1 or interleave > 1:
            return plain
        return float(plain * stages / (m * (1 - (1 - 1 / m) ** stages)))

    def _hbm(self, owned: dict[Kind, int], weights: int, microbatches: int) -> float:
        sram, rates = self.wafer.die.sram, DieRates.of(self.wafer.die)
        if not rates.has_hbm:
            return 0.0
        written = owned[Kind.PARAM] + owned[Kind.STATE]
        passed = 2 * microbatches * max(0, weights - sram)
        return rates.hbm(passed + sum(max(0, n - sram) for n in (written + owned[Kind.GRAD], written)))


def _words(values: Sequence[str]) -> bool:
    """Whether the values are words, not numbers: none of the bounds depends on those."""
    return not all(v.isdigit() for v in values)


_STORED = (Kind.PARAM, Kind.GRAD, Kind.STATE)


def _shards(strategy: Strategy, kind: Kind, zero: int) -> int:
    """The most shards of parameters, or of their gradients and state (by kind), under a strategy."""

    def cuts(axis: str) -> bool:
        split = policy(axis).splits != "tokens" or store(axis, zero) == "shard"
        return split or (kind is not Kind.PARAM and store(axis, zero) == "state")

    return prod(n for a, n in strategy if cuts(a))


def _masked(graph: Module) -> int:
    """The FLOPs of attention that a causal mask may skip, forward and backward."""
    return 3 * sum(
        times * op.flops // 2
        for call, times in calls(graph.step)
        for op in graph.procedure(call.procedure).ops
        if op.definition.positional and op.flops and op.attr("causal")
    )


def _multiplied(graph: Module) -> int:
    """The bytes of the parameters that are operands of products; a tied one counts once."""
    size = min(graph.train.params.size, graph.train.compute.size)
    weights: set[str] = set()
    for call, _ in calls(graph.step):
        procedure = graph.procedure(call.procedure)
        heavy = _heavy_operands(procedure.ops)
        weights |= {
            ref.array
            for v, ref in zip(procedure.inputs, call.args, strict=False)
            if v.name in heavy and graph.array(ref.array).kind is Kind.PARAM
        }
    return sum(a.count * a.type.elements * size for a in graph.arrays if a.name in weights)


def _heavy_operands(ops: tuple[Op, ...]) -> set[str]:
    """The names of values that products read, as they are or converted."""
    heavy = {v.name for op in ops if op.definition.heavy for v in op.operands}
    return heavy | {op.operands[0].name for op in ops if op.kind == "cast" and op.results[0].name in heavy}
