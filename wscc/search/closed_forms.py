"""Lower bounds of plans from the model alone, in closed form: seconds of a step, and bytes of a die.

They hold for whatever the passes make of a plan, as long as a micro-batch goes through the layers in their order,
there and back, and every split is even. They are used to leave candidates out, never to rank them.

*compute*: FLOPs of the model at the peak of the dies used. On p stages with m micro-batches, stage k works on its first
after the stages before it, which end after its last: step >= w_1 + .. + w_(k-1) + m w_k for the seconds w of a
micro-batch, forward and backward. However W = w_1 + .. + w_p is divided, one of these is at least
W / (1 - (1 - 1 / m)^p); for equal stages it is W (m + p - 1) / p (GPipe, arXiv 1811.06965, section 2.3). Of L layers,
which are never cut, some stage has at least L / p, rounded up.

*hbm*: a pass over X bytes reads at least X - SRAM of them from HBM. Each micro-batch passes over the weights of its
products forward and backward; the update reads weights, gradients and state, and writes weights and state.

*bytes*: of W bytes that rest on all stages, and S that the forward pass of a micro-batch saves, stage k holds its part
w_k of W + f_k S, where f_k = min(p - k, m) micro-batches are in flight behind it (1F1B, arXiv 1806.03377). However the
parts are divided, the fullest die holds at least 1 / sum(1 / (W + f_k S)). Interleaved chunks hold no less. Of what
rests for L layers, some stage holds that of at least L / p, rounded up.

Rates are those of the wafer (`wscc.analysis.cost`). Left out, as all of it only adds: links, tiles that are not full,
bytes of activations, and waiting of any kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd, prod

from wscc.analysis.cost import DieRates
from wscc.analysis.experts import expert_counts
from wscc.analysis.memory.array_layout import array_bytes
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.machine.wafer import Die, Wafer
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
    # Bytes that one sequence saves for its backward pass, by what is recomputed.
    saved: dict[str, int] = field(default_factory=dict)
    layered: int = 0  # of the FLOPs, those of the layers
    # Of `stored`, the bytes of which each layer has a part.
    stored_layered: dict[Kind, int] = field(default_factory=dict)

    @staticmethod
    def of(graph: Module, step: Module, saved: dict[str, int]) -> ClosedForms:
        """The terms of a forward module `graph`, and of the same differentiated, `step`, both on one die."""
        sizes = array_bytes(step)
        layers = max(times for _, times in calls(graph.step)) // graph.train.microbatches
        of_layers = [a for a in step.arrays if a.extents[:1] == (layers,)]
        stored, stored_layered = (
            {k: sum(sizes[a.name] for a in arrays if a.kind is k) for k in _STORED}
            for arrays in (step.arrays, of_layers)
        )
        all_flops, layered = _flops(graph)
        return ClosedForms(
            graph.machine, Scale(graph.train.batch, layers, gcd(*expert_counts(graph)) or 1), all_flops,
            _multiplied(graph), stored, saved, layered, stored_layered,
        )  # fmt: skip

    @property
    def die(self) -> Die:
        """The highest peak, the most memory and the highest bandwidth of any die: no program is faster than on it."""
        return reduce(Die.most, (die for _, die in self.wafer.unlike), self.wafer.die)

    def bound(self, strategy: Strategy, values: Values) -> Bound:
        """The lower bounds of all plans of a strategy whose choices take one of these values each."""
        of = {
            choice.key: list(map(int, v)) for choice, v in zip(CHOICES, values, strict=True) if not _words(v)
        }
        zero = max(of["zero"])
        calls_ = [max(1, self.scale.batch // (dies_of(replicas_of(strategy)) * m)) for m in of["microbatch"]]
        owned, of_layers = (
            {kind: amount // self._shards(strategy, kind, zero) for kind, amount in stored.items()}
            for stored in (self.stored, self.stored_layered)
        )
        compute = self._compute(strategy, max(calls_), max(of["interleave"]))
        hbm = self._hbm(owned, self.streamed // self._shards(strategy, Kind.PARAM, zero), min(calls_))
        words = next(v for choice, v in zip(CHOICES, values, strict=True) if choice.key == "recompute")
        saved = min(of["microbatch"]) * min(self.saved.get(word, 0) for word in words)
        rests = self._bytes(strategy, sum(owned.values()), saved, min(calls_))
        return Bound(compute, hbm, max(rests, int(sum(of_layers.values()) * self._fullest(strategy))))

    def _shards(self, strategy: Strategy, kind: Kind, zero: int) -> int:
        """The most shards of parameters, or of their gradients and state (by kind), under a strategy. Any axis may
        share out experts."""

        def cuts(axis: str) -> bool:
            split = policy(axis).splits != "tokens" or store(axis, zero) == "shard"
            split |= self.scale.experts > 1
            return split or (kind is not Kind.PARAM and store(axis, zero) == "state")

        return prod(n for a, n in strategy if cuts(a))

    def _fullest(self, strategy: Strategy) -> float:
        """The layers of the stage that has most, over the mean."""
        stages = stages_of(strategy)
        return -(-self.scale.layers // stages) * stages / self.scale.layers

    def _bytes(self, strategy: Strategy, rests: int, saved: int, m: int) -> int:
        """Bytes of the fullest die: of what rests on a die where all stages are alike, and of what all dies of a
        replica save for a micro-batch."""
        p = stages_of(strategy)
        share = saved * dies_of(replicas_of(strategy)) / dies_of(strategy)
        parts = [rests + min(p - k, m) * share for k in range(p)]
        return int(p / sum(1 / part for part in parts)) if all(parts) else 0

    def _compute(self, strategy: Strategy, m: int, interleave: int) -> float:
        stages = stages_of(strategy)
        plain = DieRates.of(self.die).compute(self.flops / dies_of(strategy))
        layers = self._fullest(strategy) * plain * self.layered / self.flops if self.flops else 0.0
        if stages == 1 or interleave > 1:
            return max(plain, layers)
        return max(layers, plain * stages / (m * (1 - (1 - 1 / m) ** stages)))

    def _hbm(self, owned: dict[Kind, int], weights: int, microbatches: int) -> float:
        sram, rates = self.die.sram, DieRates.of(self.die)
        if not rates.has_hbm:
            return 0.0
        written = owned[Kind.PARAM] + owned[Kind.STATE]
        passed = 2 * microbatches * max(0, weights - sram)
        return rates.hbm(passed + sum(max(0, n - sram) for n in (written + owned[Kind.GRAD], written)))


def _words(values: Sequence[str]) -> bool:
    """Whether the values are words, not numbers: none of the bounds depends on those."""
    return not all(v.isdigit() for v in values)


_TRAINED = 3  # FLOPs of the forward and the backward pass, of those of the forward pass
_STORED = (Kind.PARAM, Kind.GRAD, Kind.STATE)


def _flops(graph: Module) -> tuple[int, int]:
    """The FLOPs of a step, forward and backward, and of these the ones of its layers; without those of attention that a
    causal mask may skip."""
    found = [
        (times, _TRAINED * times * sum(map(_unmasked, graph.procedure(call.procedure).ops)))
        for call, times in calls(graph.step)
    ]
    most = max(times for times, _ in found)
    return sum(n for _, n in found), max(n for times, n in found if times == most)


def _unmasked(op: Op) -> int:
    skips = op.flops and op.definition.positional and op.attr("causal")
    return op.flops - op.flops // 2 if skips else op.flops


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
