"""One factor for every forward op and axis: a frontier dynamic programme over the chain of segments.

For each axis in turn the programme walks the forward ops in order. Its state is what is still alive: for each
value the way it lies along the axis, the other ways it has been brought into, and the ways its gradients
arrive. The price of a choice counts the op's work, the reshards of its operands and the mirrored reshards of
the backward pass, so the backward pass needs no search of its own. Work inside a `repeat` counts once per
layer, and what a layer carries out must lie as what it carried in. Prices are those of the program's wafer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod

from wscc.ir.op import Op, Value
from wscc.ir.types import Reduction
from wscc.passes.partition.layouts import PARTIAL, can_shard
from wscc.passes.partition.prices import Prices
from wscc.strategy import policy, store

# How a value lies along one axis: a dimension, None (every die has all of it), or parts of a sum or maximum.
State = int | None | Reduction
Choice = str | None

BEAM = 100


@dataclass(frozen=True, slots=True)
class Site:
    """An op of the chain: `key` is (procedure, first result); operands and results are chain-wide names."""

    key: tuple[str, str]
    op: Op
    operands: tuple[str, ...]
    results: tuple[str, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A point of the chain where values change names. On entry to a repeat `pins` fixes how carried values
    lie; at the end of a segment each inner value of `closes` becomes the carried value of the outer name,
    lying as its pin says, or as it comes, but complete."""

    pins: tuple[str, ...] = ()
    closes: tuple[tuple[str, str], ...] = ()
    times: int = 1


@dataclass(slots=True)
class Chain:
    """The forward ops of all segments in order, with one name per value across segments."""

    items: list[Site | Edge] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)
    params: dict[str, Value] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)

    @property
    def sites(self) -> list[Site]:
        return [i for i in self.items if isinstance(i, Site)]


@dataclass(frozen=True, slots=True)
class Live:
    native: State
    held: frozenset[State]
    grads: frozenset[State] = frozenset()


Assigned = dict[tuple[str, str], dict[str, str]]
Chooser = Callable[[Site, str, list[Choice]], Choice]


@dataclass(frozen=True, slots=True)
class _Node:
    """One frontier entry: its price and how it came about."""

    cost: float
    before: _Node | None = None
    key: tuple[str, str] | None = None
    choice: Choice = None


