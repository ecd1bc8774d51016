"""The times of a step, composed from those of its calls, each simulated once for every state in which it is entered.

The *state* of a call is the delay of each of its dies after the first, and the links that earlier messages still hold.
Dies of a call that neither send to one another nor share a link are simulated separately (`Cluster`), so that their
states do not mix. Equal code, memory and state take equally long: the result is cached. A loop without messages
between stages is left once the state at the start of a turn is nearly one of before (`turns`): all further turns are
repetitions of those in between. So are turns of loops with messages between stages, once all stages are back in a state
(`periods`).

No run is derived from another of the same call by the order of its messages and their slack: entered otherwise, a layer
has another order on its contended links nearly each time (12 orders among 14 states of GPT-3, 8 among 13 of llama2-7b).

Two effects are neglected: dies that have entered the next call may compete for links with dies in the call before,
and stages share links outside the calls that they make together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wscc.backends.simulator.calls import Builder, DieCall, Places
from wscc.backends.simulator.clusters import Cluster, Clusters, groups_of
from wscc.backends.simulator.events import Simulation
from wscc.backends.simulator.periods import Frame, Periods
from wscc.backends.simulator.records import DieUse, Hold, Link, LinkUse
from wscc.backends.simulator.scripts import Scripts
from wscc.backends.simulator.step_nodes import CallNode, LoopNode, Node, nodes
from wscc.backends.simulator.turns import WITHIN, Entered, Turns
from wscc.backends.simulator.uncollected import uncollected
from wscc.diagnostics import Code, fail
from wscc.disjoint_sets import DisjointSets

# A procedure, and for each stage that takes part the places of its arguments.
Variant = tuple[str, tuple[tuple[int, Places], ...]]
Held = tuple[Hold, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A script simulated from one state: the times at which its dies leave, and (by sender) the links that are held
    after the first has left, all counted from the time at which the first enters. `holds` are all of a joint call."""

    leave: tuple[int, ...]
    held: tuple[tuple[int, Held], ...]
    holds: Held
    simulation: Simulation


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A cluster entered in one state. `run` is that of its script, of which the rest has the cluster's own names."""

    variant: Variant
    cluster: Cluster
    state: tuple[int, ...]
    held: tuple[tuple[int, Held], ...]
    holds: Held
    run: Run

    @property
    def leave(self) -> tuple[int, ...]:
        return self.run.leave

    def dies(self) -> Iterator[tuple[int, DieCall, DieUse]]:
        """Each die with its call and its use."""
        return zip(self.cluster.dies, self.cluster.calls, self.run.simulation.dies.values(), strict=True)

    def links(self) -> Iterator[tuple[Link, LinkUse]]:
        """The uses of the links that carry a message or are held by an earlier one."""
        return ((self.cluster.own[link], use) for link, use in self.run.simulation.links.items())


@dataclass(slots=True)
class Observer:
    """Callbacks: `called` for every call that is simulated (its entry, the time at which its first die enters),
    `skipped` for turns of loops that are not (the dies, begin, end, number of periods)."""

    called: Callable[[Entry, int], None]
    skipped: Callable[[Sequence[int], int, int, int], None]


class Wait(NamedTuple):
    """A tick that a die waits for others at the end of a turn that is not simulated."""

    die: int


Tally = Counter[Entry | Wait]
# A call with messages between stages: the procedure, the memories of its arguments, and its node in the step.
JointCall = tuple[str, Places, CallNode]


