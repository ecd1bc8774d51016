"""Lowering of reshards to kernels and chunked transfers. Every algorithm works along one axis, on all its groups at
once.

Orders of summation are fixed and the same for every replica: a reduced value is computed once, by its owner, and then
copied; or, when small, from the same parts in the same order by everyone. Along trees, the root of a piece owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from wscc.analysis.gather_plan import GatherPlan, Move, Part, only
from wscc.ir.logical_mesh import LogicalMesh, mask
from wscc.ir.op import Reshard
from wscc.ir.per_die import NOBODY, Ints, flipped, times
from wscc.ir.views import View, flat, sliced
from wscc.passes.lower_collectives.algorithm import Algorithm, Reduction
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.lower_collectives.builder import FabricBuilder, part_of
from wscc.passes.lower_collectives.trees import TreePlan

# The opcode that combines two parts, by kind of reduction.
COMBINE: Final = {"sum": "add", "max": "maximum"}


@dataclass(frozen=True, slots=True)
class AxisGroups:
    """The groups of dies along one axis of the mesh, with a gather plan. `replicated`: what a die sends to several
    others in a gather is one content."""

    build: FabricBuilder
    axis: str
    plan: GatherPlan
    one_hop: bool
    replicated: bool = False

    def only(self, root: int) -> AxisGroups:
        """The same groups with the moves of the shard of one position alone."""
        return replace(self, plan=only(self.plan, root))

    def by(self, algorithm: Algorithm) -> AxisGroups:
        """The same groups with the gather plan of another algorithm."""
        return axis_groups(self.build, self.axis, algorithm)

    def between_neighbours(self) -> AxisGroups:
        """The same groups for messages that all cross one link."""
        return replace(self, one_hop=True)

    @property
    def mesh(self) -> LogicalMesh:
        """The mesh of logical dies."""
        return self.build.mesh

    @property
    def size(self) -> int:
        """The number of dies of a group."""
        return self.mesh.sizes[self.axis]

    @property
    def position(self) -> Ints:
        """The position of each die in its group, by die."""
        return self.mesh.by_position(self.axis, range(self.size))

    def shard_view(self, view: View, dim: int, shard: Ints) -> View:
        """The part of a view with shard number `shard` (by die) of a dimension that is split in `size`."""
        chunk = view.shape[dim] // self.size
        return sliced(view, dim, times(shard, chunk), chunk)

    def piece_view(self, view: View, dim: int, pieces: tuple[int, ...]) -> View:
        """The part of a view with a piece of a shard of a dimension that is split in `size`, by position."""
        return self.piece_of(self.shard_view(view, dim, self.by_position(self.owners(pieces))), pieces)

    def piece_of(self, shard: View, pieces: tuple[int, ...]) -> View:
        """The part of a view of a shard with one of its pieces, by position."""
        if self.plan.pieces == 1:
            return shard
        dim = dimension_to_cut(shard.shape, self.plan.pieces)
        count = shard.shape[dim] // self.plan.pieces
        numbers = self.by_position(tuple(i % self.plan.pieces for i in pieces))
        return sliced(shard, dim, times(numbers, count), count)

    def owners(self, pieces: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of the shards of pieces."""
        return tuple(i // self.plan.pieces for i in pieces)

    def by_position(self, values: tuple[int, ...]) -> Ints:
        """Values given by position in a group, by die."""
        return self.mesh.by_position(self.axis, values)

    def send(self, move: Move, read: View, write: View, group: str, content: str = "") -> None:
        """Append the transfer of one move; `read` is the sender's view, `write` the receiver's, of the whole shard."""
        source, target = part_of(read, move.part), part_of(write, move.part)
        if source is not None and target is not None:
            peers = self.mesh.peers(self.axis, move.to)
            self.build.transfer(peers, source, target, group, content, one_hop=self.one_hop)


def dimension_to_cut(shape: tuple[int, ...], pieces: int) -> int:
    """The first dimension that can be cut in so many equal pieces."""
    return next(d for d, n in enumerate(shape) if n % pieces == 0)


def axis_groups(build: FabricBuilder, axis: str, algorithm: Algorithm) -> AxisGroups:
    """The groups along an axis, with the gather plan of an algorithm."""
    return AxisGroups(build, axis, algorithm.plan, algorithm.one_hop, algorithm.replicated)


@lru_cache(maxsize=1024)
def arriving(move: Move) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """The shard that arrives at each position, and whether one does."""
    shard, arrives = [0] * len(move.to), [False] * len(move.to)
    for p, q in enumerate(move.to):
        if q != NOBODY:
            shard[q], arrives[q] = move.shard[p], True
    return tuple(shard), tuple(arrives)


class Arrived:
    """Moves and the slots that they fill, in order. What brings a piece is found by position and piece: of a ring of n
    dies, n moves are each asked for what came before."""

    def __init__(self) -> None:
        self._all: list[tuple[Move, View]] = []
        self._at: dict[tuple[int, int], list[int]] = {}

    def add(self, move: Move, slot: View) -> None:
        """A move whose messages are in `slot`."""
        for to, piece in zip(move.to, move.shard, strict=True):
            if to != NOBODY:
                self._at.setdefault((to, piece), []).append(len(self._all))
        self._all.append((move, slot))

    def bringing(self, pieces: tuple[int, ...]) -> list[tuple[Move, View]]:
        """Those that bring some position its piece."""
        numbers = {n for arrival in enumerate(pieces) for n in self._at.get(arrival, ())}
        return [self._all[n] for n in sorted(numbers)]


# ------------------------------------------------------------------------------------------- the reshards


def all_gather(a: AxisGroups, x: View, out: View, dim: int, group: str) -> None:
    """Append the gather of shards `x` of dimension `dim` into `out`; shards that have arrived in `out` are relayed."""
    for _ in gathering(a, x, out, dim, group):
        pass


def gathering(a: AxisGroups, x: View, out: View, dim: int, group: str) -> Iterator[None]:
    """Append an `all_gather` a round at a time."""
    own_shard = a.shard_view(out, dim, a.position)
    if x != own_shard:
        a.build.kernel("copy", [own_shard], [x])
    # What a die sends to all others is one content, which routers may replicate.
    content = f"{group}.{a.build.channel}" if a.replicated else ""
    for r, moves in enumerate(a.plan.rounds):
        for move in moves:
            shard, _ = arriving(move)
            source = a.piece_of(x, move.shard) if r == 0 else a.piece_view(out, dim, move.shard)
            a.send(move, source, a.piece_view(out, dim, shard), group, content)
        yield


def reduce_scatter(a: AxisGroups, x: View, out: View, dim: int, group: str, combine: str = "add") -> None:
    """Append the gather plan run backwards: partial sums of a shard flow to its owner, accumulated on the way."""
    for _ in scattering(a, x, out, dim, group, combine):
        pass


def scattering(
    a: AxisGroups, x: View, out: View, dim: int, group: str, combine: str = "add"
) -> Iterator[None]:
    """Append a `reduce_scatter` a round at a time."""
    arrived = Arrived()
    for r, moves in enumerate(reversed(a.plan.rounds)):
        sends = []
        for i, forward in enumerate(moves):
            move = forward.backwards()
            source = a.piece_view(x, dim, move.shard)
            if pending := arrived.bringing(move.sent):
                acc = a.build.buffer(f"{group}.acc{r}.{i}", source.shape, source.dtype)
                _sum_into(a, acc, source, move.sent, pending, combine)
                source = acc
            slot = a.build.buffer(f"{group}.in{r}.{i}", source.shape, source.dtype, slot=True)
            sends.append((move, source, slot))
        for move, source, slot in sends:
            a.send(move, source, slot, group)
        for move, _, slot in sends:
            arrived.add(move, slot)
        yield
    for i in range(a.plan.pieces):
        own = tuple(p * a.plan.pieces + i for p in range(a.size))
        pending = arrived.bringing(own)
        _sum_out(a, a.piece_of(out, own), a.piece_view(x, dim, own), own, pending, f"{group}.acc", combine)


def _sum_out(
    a: AxisGroups,
    out: View,
    own: View,
    pieces: tuple[int, ...],
    arrived: list[tuple[Move, View]],
    hint: str,
    combine: str,
) -> None:
    """As `_sum_into`, for a result that may be in slow memory: where several parts arrive, and the last everywhere, the
    sum reaches its place once."""
    if len(arrived) > 1 and _is_complete(arrived[-1][0], pieces):
        acc = a.build.buffer(hint, own.shape, own.dtype)
        _sum_into(a, acc, own, pieces, arrived[:-1], combine)
        own, arrived = acc, arrived[-1:]
    _sum_into(a, out, own, pieces, arrived, combine)


def _is_complete(move: Move, pieces: tuple[int, ...]) -> bool:
    """Whether a move brings every position the whole of its piece."""
    return move.part is Part.WHOLE and all(_receivers(pieces, move) or (False,))


@lru_cache(maxsize=1024)
def _receivers(pieces: tuple[int, ...], move: Move) -> tuple[bool, ...] | None:
    """The positions at which a move brings the piece of each (`NOBODY`: none); None where it brings none."""
    arriving_pieces, arrives = arriving(move)
    at = tuple(has and i == j for i, has, j in zip(arriving_pieces, arrives, pieces, strict=True))
    return at if any(at) else None


def _sum_into(
    a: AxisGroups,
    acc: View,
    own: View,
    pieces: tuple[int, ...],
    pending: list[tuple[Move, View]],
    combine: str,
) -> None:
    """Append kernels that set `acc` to the die's own part of a piece plus the parts of it that arrived, in the order of
    arrival. Where each position that has a piece gets a part in some move, its first one is added to the own."""
    arrivals = [(r, m, slot) for m, slot in pending if (r := _receivers(pieces, m))]
    fresh = [i != NOBODY for i in pieces]
    served = [any(r[p] for r, _, _ in arrivals) for p in range(a.size)]
    complete = all(s for f, s in zip(fresh, served, strict=True) if f)
    if not complete or any(m.part is not Part.WHOLE for _, m, _ in arrivals):
        a.build.kernel("copy", [acc], [own])
        add_arrived(a, acc, pieces, pending, combine)
        return
    for receivers, _, slot in arrivals:
        for mine, others in ((own, True), (acc, False)):
            where = [r and f is others for r, f in zip(receivers, fresh, strict=True)]
            if any(where):
                a.build.kernel(combine, [acc], [mine, slot], where=mask(a.mesh, a.axis, where))
        fresh = [f and not r for r, f in zip(receivers, fresh, strict=True)]


def add_arrived(
    a: AxisGroups, acc: View, shards: tuple[int, ...], pending: list[tuple[Move, View]], combine: str = "add"
) -> None:
    """Append the sums into `acc` of the slots whose shard is the one that a die accumulates (`shards`, by position)."""
    for move, slot in pending:
        receivers = _receivers(shards, move)
        part, into = part_of(slot, move.part), part_of(acc, move.part)
        if receivers and part is not None and into is not None:
            a.build.kernel(combine, [into], [into, part], where=mask(a.mesh, a.axis, receivers))


def sum_of_parts(a: AxisGroups, x: View, out: View, group: str, combine: str = "add") -> None:
    """Append an all_reduce of `x` into `out`, of equal shapes: every die gathers the parts of all, and combines them in
    order of position."""
    parts = a.build.buffer(f"{group}.parts", (a.size, *x.shape), x.dtype)
    local = View(x.buffer, x.offset, (1, *x.shape), (0, *x.strides), x.dtype)
    all_gather(a, local, parts, 0, group)
    first, *rest = (sliced(parts, 0, p, 1) for p in range(a.size))
    row = View(out.buffer, out.offset, (1, *out.shape), (0, *out.strides), out.dtype)
    a.build.kernel(combine, [row], [first, rest[0]])
    for part in rest[1:]:
        a.build.kernel(combine, [row], [row, part])


def scatter_and_gather(
    a: AxisGroups, gather: AxisGroups, x: View, out: View, group: str, combine: str = "add"
) -> None:
    """Append an all_reduce of `x` into `out`, of equal shapes: a reduce_scatter of equal shards, then their
    all_gather, each with the plan of its own groups."""
    n, size = out.elements, a.size
    whole = flat(a.build.contiguous(x, f"{group}.flat"))
    result = out if out.is_contiguous else a.build.buffer(f"{group}.out", out.shape, out.dtype)
    rows = View(whole.buffer, whole.offset, (size, n // size), (n // size, 1), x.dtype)
    into = View(result.buffer, result.offset, (size, n // size), (n // size, 1), x.dtype)
    own_shard = a.shard_view(into, 0, a.position)
    if whole.buffer == result.buffer:
        own_copy = a.build.buffer(f"{group}.own", own_shard.shape, own_shard.dtype)
        reduce_scatter(a, rows, own_copy, 0, group, combine)
        a.build.kernel("copy", [own_shard], [own_copy])
    else:
        reduce_scatter(a, rows, own_shard, 0, group, combine)
    all_gather(gather, own_shard, into, 0, group)
    if result is not out:
        a.build.kernel("copy", [out], [result])


def along_trees(a: AxisGroups, trees: TreePlan, x: View, out: View, group: str, combine: str = "add") -> None:
    """Append an all_reduce of `x` into `out`, of equal shapes: each piece is added up on the way to the root of its
    tree, which alone has the sum, and is copied on the way back."""
    whole = flat(a.build.contiguous(x, f"{group}.flat"))
    is_apart = out.is_contiguous and out.buffer != whole.buffer
    result = out if is_apart else a.build.buffer(f"{group}.out", out.shape, out.dtype)
    rows = trees.pieces, out.elements // trees.pieces
    parts, sums = (View(v.buffer, v.offset, rows, (rows[1], 1), x.dtype) for v in (whole, result))
    arrived = Arrived()
    told: set[int] = set()
    for number, t in enumerate(t for moves in trees.rounds for t in moves):
        own = sliced(parts, 0, a.by_position(t.move.shard), 1)
        source = own if t.up else sliced(sums, 0, a.by_position(t.move.shard), 1)
        fresh = tuple(NOBODY if i in told else i for i in t.move.sent)
        if t.up and number:
            source = a.build.buffer(f"{group}.acc{number}", source.shape, source.dtype)
        if t.joins and any(i != NOBODY for i in fresh):
            told.update(() if t.up else fresh)
            _sum_into(a, source, own, fresh, arrived.bringing(fresh), combine)
        elif t.up and number:
            # A message of what is there from the start would go before those that it follows.
            sends = mask(a.mesh, a.axis, [i != NOBODY for i in fresh])
            a.build.kernel("copy", [source], [own], where=sends)
        if not t.up:
            a.send(t.move, source, sliced(sums, 0, a.by_position(arriving(t.move)[0]), 1), group)
            continue
        slot = a.build.buffer(f"{group}.in{number}", source.shape, source.dtype, slot=True)
        a.send(t.move, source, slot, group)
        arrived.add(t.move, slot)
    if result is not out:
        a.build.kernel("copy", [out], [result])


def all_to_all(a: AxisGroups, x: View, out: View, dim: int, to: int, group: str) -> None:
    """Append an all_to_all: each die sends every other its block of dimension `to`; blocks arrive in order along
    `dim`."""
    size = a.size
    positions = range(size)
    a.build.kernel("copy", [a.shard_view(out, dim, a.position)], [a.shard_view(x, to, a.position)])
    for k in range(1, size):
        target = tuple((p + k) % size for p in positions)
        sender = tuple((p - k) % size for p in positions)
        a.build.transfer(
            a.mesh.peers(a.axis, target),
            a.shard_view(x, to, a.by_position(target)),
            a.shard_view(out, dim, a.by_position(sender)),
            group,
        )


def lower_reshard(
    build: FabricBuilder,
    op: Reshard,
    x: View,
    destination: Callable[[tuple[int, ...]], View],
    algorithms: Algorithms,
) -> View:
    """The view of the result of a reshard of `x`, whose kernels and transfers are appended; a slice is only a view.

    `destination` gives the view for a result of a local shape.
    """
    shape = op.result.type.local_shape(build.mesh.sizes)
    a = axis_groups(build, op.axis, algorithms.neighbours(op.axis))
    if op.kind == "slice":
        return a.shard_view(x, op.dim, a.position)
    out = destination(shape)
    group = op.result.name
    if op.kind == "mask":
        first = mask(build.mesh, op.axis, [p == 0 for p in range(a.size)])
        build.kernel("copy", [out], [x], where=first)
        build.kernel("fill", [out], [], {"value": 0.0}, flipped(first))
    elif op.kind == "all_gather":
        all_gather(a.by(algorithms.gather(op.axis, x.bytes, x.shape)), x, out, op.dim, group)
    elif op.kind == "reduce_scatter":
        reduce_scatter(a.by(algorithms.scatter(op.axis, out.bytes, out.shape)), x, out, op.dim, group)
    elif op.kind in ("all_reduce", "stage_sum"):
        reduction = algorithms.reduction(op.axis, out.elements, out.dtype.size)
        all_reduce(a, reduction, x, out, group, COMBINE[str(op.reduction or "sum")])
    elif op.kind == "permute":
        to = tuple(op.target if p == op.source else NOBODY for p in range(a.size))
        build.transfer(a.mesh.peers(op.axis, to), x, out, group)
    else:
        all_to_all(a, x, out, op.dim, op.to, group)
    return out


def all_reduce(
    a: AxisGroups, reduction: Reduction, x: View, out: View, group: str, combine: str = "add"
) -> None:
    """Append an all_reduce of `x` into `out`, of equal shapes, by the algorithms of a reduction."""
    gather = a.by(reduction.gather)
    if reduction.trees is not None:
        along_trees(a.between_neighbours(), reduction.trees, x, out, group, combine)
    elif reduction.scatter is None:
        sum_of_parts(gather, x, out, group, combine)
    else:
        scatter_and_gather(a.by(reduction.scatter), gather, x, out, group, combine)