class Search:
    """Chooses, axis by axis; `assigned[site][axis]` is a factor of the op or `+` (partial sums pass)."""

    def __init__(
        self, chain: Chain, sizes: dict[str, int], seeds: dict[str, dict[str, int]], prices: Prices,
        zero: int = 0,
    ) -> None:  # fmt: skip
        self.prices = prices
        self.zero = zero
        self.chain = chain
        self.sizes = sizes
        self.seeds = seeds
        self.assigned: Assigned = {s.key: {} for s in chain.sites}
        # Facts of one axis that many frontier entries ask for.
        self._works: dict[tuple[tuple[str, str], Choice], float] = {}
        self._wholes: dict[tuple[tuple[str, str], int], float] = {}
        self._last_use = {name: i for i, item in enumerate(chain.items) for name in _uses(item)}
        self._elements = {
            name: v.type.elements
            for s in chain.sites
            for name, v in (
                *zip(s.operands, s.op.operands, strict=True), *zip(s.results, s.op.results, strict=True)
            )
        }  # fmt: skip

    def run(self) -> Assigned:
        # Axes that follow the tokens have no choice, so those that do must see what is left.
        for axis in sorted(self.sizes, key=lambda a: policy(a).splits == "weights"):
            for key, choice in self._axis(axis):
                if choice is not None:
                    self.assigned[key][axis] = choice
        return self.assigned

    # -- one axis ---------------------------------------------------------------------------------------

    def _axis(self, axis: str) -> Iterable[tuple[tuple[str, str], Choice]]:
        self._works.clear()
        self._wholes.clear()
        frontier: dict[tuple[tuple[str, Live], ...], _Node] = {(): _Node(0.0)}
        for position, item in enumerate(self.chain.items):
            grown: dict[tuple[tuple[str, Live], ...], _Node] = {}
            for state, node in frontier.items():
                for live, price, choice in self._next(axis, item, dict(state)):
                    price += self._retire(axis, live, position)
                    key = item.key if isinstance(item, Site) else None
                    found = _Node(node.cost + price, node, key, choice)
                    packed = tuple(sorted(live.items(), key=lambda kv: kv[0]))
                    if packed not in grown or found.cost < grown[packed].cost:
                        grown[packed] = found
            best = sorted(grown.items(), key=lambda kv: kv[1].cost)[:BEAM]
            frontier = dict(best)
        last: _Node | None = min(frontier.values(), key=lambda n: n.cost)
        while last is not None:
            if last.key is not None:
                yield last.key, last.choice
            last = last.before

    def _next(
        self, axis: str, item: Site | Edge, live: dict[str, Live]
    ) -> Iterable[tuple[dict[str, Live], float, Choice]]:
        if isinstance(item, Edge):
            yield self._cross(axis, item, live)
            return
        for choice in self.options(axis, item, live):
            after = dict(live)
            price = self._work(axis, item, choice)
            for i, name in enumerate(item.operands):
                price += self._bring(axis, item, i, name, choice, after)
            for j, name in enumerate(item.results):
                state = self._result_state(item, j, choice)
                after[name] = Live(state, frozenset([state]))
            yield after, price * item.times, choice

    def _cross(self, axis: str, edge: Edge, live: dict[str, Live]) -> tuple[dict[str, Live], float, Choice]:
        after, price = dict(live), 0.0
        for name in edge.pins:
            entry = live[name]
            after[f"pin {name}"] = Live(entry.native, frozenset())
        for inner, outer in edge.closes:
            value, old = after[inner], after.get(outer)
            native: State = value.native if isinstance(value.native, int) else None
            if f"pin {outer}" in after:
                native = after.pop(f"pin {outer}").native
            full = float(self._elements[inner])
            price += 2 * self._state_cost(axis, value.native, native, full) * edge.times
            if old is not None:
                price += self._homecoming(axis, old, full) * edge.times
            after[outer] = Live(native, frozenset([native]))
        return after, price, None

    # -- choices ----------------------------------------------------------------------------------------

    def options(self, axis: str, site: Site, live: dict[str, Live]) -> list[Choice]:
        """The factors that `axis` may split in the op; None: every die does all of it."""
        allowed = self.splittable(axis, site)
        rule = site.op.rule
        if policy(axis).splits == "tokens":
            for name, term in zip(site.operands, rule.ins, strict=False):
                state = self._state_of(axis, name, live)
                if name not in self.chain.weights and isinstance(state, int) and term[state] in allowed:
                    return [term[state]]
            return [None]
        weights = [
            (term, value.type.shape)
            for name, value, term in zip(site.operands, site.op.operands, rule.ins, strict=False)
            if name in self.chain.weights and len(value.type.shape) > 1
        ]
        if weights and site.op.definition.has_weight and site.results[0] not in self.chain.weights:
            term, shape = weights[0]
            inside: list[Choice] = [f for f in allowed if f in term]
            roomy = [f for f in inside if self._leaves_room(axis, site, f, term, shape)]
            return roomy or inside or [None]
        return [*allowed, None, *([PARTIAL] if site.op.definition.linear else [])]

    def splittable(self, axis: str, site: Site) -> list[Choice]:
        """Factors that divide by the axis beside what is already split."""
        rule, sizes = site.op.rule, site.op.sizes
        out: list[Choice] = []
        for factor in rule.factors:
            taken = prod(self.sizes[a] for a, f in self.assigned[site.key].items() if f == factor)
            if rule.may_split(factor) and sizes[factor] % (taken * self.sizes[axis]) == 0:
                out.append(factor)
        return out

    def _leaves_room(
        self, axis: str, site: Site, factor: Choice, term: tuple[str, ...], shape: tuple[int, ...]
    ) -> bool:
        """Whether the axes that shard the weight at rest find a dimension beside this split of it."""
        taken = {**self.assigned[site.key], axis: factor}
        left = [
            n // prod(self.sizes[a] for a, f in taken.items() if f == t)
            for t, n in zip(term, shape, strict=True)
        ]
        return can_shard(left, [n for a, n in self.sizes.items() if store(a, self.zero) == "shard"])

    # -- states -----------------------------------------------------------------------------------------

    def _state_of(self, axis: str, name: str, live: dict[str, Live]) -> State:
        if name in live:
            return live[name].native
        return self.seeds[name].get(axis) if name in self.seeds else None

    def _operand_state(self, site: Site, i: int, choice: Choice) -> State:
        if choice == PARTIAL:
            return Reduction.SUM
        term = site.op.rule.ins[i]
        return term.index(choice) if choice in term and choice is not None else None

    def _result_state(self, site: Site, j: int, choice: Choice) -> State:
        if choice == PARTIAL:
            return Reduction.SUM
        if choice is None:
            return None
        term = site.op.rule.outs[j]
        return term.index(choice) if choice in term else site.op.definition.combine

    def _gradient_state(self, site: Site, i: int, choice: Choice) -> State:
        """How the backward op of the site leaves the gradient of operand i."""
        if choice in (None, PARTIAL):
            return None
        state = self._operand_state(site, i, choice)
        return Reduction.SUM if state is None else state

    # -- prices -----------------------------------------------------------------------------------------

    def _work(self, axis: str, site: Site, choice: Choice) -> float:
        """Three times the forward work: forward, and two contractions of the same size backward."""
        if (site.key, choice) not in self._works:
            self._works[site.key, choice] = self._price_work(axis, site, choice)
        return self._works[site.key, choice]

    def _price_work(self, axis: str, site: Site, choice: Choice) -> float:
        split = prod(self.sizes[a] for a, f in self.assigned[site.key].items() if f != PARTIAL)
        if choice not in (None, PARTIAL):
            split *= self.sizes[axis]
        if site.op.definition.heavy:
            return 3 * site.op.flops * self.prices.flop / split
        touched = sum(
            v.type.elements
            for i, (v, _) in enumerate(site.op.terms())
            # A table that is indexed is not walked.
            if i != site.op.definition.table
        )
        return 3 * touched * self.prices.touch / split

    def _bring(
        self, axis: str, site: Site, i: int, name: str, choice: Choice, live: dict[str, Live]
    ) -> float:
        """Price of operand i in the state that the choice wants; records what it now is and its gradient."""
        need = self._operand_state(site, i, choice)
        full = self._whole(site, i)
        price = 0.0
        if name not in live:
            native = need if name in self.chain.params and need is not Reduction.SUM else None
            native = self.seeds[name].get(axis) if name in self.seeds else native
            live[name] = Live(native, frozenset([native]))
            if native is None and name in self.chain.params:
                price += self.prices.keep * full
        value = live[name]
        if need not in value.held:
            price += min(self._state_cost(axis, s, need, full) for s in sorted(value.held, key=str))
        grads = value.grads
        if site.op.operands[i].type.dtype.is_float:
            grads = grads | {self._gradient_state(site, i, choice)}
        live[name] = Live(value.native, value.held | {need}, grads)
        return price

    def _whole(self, site: Site, i: int) -> float:
        """Elements of operand i that a die holds given the axes already assigned, whole along this one."""
        if (site.key, i) in self._wholes:
            return self._wholes[site.key, i]
        term = site.op.rule.ins[i]
        split = prod(self.sizes[a] for a, f in self.assigned[site.key].items() if f in term)
        self._wholes[site.key, i] = site.op.operands[i].type.elements / split
        return self._wholes[site.key, i]

    def _state_cost(self, axis: str, a: State, b: State, full: float) -> float:
        n = self.sizes[axis]
        share = full * (n - 1) / n
        if a == b or a is None:
            return 0.0
        if isinstance(a, Reduction):
            scattered = a is Reduction.SUM and isinstance(b, int)
            return share if scattered else 2 * share
        return share if b is None else share / n if isinstance(b, int) else share

    def _retire(self, axis: str, live: dict[str, Live], position: int) -> float:
        """Drop values that nobody reads any more, paying for their gradients to come home."""
        price = 0.0
        for name in [n for n in live if self._last_use.get(n, -1) <= position and not n.startswith("pin ")]:
            value = live.pop(name)
            item = self.chain.items[position]
            if isinstance(item, Site) and name in item.operands:
                full = self._whole(item, item.operands.index(name))
                price += item.times * self._homecoming(axis, value, full)
        return price

    def _homecoming(self, axis: str, value: Live, full: float) -> float:
        """Price of bringing the value's gradients to where it lies."""
        home = value.native if isinstance(value.native, int) else None
        return sum(self._state_cost(axis, g, home, full) for g in sorted(value.grads, key=str))


def _uses(item: Site | Edge) -> Iterable[str]:
    if isinstance(item, Site):
        return item.operands
    return [*item.pins, *(n for pair in item.closes for n in pair)]
