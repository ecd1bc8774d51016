"""A beam search for the sharding of every forward op: one factor of the op, or none, for each axis.

The search takes one axis after the other and walks the forward ops in order. A state holds, for each live value, its
sharding along the axis, the shardings of its copies, and the shardings in which its gradients arrive. The price of a
choice counts the work of the op, the reshards of its operands and the mirrored reshards of the backward pass, so that
the backward pass needs no search of its own. Work inside a `repeat` counts once for each layer, and the result that a
layer carries to the next must have the sharding of its operand. After each op the cheapest `BEAM` states remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from typing import NamedTuple

from wscc.ir.types import Reduction
from wscc.passes.partition.chain import Boundary, Chain, OpInstance
from wscc.passes.partition.expert_axes import factors_of
from wscc.passes.partition.layouts import PARTIAL, can_shard
from wscc.passes.partition.prices import Prices
from wscc.strategy import SEQUENCE, policy, search_order, store

# Sharding of a value along one axis: the dimension split, None (replicated), or partial sums or maxima.
State = int | None | Reduction
Choice = str | None

# Entries that are kept after each op, and among them those that differ only in copies and gradients of values: without
# a limit these crowd out ways that cost more at first.
BEAM = 100
ALIKE = 2


class LiveValue(NamedTuple):
    """Shardings of a value that later ops read: as its op gives it (`native`), of all its copies, of its gradients."""

    native: State
    copies: frozenset[State]
    grads: frozenset[State] = frozenset()


Assigned = dict[tuple[str, str], dict[str, str]]


class _Node(NamedTuple):
    """An entry of the beam: its price, and the last choice with the entry before it."""

    cost: float
    before: _Node | None = None
    key: tuple[str, str] | None = None
    choice: Choice = None


# By the live values, in order of their names.
_Beam = dict[tuple[tuple[str, LiveValue], ...], _Node]


@dataclass(slots=True)
class _Shared:
    """What many entries of the beam ask about one item of the chain: the factors that may be split; by choice, the
    price of the work and the results; by operand, choice and what the operand is, the price of resharding it and what
    it is then; the names that nobody reads any more, by name and value their prices. Entries have the same names."""

    allowed: list[Choice] | None = None
    done: dict[Choice, tuple[float, tuple[tuple[str, LiveValue], ...]]] = field(default_factory=dict)
    reshards: dict[tuple[int, Choice, LiveValue | None], tuple[float, LiveValue]] = field(
        default_factory=dict
    )
    ending: list[str] | None = None
    retired: dict[tuple[str, LiveValue], float] = field(default_factory=dict)


class Search:
    """The search, axis by axis; `assigned[key][axis]` is a factor of the op, or `+` where partial sums pass it.

    `sizes` are the degrees of the axes inside a stage, `seeds` the dimension of each input that an axis splits, `zero`
    the level of ZeRO (Rajbhandari et al., arXiv 1910.02054), which decides the axes that shard parameters.
    """

    def __init__(
        self, chain: Chain, sizes: dict[str, int], seeds: dict[str, dict[str, int]], prices: Prices,
        zero: int = 0,
    ) -> None:  # fmt: skip
        self.prices = prices
        self.zero = zero
        self.chain = chain
        self.sizes = sizes
        self.seeds = seeds
        self.assigned: Assigned = {s.key: {} for s in chain.instances}
        self._last_use = {name: i for i, item in enumerate(chain.items) for name in _uses(item)}
        self._elements = {
            name: v.type.elements
            for s in chain.instances
            for name, v in (
                *zip(s.operands, s.op.operands, strict=True), *zip(s.results, s.op.results, strict=True)
            )
        }  # fmt: skip

    def run(self) -> Assigned:
        for axis in search_order(self.sizes):
            for key, choice in self._search_axis(axis):
                if choice is not None:
                    self.assigned[key][axis] = choice
        return self.assigned

    # -- one axis ---------------------------------------------------------------------------------------

    def _search_axis(self, axis: str) -> Iterable[tuple[tuple[str, str], Choice]]:
        beam: _Beam = {(): _Node(0.0)}
        for position, item in enumerate(self.chain.items):
            op_key = item.key if isinstance(item, OpInstance) else None
            shared, successors = _Shared(), _Beam()
            for state, node in beam.items():
                for live, price, choice in self._transitions(axis, item, dict(state), shared):
                    cost = node.cost + (price + self._retire(axis, live, position, shared))
                    key = tuple(sorted(live.items(), key=itemgetter(0)))
                    before = successors.get(key)
                    if before is None or cost < before.cost:
                        successors[key] = _Node(cost, node, op_key, choice)
            beam = _pruned(successors)
        entry: _Node | None = min(beam.values(), key=lambda n: n.cost)
        while entry is not None:
            if entry.key is not None:
                yield entry.key, entry.choice
            entry = entry.before

    def _transitions(
        self, axis: str, item: OpInstance | Boundary, live: dict[str, LiveValue], shared: _Shared
    ) -> Iterable[tuple[dict[str, LiveValue], float, Choice]]:
        if isinstance(item, Boundary):
            yield self._cross_boundary(axis, item, live)
            return
        if shared.allowed is None:
            shared.allowed = self.splittable(axis, item)
        for choice in self._options(axis, item, live, shared.allowed):
            if choice not in shared.done:
                shared.done[choice] = self._work_price(axis, item, choice), self._results(item, choice)
            price, results = shared.done[choice]
            after = dict(live)
            for i, name in enumerate(item.operands):
                asked = i, choice, after.get(name)
                found = shared.reshards.get(asked)
                if found is None:
                    found = self._resharded(axis, item, i, choice, after.get(name))
                    shared.reshards[asked] = found
                price, after[name] = price + found[0], found[1]
            after.update(results)
            yield after, price * item.times, choice

    def _cross_boundary(
        self, axis: str, boundary: Boundary, live: dict[str, LiveValue]
    ) -> tuple[dict[str, LiveValue], float, Choice]:
        after, price = dict(live), 0.0
        for name in boundary.pins:
            pinned = live[name]
            after[f"pin {name}"] = LiveValue(pinned.native, frozenset())
        for inner, outer in boundary.renames:
            value, overwritten = after[inner], after.get(outer)
            native: State = value.native if isinstance(value.native, int) else None
            if f"pin {outer}" in after:
                native = after.pop(f"pin {outer}").native
            elements = float(self._elements[inner])
            price += 2 * self._state_cost(axis, value.native, native, elements) * boundary.times
            if overwritten is not None:
                price += self._gradient_reshards(axis, overwritten, elements) * boundary.times
            after[outer] = LiveValue(native, frozenset([native]))
        return after, price, None

    # -- choices ----------------------------------------------------------------------------------------

    def _options(
        self, axis: str, instance: OpInstance, live: dict[str, LiveValue], allowed: list[Choice]
    ) -> list[Choice]:
        """Those of the allowed factors that `axis` may split; None stands for replicated work."""
        rule = instance.op.rule
        if policy(axis).splits == "experts" and (experts := factors_of(instance, self.chain)):
            return [f for f in experts if f in allowed]
        if policy(axis).splits != "weights":
            return self._following(axis, instance, live, allowed)
        weights = [
            (term, value.type.shape)
            for name, value, term in zip(instance.operands, instance.op.operands, rule.ins, strict=False)
            if name in self.chain.weights and len(value.type.shape) > 1
        ]
        if weights and instance.op.definition.has_weight and instance.results[0] not in self.chain.weights:
            term, shape = weights[0]
            own_factors: list[Choice] = [f for f in allowed if f in term]
            roomy_factors = [
                f for f in own_factors if self._leaves_dimensions(axis, instance, f, term, shape)
            ]
            return roomy_factors or own_factors or [None]
        return [*allowed, None, *([PARTIAL] if instance.op.definition.linear else [])]

    def _following(
        self, axis: str, instance: OpInstance, live: dict[str, LiveValue], allowed: list[Choice]
    ) -> list[Choice]:
        """The factor in which the axis splits the first activation of the op that may stay so; if it splits some that
        may not, any other factor, or none. Positions that the op makes are split anew, and a view has no work."""
        rule = instance.op.rule
        split = [
            term[state]
            for name, term in zip(instance.operands, rule.ins, strict=False)
            if name not in self.chain.weights and isinstance(state := self._followed(axis, name, live), int)
        ]
        if (along := instance.op.definition.along) is not None and (term := rule.ins[along])[
            SEQUENCE
        ] in split:
            split = [rule.outs[0][SEQUENCE] if f == term[SEQUENCE] else f for f in split]
        follows: list[Choice] = [f for f in split if f in allowed]
        definition = instance.op.definition
        others = allowed if split and not (definition.makes_positions or definition.view) else []
        return follows[:1] or [*others, None]

    def splittable(self, axis: str, instance: OpInstance) -> list[Choice]:
        """Factors of the op that the degree of `axis` divides, beside the axes that split them already."""
        rule, sizes = instance.op.rule, instance.op.sizes
        factors: list[Choice] = []
        for factor in rule.factors:
            split = prod(self.sizes[a] for a, f in self.assigned[instance.key].items() if f == factor)
            if rule.may_split(factor) and sizes[factor] % (split * self.sizes[axis]) == 0:
                factors.append(factor)
        return factors

    def _leaves_dimensions(
        self, axis: str, instance: OpInstance, factor: Choice, term: tuple[str, ...], shape: tuple[int, ...]
    ) -> bool:
        """Whether each axis of the storage sharding finds a dimension of the weight beside this split of it."""
        assignment = {**self.assigned[instance.key], axis: factor}
        remaining = [
            n // prod(self.sizes[a] for a, f in assignment.items() if f == t)
            for t, n in zip(term, shape, strict=True)
        ]
        return can_shard(remaining, [n for a, n in self.sizes.items() if store(a, self.zero) == "shard"])

    # -- states -----------------------------------------------------------------------------------------

    def _state_of(self, axis: str, name: str, live: dict[str, LiveValue]) -> State:
        if name in live:
            return live[name].native
        return self.seeds[name].get(axis) if name in self.seeds else None

    def _followed(self, axis: str, name: str, live: dict[str, LiveValue]) -> State:
        """The sharding that an axis of tokens follows: that of the value; of positions that an op makes, which no die
        had before, that of an input."""
        state = self._state_of(axis, name, live)
        return self.seeds[name].get(axis) if state is None and name in self.seeds else state

    def _operand_state(self, instance: OpInstance, i: int, choice: Choice) -> State:
        if choice == PARTIAL:
            return Reduction.SUM
        term = instance.op.rule.ins[i]
        return term.index(choice) if choice in term and choice is not None else None

    def _result_state(self, instance: OpInstance, j: int, choice: Choice) -> State:
        if choice == PARTIAL:
            return Reduction.SUM
        if choice is None:
            return None
        term = instance.op.rule.outs[j]
        return term.index(choice) if choice in term else instance.op.definition.combine

    def _results(self, instance: OpInstance, choice: Choice) -> tuple[tuple[str, LiveValue], ...]:
        states = [self._result_state(instance, j, choice) for j in range(len(instance.results))]
        return tuple(
            (name, LiveValue(s, frozenset([s]))) for name, s in zip(instance.results, states, strict=True)
        )

    def _gradient_state(self, instance: OpInstance, i: int, choice: Choice) -> State:
        """Sharding of the gradient of operand i as the backward op gives it."""
        if choice in (None, PARTIAL):
            return None
        state = self._operand_state(instance, i, choice)
        return Reduction.SUM if state is None else state

    # -- prices -----------------------------------------------------------------------------------------

    def _work_price(self, axis: str, instance: OpInstance, choice: Choice) -> float:
        """Price of the work: three times the forward work, since two contractions of its size run backward."""
        split = prod(self.sizes[a] for a, f in self.assigned[instance.key].items() if f != PARTIAL)
        if choice not in (None, PARTIAL):
            split *= self.sizes[axis]
        if instance.op.definition.heavy:
            return 3 * instance.op.flops * self.prices.flop / split
        accessed = sum(
            v.type.elements
            for i, (v, _) in enumerate(instance.op.terms())
            # The op reads only the rows of a table that it indexes.
            if i != instance.op.definition.table
        )
        return 3 * accessed * self.prices.access / split

    def _resharded(
        self, axis: str, instance: OpInstance, i: int, choice: Choice, value: LiveValue | None
    ) -> tuple[float, LiveValue]:
        """Price of resharding operand i as the choice requires, and the operand with its new copy and gradient; `value`
        is what it was before, None for one that is not live yet."""
        name, target = instance.operands[i], self._operand_state(instance, i, choice)
        elements = self._unsplit_elements(instance, i)
        price = 0.0
        if value is None:
            native = target if name in self.chain.params and target is not Reduction.SUM else None
            native = self.seeds[name].get(axis) if name in self.seeds else native
            value = LiveValue(native, frozenset([native]))
            if native is None and name in self.chain.params:
                price += self.prices.replica * elements
        if target not in value.copies:
            price += min(self._state_cost(axis, s, target, elements) for s in sorted(value.copies, key=str))
        grads = value.grads
        if instance.op.operands[i].type.dtype.is_float:
            grads = grads | {self._gradient_state(instance, i, choice)}
        return price, LiveValue(value.native, value.copies | {target}, grads)

    def _unsplit_elements(self, instance: OpInstance, i: int) -> float:
        """Elements of operand i on a die, split by the axes assigned already, and whole along the current one."""
        term = instance.op.rule.ins[i]
        split = prod(self.sizes[a] for a, f in self.assigned[instance.key].items() if f in term)
        return instance.op.operands[i].type.elements / split

    def _state_cost(self, axis: str, source: State, target: State, elements: float) -> float:
        degree = self.sizes[axis]
        moved = elements * (degree - 1) / degree
        if source == target or source is None:
            return 0.0
        if isinstance(source, Reduction):
            reduce_scatter = source is Reduction.SUM and isinstance(target, int)
            return moved if reduce_scatter else 2 * moved
        return moved if target is None else moved / degree if isinstance(target, int) else moved

    def _retire(self, axis: str, live: dict[str, LiveValue], position: int, shared: _Shared) -> float:
        """Remove values that no later op reads; the price is that of resharding their gradients."""
        if shared.ending is None:
            pins = {n for n in live if n.startswith("pin ")}
            shared.ending = [n for n in live if self._last_use.get(n, -1) <= position and n not in pins]
        price = 0.0
        for name in shared.ending:
            asked = name, live.pop(name)
            if asked not in shared.retired:
                shared.retired[asked] = self._retirement(axis, *asked, self.chain.items[position])
            price += shared.retired[asked]
        return price

    def _retirement(self, axis: str, name: str, value: LiveValue, item: OpInstance | Boundary) -> float:
        """The price of resharding the gradients of a value that the op is the last to read; none at a boundary."""
        if not isinstance(item, OpInstance) or name not in item.operands:
            return 0.0
        elements = self._unsplit_elements(item, item.operands.index(name))
        return item.times * self._gradient_reshards(axis, value, elements)

    def _gradient_reshards(self, axis: str, value: LiveValue, elements: float) -> float:
        """Price of resharding the gradients of a value to the sharding of its storage."""
        storage = value.native if isinstance(value.native, int) else None
        return sum(self._state_cost(axis, g, storage, elements) for g in sorted(value.grads, key=str))


def _pruned(entries: _Beam) -> _Beam:
    """The `BEAM` cheapest entries, at most `ALIKE` of each combination of native states."""
    kept: _Beam = {}
    alike: Counter[tuple[State, ...]] = Counter()
    for live, node in sorted(entries.items(), key=lambda kv: kv[1].cost):
        native = tuple([value.native for _, value in live])
        alike[native] += 1
        if alike[native] <= ALIKE:
            kept[live] = node
        if len(kept) == BEAM:
            break
    return kept


def _uses(item: OpInstance | Boundary) -> Iterable[str]:
    if isinstance(item, OpInstance):
        return item.operands
    return [*item.pins, *(n for pair in item.renames for n in pair)]
