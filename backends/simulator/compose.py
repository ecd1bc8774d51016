"""A step from the times of its calls, each simulated once for every state in which it is entered.

The *state* of a call is how much later than the first each of its dies enters, and which links messages from before
still hold. Dies of a call that neither send to one another nor share a link are simulated apart (`Cluster`), so that
their states do not mix. Equal code, memory and state take equally long: the result is kept. A loop whose calls meet no
other stage is left once the state at the start of a turn has been there before: all further turns are repetitions of
those in between. So are turns of loops in which stages meet, once all stages are back in a state (`periods`).

What is neglected: that dies which have entered the next call may want links before others do in the call before, and
that stages share links other than where they meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from networkx.utils import UnionFind

from wscc.backends.simulator.calls import Builder, Places
from wscc.backends.simulator.clusters import CallNode, Cluster, LoopNode, Node, clusters_of, groups_of, nodes
from wscc.backends.simulator.events import Simulation
from wscc.backends.simulator.periods import Frame, Periods
from wscc.backends.simulator.records import Hold
from wscc.diagnostics import Code, fail

# A procedure, and for each stage that takes part the places of its arguments.
Variant = tuple[str, tuple[tuple[int, Places], ...]]
Held = tuple[Hold, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A cluster simulated from one state: when its dies leave, and (by sender) links that are held when some of them
    have left, all counted from the first that enters."""

    variant: Variant
    cluster: Cluster
    state: tuple[int, ...]
    leave: tuple[int, ...]
    held: tuple[tuple[int, Held], ...]
    run: Simulation


@dataclass(slots=True)
class Observer:
    """Told of every call that is walked through (its entry, the time at which its first die enters), and of turns of
    loops that are not: the dies, from when to when, and how many."""

    called: Callable[[Entry, int], None]
    skipped: Callable[[Sequence[int], int, int, int], None]


Tally = Counter[Entry]
# The procedure in which stages meet, the places of its arguments, and where in the step.
Meeting = tuple[str, Places, CallNode]