@dataclass
class Composer:
    """Composes the step of a program. `now[die]` is the time at which a die ends the calls composed so far; `tally`
    counts their entries. With `unrolled` every turn of every loop is simulated; `within` is that of `Turns`.
    `CompileError` W502 if stages wait for one another."""

    builder: Builder
    observer: Observer | None = None
    unrolled: bool = False
    within: int = WITHIN
    now: list[int] = field(init=False)
    tally: Tally = field(default_factory=Counter)
    _clusters: dict[Variant, tuple[Cluster, ...]] = field(default_factory=dict)
    _runs: dict[tuple[Scripts, tuple[int, ...], Held, bool], Run] = field(default_factory=dict)
    _entries: dict[tuple[Cluster, tuple[int, ...], Held], Entry] = field(default_factory=dict)
    _held: dict[int, Held] = field(default_factory=dict)  # by the die whose messages they are
    _joint: list[tuple[Cluster, Held]] = field(default_factory=list)  # joint calls that may still hold links
    _periods: Periods[Entry | Wait] = field(default_factory=lambda: Periods[Entry | Wait]())
    _partners: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = [0] * len(self.builder.stages)
        self._stations = dict(enumerate(self.builder.streams.dies))
        self._alike = Clusters(self.builder)
        count = 1 + max(self.builder.stages)
        self._stacks: list[list[Frame]] = [[] for _ in range(count)]
        self._dies = [[d for d, s in enumerate(self.builder.stages) if s == n] for n in range(count)]

    @property
    def simulated(self) -> int:
        return len(self._runs)

    def run(self) -> Composer:
        """Compose the whole step."""
        with uncollected():
            self._compose()
        return self

    def _compose(self) -> None:
        walks = [self._stage(s) for s in range(len(self._dies))]
        pending = [next(walk, None) for walk in walks]
        while any(pending):
            self._leap(pending)
            groups = [g for s in range(len(pending)) if (g := self._joining(s, pending))]
            if not groups:
                raise fail(Code.DEADLOCK, "stages wait for one another: " + _positions(pending))
            # In the order of time, so that each finds the links that earlier ones hold.
            group = min(groups, key=lambda g: min(self.now[d] for s in g for d in self._dies[s]))
            first = pending[group[0]]
            assert first is not None
            self._call((first[0], tuple((s, m[1]) for s in group if (m := pending[s]))))
            for s in group:
                pending[s] = next(walks[s], None)

    def _leap(self, pending: Sequence[JointCall | None]) -> None:
        """Skip whole periods of a pipeline in its steady state."""
        if self.unrolled:
            return
        first = min(self.now)
        state = (
            tuple(id(m[2]) if m else 0 for m in pending),
            tuple(n - first for n in self.now),
            tuple((die, _later(held, -first)) for die, held in sorted(self._held.items())),
            tuple((c.dies, _later(held, -first)) for c, held in self._joint),
        )
        leap = self._periods.leap(self._stacks, state, first, self.tally)
        if leap is None:
            return
        for stack, turns in zip(self._stacks, leap.turns, strict=True):
            stack[0].turn += turns * leap.periods
        self._multiply(leap.tally, leap.periods)
        self._skip([range(len(self.now))], [leap.ticks], leap.periods)
        self._joint = [(c, _later(held, leap.ticks * leap.periods)) for c, held in self._joint]

    def _joining(self, stage: int, pending: list[JointCall | None]) -> list[int]:
        """The stages of the joint call that a stage has come to, if all have come to it; else empty."""
        call = pending[stage]
        if call is None:
            return []
        group, queue = {stage}, [stage]
        for s in queue:
            other = pending[s]
            if other is None or other[0] != call[0]:
                return []
            new = sorted(self._partners_of(s, call[0]) - group)
            group.update(new)
            queue.extend(new)
        return sorted(group)

    def _partners_of(self, stage: int, procedure: str) -> frozenset[int]:
        """The stages whose dies have messages with those of a stage in a procedure, itself among them."""
        key = stage, procedure
        if key not in self._partners:
            peers = {p for die in self._dies[stage] for p in self.builder.peers(die, procedure)}
            self._partners[key] = frozenset({stage, *(self.builder.stages[p] for p in peers)})
        return self._partners[key]

    # -- one stage ----------------------------------------------------------------------------------------

    def _stage(self, stage: int) -> Iterator[JointCall]:
        """Compose the calls of a stage; yields every call that it makes together with other stages."""

        def locate(procedure: str, args: Sequence[int]) -> Places:
            return self.builder.places(stage, procedure, args)

        def is_joint(procedure: str) -> bool:
            return len(self._partners_of(stage, procedure)) > 1

        step = nodes(self.builder.streams.steps[stage], locate, is_joint)
        yield from self._walk(stage, step, {})

    def _walk(self, stage: int, body: Sequence[Node], variables: Mapping[str, int]) -> Iterator[JointCall]:
        for node in body:
            if isinstance(node, CallNode):
                places = node.places
                if places is None:
                    args = [a.at(dict(variables)) for a in node.args]
                    places = self.builder.places(stage, node.procedure, args)
                if len(self._partners_of(stage, node.procedure)) > 1:
                    yield node.procedure, places, node
                else:
                    self._call((node.procedure, ((stage, places),)))
            elif node.steady and not self.unrolled:
                self._repeat(stage, node)
            else:
                frame = Frame(node)
                self._stacks[stage].append(frame)
                while frame.turn < node.count:
                    yield from self._walk(stage, node.body, {**variables, node.variable: frame.turn})
                    frame.turn += 1
                self._stacks[stage].pop()

    def _repeat(self, stage: int, loop: LoopNode) -> None:
        """Compose a steady loop: turn by turn until a state comes back, then all whole periods at once."""
        classes = self._classes(stage, loop)
        turns, tallies, turn = Turns(self.within), list[Tally](), 0
        while turn < loop.count:
            state = tuple(self._entered(dies) for dies in classes)
            before = turns.back(state, loop.count - turn)
            if before is not None:
                period = len(turns.states) - before
                periods = (loop.count - turn) // period
                self._multiply(sum(tallies[before:], Counter()), periods)
                self._wait(classes, turns.states[before], turns.lengths(before, state), periods)
                self._skip(classes, turns.lengths(before, state), periods)
                turn += periods * period
                turns, tallies = Turns(self.within), []
                continue
            turns.states.append(state)
            tallies.append(self._turn(stage, loop))
            turn += 1

    def _entered(self, dies: Sequence[int]) -> Entered:
        times = [self.now[d] for d in dies]
        return Entered.of(times, self._held_by(dies, min(times)))

    def _multiply(self, tally: Tally, times: int) -> None:
        for entry, count in tally.items():
            self.tally[entry] += count * times

    def _wait(
        self,
        classes: Sequence[Sequence[int]],
        before: Sequence[Entered],
        lengths: Sequence[int],
        periods: int,
    ) -> None:
        """Let dies that need less than a period wait for its end."""
        for dies, entered, length in zip(classes, before, lengths, strict=True):
            for die, after in zip(dies, entered.after, strict=True):
                if ticks := entered.first + after + length - self.now[die]:
                    self.tally[Wait(die)] += ticks * periods

    def _turn(self, stage: int, loop: LoopNode) -> Tally:
        """Compose one turn of a steady loop; returns what it added to the tally."""
        outer, self.tally = self.tally, Counter()
        joint_call = next(self._walk(stage, loop.body, {}), None)
        assert joint_call is None, "a steady loop meets no stage"
        added, self.tally = self.tally, outer
        self.tally.update(added)
        return added

    def _skip(self, classes: Sequence[Sequence[int]], lengths: Sequence[int], periods: int) -> None:
        for dies, length in zip(classes, lengths, strict=True):
            if self.observer:
                begin = min(self.now[d] for d in dies)
                self.observer.skipped(dies, begin, begin + length * periods, periods)
            for d in dies:
                self.now[d] += length * periods
                if d in self._held:
                    self._held[d] = _later(self._held[d], length * periods)

    def _classes(self, stage: int, loop: LoopNode) -> tuple[tuple[int, ...], ...]:
        """Groups of the dies of a stage that depend on one another anywhere in a loop."""
        joined: DisjointSets[object] = DisjointSets()
        for call in loop.calls():
            assert call.places is not None
            for cluster in self._clusters_of((call.procedure, ((stage, call.places),))):
                joined.union(*cluster.dies)
        return groups_of(self._dies[stage], joined)

    # -- one call -----------------------------------------------------------------------------------------

    def _call(self, variant: Variant) -> None:
        for cluster in self._clusters_of(variant):
            begin = min(self.now[d] for d in cluster.dies)
            state = tuple(self.now[d] - begin for d in cluster.dies)
            held = self._held_by(cluster.dies, begin)
            if len(variant[1]) > 1:
                held += self._held_elsewhere(cluster, begin)
            entry = self._entries.get((cluster, state, held))
            if entry is None:
                entry = self._entries[cluster, state, held] = self._entry(variant, cluster, state, held)
            self.tally[entry] += 1
            if self.observer:
                self.observer.called(entry, begin)
            for die, time in zip(cluster.dies, entry.leave, strict=True):
                self.now[die] = begin + time
            self._hold(cluster, entry, begin)
            if len(variant[1]) > 1:
                self._joint.append((cluster, _later(entry.holds, begin)))

    def _hold(self, cluster: Cluster, entry: Entry, begin: int) -> None:
        """Update the links that messages of a cluster hold: earlier messages may outlive a short call."""
        earliest, late = min(self.now), dict(entry.held)
        for die in cluster.dies:
            before = tuple(h for h in self._held.pop(die, ()) if h.end > earliest)
            if held := before + _later(late.get(die, ()), begin):
                self._held[die] = held

    def _held_elsewhere(self, cluster: Cluster, begin: int) -> Held:
        """The links of a cluster that joint calls of other dies hold beyond `begin`, counted from it."""
        earliest = min(self.now)
        self._joint = [m for m in self._joint if max((h.end for h in m[1]), default=earliest) > earliest]
        return tuple(
            _from(hold, begin)
            for other, held in self._joint
            if set(other.dies).isdisjoint(cluster.dies)
            for hold in held
            if hold.end > begin and hold.link in cluster.links
        )

    def _held_by(self, dies: Sequence[int], begin: int) -> Held:
        """The links that messages of `dies` hold beyond `begin`, counted from it."""
        if not self._held:
            return ()
        return tuple(
            _from(hold, begin) for die in dies for hold in self._held.get(die, ()) if hold.end > begin
        )

    def _clusters_of(self, variant: Variant) -> tuple[Cluster, ...]:
        if variant not in self._clusters:
            procedure, places = variant
            where = {die: args for s, args in places for die in self._dies[s]}
            self._clusters[variant] = self._alike.of(procedure, where)
        return self._clusters[variant]

    def _entry(self, variant: Variant, cluster: Cluster, state: tuple[int, ...], held: Held) -> Entry:
        """The entry of a cluster in a state; alike clusters have their runs in common."""
        is_joint = len(variant[1]) > 1
        key = cluster.scripts, state, cluster.there(held), is_joint
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._run(*key)
        late = tuple((cluster.dies[n], cluster.here(holds)) for n, holds in run.held)
        return Entry(variant, cluster, state, late, cluster.here(run.holds), run)

    def _run(self, scripts: Scripts, state: tuple[int, ...], held: Held, is_joint: bool) -> Run:
        enter = dict(zip(scripts.dies, state, strict=True))
        run = Simulation(self.builder.costs, self._stations, scripts, enter, held).run()
        leave = tuple(run.leave[d] for d in scripts.dies)
        numbers = {die: n for n, die in enumerate(scripts.dies)}
        late: dict[int, list[Hold]] = {}
        for hold, die in run.holds(after=min(leave)):
            late.setdefault(numbers[die], []).append(hold)
        holds = tuple(h for h, _ in run.holds()) if is_joint else ()
        run.uses.clear()  # runs are kept by the hundred
        return Run(leave, tuple((n, tuple(h)) for n, h in late.items()), holds, run)


def _later(held: Iterable[Hold], ticks: int) -> Held:
    return tuple(h.later(ticks) for h in held)


def _from(hold: Hold, begin: int) -> Hold:
    """The hold with times counted from `begin`; how long before that the message queued makes no difference."""
    relative = hold.later(-begin)
    return relative._replace(asked=max(0, relative.asked))


def _positions(pending: Sequence[JointCall | None]) -> str:
    return "; ".join(
        f"stage {s} in `{m[0]}`" if m is not None else f"stage {s} has ended" for s, m in enumerate(pending)
    )
