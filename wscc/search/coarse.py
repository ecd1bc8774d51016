"""The coarse filter of a search: which strategies may have a program at all, by rules that cost no compilation.

*pins* leave out what the user does not want; *divisibility* what the model cannot be split into: replicas that do not
divide the batch, and degrees that an axis cannot have even alone; *memory* what does not fit at rest, by closed forms.
Single plans are left out too: where interleaved chunks lack micro-batches, by the closed forms of the plan, where a
plan that stores no more was estimated and does not fit, and where one was refused that has a degree with the same
micro-batch, which its axis cannot have even alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from wscc.diagnostics import Code, CompileError, fail
from wscc.driver.proposals import proposing
from wscc.machine.topology import mesh_topology
from wscc.passes.differentiate import Differentiate
from wscc.passes.pad import Pad
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.search.candidates import Problem, Refused, refused, too_large
from wscc.search.closed_forms import Bound, ClosedForms
from wscc.search.space import (
    ONE_DIE,
    Plan,
    Strategy,
    Values,
    is_leaner,
    microbatches,
    plan_of,
    replicas_of,
    spell,
    stages_of,
    strategies,
    whole_rounds,
)
from wscc.strategy import dies_of, splits_experts, stage_axes


@dataclass(frozen=True, slots=True)
class Open:
    """A strategy that the filter lets pass: the values that its choices may take, and a bound of all its plans."""

    strategy: Strategy
    values: Values
    bound: Bound

    @property
    def plans(self) -> int:
        return prod(map(len, self.values))


@dataclass(slots=True)
class Space:
    """All strategies of up to as many dies as reach each other, sorted by the filter into `open` and `refused`."""

    problem: Problem
    open: dict[Strategy, Open] = field(default_factory=dict)
    refused: list[tuple[Plan, Refused]] = field(default_factory=list)
    live: int = field(init=False)
    forms: ClosedForms = field(init=False)
    _alone: dict[tuple[str, int], Refused | None] = field(default_factory=dict)
    _with_microbatch: dict[tuple[str, int, str], Refused | None] = field(default_factory=dict)
    _no_graph: dict[Strategy, Refused | None] = field(default_factory=dict)
    _too_large: dict[Strategy, list[tuple[Plan, Refused]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises the program's own `CompileError`."""
        with proposing(self.problem.trials(ONE_DIE)):
            graph = self.problem.one_die()
        self.forms = ClosedForms.of(graph, Differentiate().run(graph), self.problem.saved())
        self.live = len(mesh_topology(graph.machine).islands[0])
        self._check_pins()
        for dies in range(self.live, 0, -1):
            for strategy in strategies(dies):
                if self.problem.pins.admit(strategy) and self._has_experts_for(strategy):
                    self._sort(strategy)

    def _has_experts_for(self, strategy: Strategy) -> bool:
        """Whether the model has experts, or the strategy no axis of them but what is pinned."""
        axes = {axis for axis, _ in strategy if splits_experts(axis)}
        return self.forms.scale.experts > 1 or axes <= self.problem.pins.degrees.keys()

    def _check_pins(self) -> None:
        """Fail where a pinned number of sequences is no micro-batch on one die: then it is none anywhere."""
        pinned, values = self.problem.pins.settings.get("microbatch"), microbatches(self.forms.scale, ONE_DIE)
        if pinned is not None and pinned not in values:
            batch = self.forms.scale.batch
            raise fail(
                Code.DEGREE,
                f"a batch of {batch} has no micro-batches of {pinned}",
                help=f"pin `microbatch` to one of {', '.join(values)}, which divide it",
            )

    @property
    def plans(self) -> int:
        """The number of plans of all strategies that are open."""
        return sum(o.plans for o in self.open.values())

    def bound(self, plan: Plan) -> Bound:
        """The bound of one plan."""
        return self.forms.bound(plan.strategy, tuple((value,) for _, value in plan.settings))

    def refusal(self, plan: Plan) -> Refused | None:
        """The refusal of a single plan of a strategy that is open, by what is known without looking at it."""
        if not whole_rounds(self.forms.scale, plan):
            rounds = (
                f"a multiple of `{' x '.join(stage_axes(dict(plan.strategy)))} = {stages_of(plan.strategy)}`"
            )
            there = self.problem.microbatches(plan)
            message = f"`interleave {plan['interleave']}` needs {rounds} micro-batches, and there are {there}"
            return Refused(Code.DEGREE, message)
        m = plan["microbatch"]
        indivisible = (self._with_microbatch.get((axis, n, m)) for axis, n in plan.strategy)
        larger = (why for p, why in self._too_large.get(plan.strategy, ()) if is_leaner(p, plan))
        known = next(filter(None, (*indivisible, *larger)), None)
        return known or too_large(self.forms.die, self.bound(plan).bytes)

    def learn(self, plan: Plan, why: Refused) -> None:
        """Note that a plan was refused: one that stores no less is then refused alike, or one with the same degree of
        the axis that divides nothing with such a micro-batch."""
        if why.bytes:
            self._too_large.setdefault(plan.strategy, []).append((plan, why))
        if why.code is Code.DEGREE:
            m = plan["microbatch"]
            for axis, n in plan.strategy:
                if (axis, n, m) not in self._with_microbatch:
                    self._with_microbatch[axis, n, m] = self._tried(((axis, n),), m)

    def _sort(self, strategy: Strategy) -> None:
        values = self.problem.pins.values(self.forms.scale, strategy)
        if not all(values):
            self.refused.append((Plan(strategy), self._indivisible(strategy)))
            return
        bound = self.forms.bound(strategy, values)
        why = too_large(self.forms.die, bound.bytes) or self._split(strategy)
        if why is not None:
            self.refused.append((Plan(strategy), why))
        else:
            self.open[strategy] = Open(strategy, values, bound)

    def _indivisible(self, strategy: Strategy) -> Refused:
        replicas = replicas_of(strategy)
        if replicas not in self._no_graph:
            self._no_graph[replicas] = self._graph_refusal(replicas)
        if (why := self._no_graph[replicas]) is not None:
            return why
        batch, experts, words = self.forms.scale.batch, self.forms.scale.experts, spell(strategy)
        if experts % prod(n for axis, n in strategy if splits_experts(axis)):
            return Refused(Code.DEGREE, f"`{words}` does not share out the {experts} experts evenly")
        message = f"`{words}` shares out no micro-batch of a batch of {batch} evenly, or none that is pinned"
        return Refused(Code.DEGREE, message)

    def _graph_refusal(self, replicas: Strategy) -> Refused | None:
        try:
            self.problem.graph(self.problem.own(replicas))
        except CompileError as error:
            return refused(error)
        return None

    def _split(self, strategy: Strategy) -> Refused | None:
        """The refusal of a degree that its axis cannot have alone, whatever the others do: it divides nothing."""
        return next((why for axis, n in strategy if (why := self._axis(axis, n)) is not None), None)

    def _axis(self, axis: str, n: int) -> Refused | None:
        """That of a divisor is that of its multiples."""
        if (axis, n) not in self._alone:
            smaller = (self._axis(axis, d) for d in range(2, n // 2 + 1) if n % d == 0)
            found = next((why for why in smaller if why is not None), None)
            self._alone[axis, n] = found or self._tried(((axis, n),))
        return self._alone[axis, n]

    def _tried(self, alone: Strategy, microbatch: str = "") -> Refused | None:
        """The refusal of a strategy of one axis, with so many sequences at a time, or with as many as there are."""
        values = self.problem.pins.values(self.forms.scale, alone)
        if not all(values):
            return None  # with the others, the pins may be met
        if stages_of(alone) in range(2, self.forms.scale.layers + 1):
            return None  # a layer for each stage
        plan = plan_of(alone, [microbatch or values[0][-1], *(v[0] for v in values[1:])])
        try:
            if stages_of(alone) > 1:
                self.problem.sharded(plan, last=Stages)
            else:
                Partition.check(self.problem.sharded(plan, last=Pad))
        except CompileError as error:
            why = refused(error)
            return why if why.code is Code.DEGREE else None
        return None

    def given(self) -> Plan | None:
        """The plan of the program, if it has one that is open."""
        strategy = self.problem.given
        if strategy is None or strategy not in self.open:
            return None
        own, o = self.problem.own(strategy), self.open[strategy]
        values = [v if v in many else many[0] for (_, v), many in zip(own.settings, o.values, strict=True)]
        plan = plan_of(strategy, values)
        return plan if dies_of(strategy) <= self.live else None