@dataclass
class Composer:
    """Composes the step of a program. `now[die]` is when a die is through with what was composed so far; `tally`
    counts what it did. With `unrolled` every turn of every loop is walked through. `CompileError` W502 if stages wait
    for one another."""

    builder: Builder
    observer: Observer | None = None
    unrolled: bool = False
    now: list[int] = field(init=False)
    tally: Tally = field(default_factory=Counter)
    _clusters: dict[Variant, tuple[Cluster, ...]] = field(default_factory=dict)
    _entries: dict[tuple[Cluster, tuple[int, ...], Held], Entry] = field(default_factory=dict)
    _held: dict[int, Held] = field(default_factory=dict)  # by the die whose messages they are
    _meetings: list[tuple[Cluster, Held]] = field(default_factory=list)  # that may still hold links
    _periods: Periods[Entry] = field(default_factory=lambda: Periods[Entry]())
    _partners: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = [0] * len(self.builder.stages)
        self._stations = dict(enumerate(self.builder.streams.dies))
        count = 1 + max(self.builder.stages)
        self._stacks: list[list[Frame]] = [[] for _ in range(count)]
        self._dies = [[d for d, s in enumerate(self.builder.stages) if s == n] for n in range(count)]

    @property
    def simulated(self) -> int:
        return len(self._entries)

    def run(self) -> Composer:
        walks = [self._stage(s) for s in range(len(self._dies))]
        at = [next(walk, None) for walk in walks]
        while any(at):
            self._leap(at)
            groups = [g for s in range(len(at)) if (g := self._met(s, at))]
            if not groups:
                raise fail(Code.DEADLOCK, "stages wait for one another: " + _who(at))
            # In the order of time, so that each finds the links that earlier ones hold.
            group = min(groups, key=lambda g: min(self.now[d] for s in g for d in self._dies[s]))
            first = at[group[0]]
            assert first is not None
            self._call((first[0], tuple((s, m[1]) for s in group if (m := at[s]))))
            for s in group:
                at[s] = next(walks[s], None)
        return self

    def _leap(self, at: Sequence[Meeting | None]) -> None:
        """Leave out whole periods of a pipeline in its steady state."""
        if self.unrolled:
            return
        first = min(self.now)
        state = (
            tuple(id(m[2]) if m else 0 for m in at),
            tuple(n - first for n in self.now),
            tuple((die, _later(held, -first)) for die, held in sorted(self._held.items())),
            tuple((c.dies, _later(held, -first)) for c, held in self._meetings),
        )
        leap = self._periods.leap(self._stacks, state, first, self.tally)
        if leap is None:
            return
        for stack, turns in zip(self._stacks, leap.turns, strict=True):
            stack[0].turn += turns * leap.periods
        for entry, times in leap.tally.items():
            self.tally[entry] += times * leap.periods
        self._skip([range(len(self.now))], [leap.ticks], leap.periods)
        self._meetings = [(c, _later(held, leap.ticks * leap.periods)) for c, held in self._meetings]

    def _met(self, stage: int, at: list[Meeting | None]) -> list[int]:
        """The stages that take part in the meeting at which a stage is, if all have come to it."""
        mine = at[stage]
        if mine is None:
            return []
        group, found = {stage}, [stage]
        for s in found:
            other = at[s]
            if other is None or other[0] != mine[0]:
                return []
            new = sorted(self._partners_of(s, mine[0]) - group)
            group.update(new)
            found.extend(new)
        return sorted(group)

    def _partners_of(self, stage: int, procedure: str) -> frozenset[int]:
        """The stages whose dies have messages with those of a stage in a procedure, itself among them."""
        key = stage, procedure
        if key not in self._partners:
            peers = {p for die in self._dies[stage] for p in self.builder.peers(die, procedure)}
            self._partners[key] = frozenset({stage, *(self.builder.stages[p] for p in peers)})
        return self._partners[key]

    # -- one stage ----------------------------------------------------------------------------------------

    def _stage(self, stage: int) -> Iterator[Meeting]:
        """Compose what a stage does alone; stops at every call in which it meets others."""

        def locate(procedure: str, args: Sequence[int]) -> Places:
            return self.builder.places(stage, procedure, args)

        def meets(procedure: str) -> bool:
            return len(self._partners_of(stage, procedure)) > 1

        step = nodes(self.builder.streams.steps[stage], locate, meets)
        yield from self._walk(stage, step, {})

    def _walk(self, stage: int, body: Sequence[Node], variables: Mapping[str, int]) -> Iterator[Meeting]:
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
        """A steady loop: turn by turn until a state comes back, then all whole periods at once."""
        classes = self._classes(stage, loop)
        seen: dict[tuple[tuple[int, ...], tuple[Held, ...]], int] = {}
        starts: list[list[int]] = []
        tallies: list[Tally] = []
        turn = 0
        while turn < loop.count:
            firsts = [min(self.now[d] for d in dies) for dies in classes]
            state = (
                tuple(self.now[d] - t for dies, t in zip(classes, firsts, strict=True) for d in dies),
                tuple(self._held_by(dies, t) for dies, t in zip(classes, firsts, strict=True)),
            )
            before = seen.get(state)
            if before is not None and (periods := (loop.count - turn) // (len(starts) - before)):
                self._skip(classes, [a - b for a, b in zip(firsts, starts[before], strict=True)], periods)
                for tally in tallies[before:]:
                    for entry, times in tally.items():
                        self.tally[entry] += times * periods
                turn += periods * (len(starts) - before)
                seen.clear()
                continue
            seen[state] = len(starts)
            starts.append(firsts)
            tallies.append(self._turn(stage, loop))
            turn += 1

    def _turn(self, stage: int, loop: LoopNode) -> Tally:
        """One turn of a steady loop; what it added to the tally."""
        outer, self.tally = self.tally, Counter()
        met = next(self._walk(stage, loop.body, {}), None)
        assert met is None, "a steady loop meets no stage"
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
        """The dies of a stage that depend on one another anywhere in a loop."""
        joined: UnionFind[object] = UnionFind()
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
                entry = self._entries[cluster, state, held] = self._simulated(variant, cluster, state, held)
            self.tally[entry] += 1
            if self.observer:
                self.observer.called(entry, begin)
            for die, time in zip(cluster.dies, entry.leave, strict=True):
                self.now[die] = begin + time
            self._hold(cluster, entry, begin)
            if len(variant[1]) > 1:
                self._meetings.append((cluster, _later((h for h, _ in entry.run.holds), begin)))

    def _hold(self, cluster: Cluster, entry: Entry, begin: int) -> None:
        """What the messages of a cluster hold from now on: those from before may outlive a short call."""
        over, late = min(self.now), dict(entry.held)
        for die in cluster.dies:
            before = tuple(h for h in self._held.pop(die, ()) if h.end > over)
            if held := before + _later(late.get(die, ()), begin):
                self._held[die] = held

    def _held_elsewhere(self, cluster: Cluster, begin: int) -> Held:
        """The links of a cluster that other stages hold beyond a time where they meet, counted from it."""
        over = min(self.now)
        self._meetings = [m for m in self._meetings if max((h.end for h in m[1]), default=over) > over]
        return tuple(
            _from(hold, begin)
            for other, held in self._meetings
            if set(other.dies).isdisjoint(cluster.dies)
            for hold in held
            if hold.end > begin and hold.link in cluster.links
        )

    def _held_by(self, dies: Sequence[int], begin: int) -> Held:
        """The links that messages of some dies hold beyond a time, counted from it."""
        if not self._held:
            return ()
        return tuple(
            _from(hold, begin) for die in dies for hold in self._held.get(die, ()) if hold.end > begin
        )

    def _clusters_of(self, variant: Variant) -> tuple[Cluster, ...]:
        if variant not in self._clusters:
            procedure, places = variant
            calls = {
                die: self.builder.call(die, procedure, where) for s, where in places for die in self._dies[s]
            }
            self._clusters[variant] = clusters_of(calls)
        return self._clusters[variant]

    def _simulated(self, variant: Variant, cluster: Cluster, state: tuple[int, ...], held: Held) -> Entry:
        scripts = {d: [(0, c.steps)] for d, c in zip(cluster.dies, cluster.calls, strict=True)}
        enter = dict(zip(cluster.dies, state, strict=True))
        run = Simulation(self.builder.costs, self._stations, scripts, enter, held).run()
        leave = tuple(run.leave[d] for d in cluster.dies)
        late: dict[int, list[Hold]] = {}
        for hold, die in run.holds:
            if hold.end > min(leave):
                late.setdefault(die, []).append(hold)
        return Entry(variant, cluster, state, leave, tuple((d, tuple(h)) for d, h in late.items()), run)


def _later(held: Iterable[Hold], ticks: int) -> Held:
    return tuple(h.later(ticks) for h in held)


def _from(hold: Hold, begin: int) -> Hold:
    """Counted from a time; how long before it the message asked makes no difference."""
    counted = hold.later(-begin)
    return counted._replace(asked=max(0, counted.asked))


def _who(at: Sequence[Meeting | None]) -> str:
    return "; ".join(
        f"stage {s} in `{m[0]}`" if m is not None else f"stage {s} has ended" for s, m in enumerate(at)
    )
