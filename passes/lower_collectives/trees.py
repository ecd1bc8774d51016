"""An all_reduce along packed spanning trees (`wscc.collectives.packing`): pieces of the vector are added up on the way
to the root of their tree, and told on the way back, one behind the other.

A ring or a chain carries on some link as many bytes as the vector has, once to sum and once to tell, and leaves others
idle; trees share both among all links, both ways at once. All messages are one hop, as those of relays are.

Pieces of larger groups than `SMALL`, whose packing takes long, all take one tree of shortest paths from the middle: it
has as many rounds as it is high, and messages in proportion to the dies, where a ring has a round for each die.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Final

from wscc.analysis.gather_plan import Move
from wscc.collectives.arrange import Route, arrange
from wscc.collectives.packing import pack
from wscc.collectives.plan import REDUCE, Chunk, Message, Plan
from wscc.collectives.timing import LinkModel, simulate
from wscc.collectives.trees import OutTree, adjacency, out_tree, up_and_down
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.moves import Hop, in_order, moves_of

# Groups of so many dies are small.
SMALL: Final = 64
# Pieces of the vector: they follow one another, so that few of them leave links idle at the ends.
_PIECES: Final = (8, 16, 32, 64)
_ON_ONE_TREE: Final = (1, 2, 4, 8)
# Messages of a plan, and of those in flight together: each is an instruction, and many take long to compile.
_MOST_MESSAGES: Final = 2048
_MOST_TOGETHER: Final = 4096
# How many times as fast a plan of twice the pieces has to be.
_TWICE: Final = 1.05
# Rounds that a message may be late: none where latency is little of a round.
_LATE: Final = (0, 1)
# Smaller groups have one link between two dies.
_LEAST: Final = 3
# Dies that the middle of a large group is as near to as can be, each the farthest from those before.
_LANDMARKS: Final = 8


@dataclass(frozen=True, slots=True)
class TreeMove:
    """A move of pieces one hop along their trees: up, where what arrived is added, or down. `joins`: the senders add
    what arrived before; of those on the way down they are the roots."""

    move: Move
    up: bool
    joins: bool


@dataclass(frozen=True, slots=True)
class TreePlan:
    """An all_reduce of a vector in equal `pieces`, and its seconds."""

    pieces: int
    rounds: tuple[tuple[TreeMove, ...], ...]
    seconds: float


@dataclass(frozen=True)
class Trees:
    """The packed trees of positions that are joined as `common` says, over links of `model`."""

    common: Topology
    model: LinkModel
    _known: dict[tuple[int, int], TreePlan] = field(default_factory=dict, repr=False)

    def least(self, whole: int) -> float:
        """Seconds that an all_reduce of so many bytes takes at least: two crossings of every byte for each die but one,
        over all links both ways. Infinite where groups are too small for trees."""
        size, links = len(self.common.live), len(self.common.links)
        if size < _LEAST:
            return inf
        return self.model.seconds(2 * (size - 1) * whole / links + self.model.latency)

    def plans(self, whole: int, elements: int, in_flight: int) -> Iterator[TreePlan]:
        """The plans for so many bytes of all `in_flight` together, and elements of one, of ever more pieces, until one
        is hardly faster than the one before it."""
        before = inf
        for pieces in _PIECES if self._is_small else _ON_ONE_TREE:
            messages = 2 * pieces * (len(self.common.live) - 1)
            too_many = self._is_small and messages > min(_MOST_MESSAGES, _MOST_TOGETHER // in_flight)
            if elements % pieces or too_many:
                continue
            if (whole, pieces) not in self._known:
                self._known[whole, pieces] = self._found(whole, pieces)
            found = self._known[whole, pieces]
            if found.seconds * _TWICE > before:
                return
            before = found.seconds
            yield found

    @property
    def _is_small(self) -> bool:
        return len(self.common.live) <= SMALL

    @cached_property
    def _packed(self) -> tuple[OutTree, ...]:
        if self._is_small:
            return pack(self.common).trees
        return (out_tree(adjacency(self.common), _middle(self.common)),)

    def _found(self, whole: int, pieces: int) -> TreePlan:
        trees, share = self._packed, max(1, whole // pieces)
        paths = [up_and_down(tree) for tree in trees]
        routes = [paths[i % len(paths)] for i in range(pieces)]
        roots = [_root(trees[i % len(trees)]) for i in range(pieces)]

        def timed(late: int) -> TreePlan:
            rounds = _moves(len(self.common.live), self._rounds(routes, share, late), roots)
            moves = (m.move for moves in rounds for m in moves)
            seconds = self.model.seconds(in_order(moves, share, self.model))
            return TreePlan(pieces, rounds, seconds)

        return min(map(timed, _LATE), key=lambda plan: plan.seconds)

    def _rounds(self, routes: Sequence[Route], share: int, late: int) -> list[list[Message]]:
        """The messages that start together, where each takes its link for one round, and is there `late` rounds after
        that: dies that wait for one another in turns wait once a round."""
        hold = self.model.hold(share)
        model = replace(self.model, latency=late * hold, store_and_forward=False)
        sizes, width = [share] * len(routes), len(self._packed)
        messages = arrange(routes, sizes, [i // width for i in range(len(routes))], model, 1)
        nobody = frozenset[int]()
        plan = Plan("trees", tuple(Chunk(n, nobody, nobody) for n in sizes), messages)
        rounds: dict[int, list[Message]] = {}
        for start, message in zip(simulate(plan, model).starts, messages, strict=True):
            rounds.setdefault(round(start / hold), []).append(message)
        return [rounds[start] for start in sorted(rounds)]


def _middle(common: Topology) -> int:
    """A position that is near to the ends of the group, found in time proportional to its links."""
    near = dict.fromkeys(common.live, inf)
    far: dict[int, tuple[int, int]] = dict.fromkeys(common.live, (0, 0))
    landmark = common.live[0]
    for _ in range(_LANDMARKS):
        for p, d in _distances(common, landmark).items():
            near[p] = min(near[p], d)
            far[p] = max(far[p][0], d), far[p][1] + d
        landmark = max(common.live, key=lambda p: (near[p], far[p]))
    return min(common.live, key=lambda p: (*far[p], p))


def _distances(common: Topology, source: int) -> dict[int, int]:
    """The links from a position to each."""
    distance = {source: 0}
    for p, parent in out_tree(adjacency(common), source).items():
        distance[p] = distance[parent] + 1
    return distance


def _root(tree: OutTree) -> int:
    return next(parent for parent in tree.values() if parent not in tree)


def _moves(
    size: int, rounds: Sequence[Sequence[Message]], roots: Sequence[int]
) -> tuple[tuple[TreeMove, ...], ...]:
    """The rounds as moves whose senders all go up or all down and all add or none, and whose receivers pass on what
    they get in the same round: a die waits for a move where the first of them does."""
    hops = [[(m.src, m.dst, m.chunks[0]) for m in messages] for messages in rounds]
    ups = {
        hop: m.op == REDUCE
        for r, messages in zip(hops, rounds, strict=True)
        for hop, m in zip(r, messages, strict=True)
    }
    inner = {(to, piece) for (_, to, piece), up in ups.items() if up}
    # By die, piece and way: the first round in which it sends that.
    uses: dict[tuple[int, int, bool], int] = {}
    for number, together in enumerate(hops):
        for source, to, piece in together:
            uses.setdefault((source, piece, ups[source, to, piece]), number)

    def kind(hop: Hop) -> tuple[int, bool, bool]:
        source, to, piece = hop
        up = ups[hop]
        use = uses.get((to, piece, up and to != roots[piece]), len(rounds))
        return use, up, (source, piece) in inner if up else roots[piece] == source

    return tuple(
        tuple(
            TreeMove(move, up, joins)
            for (_, up, joins), moves in sorted(moves_of(size, together, kind).items())
            for move in moves
        )
        for together in hops
    )
