"""Reshards as kernels and chunked transfers. Every algorithm works along one axis, on all its groups at once.

Orders of summation are fixed and the same for every replica: a reduced value is computed once, by its owner,
and then copied; or, when small, from the same parts in the same order by everyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from wscc.analysis.gather_plan import GatherPlan, Move, Part, chain, ring
from wscc.ir.logical_mesh import LogicalMesh, mask
from wscc.ir.op import Reshard
from wscc.ir.per_die import NOBODY, Ints, flipped, times
from wscc.ir.views import View, flat, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder, halves

# Below this many bytes an all_reduce gathers all parts and sums them locally: fewer rounds matter more.
DIRECT_BYTES: Final = 32 * 1024

# opcode that combines two parts, by kind of reduction
COMBINE: Final = {"sum": "add", "max": "maximum"}


@dataclass(frozen=True, slots=True)
class Along:
    """One axis of the mesh, with the plan that fits how its groups lie."""

    build: FabricBuilder
    axis: str
    plan: GatherPlan
    one_hop: bool

    @property
    def mesh(self) -> LogicalMesh:
        return self.build.mesh

    @property
    def size(self) -> int:
        return self.mesh.sizes[self.axis]

    @property
    def own(self) -> Ints:
        """By die, its own position."""
        return self.mesh.by_position(self.axis, range(self.size))

    def at(self, view: View, dim: int, shard: Ints) -> View:
        """Shard number `shard` (by die) of a dimension cut in `size`."""
        chunk = view.shape[dim] // self.size
        return sliced(view, dim, times(shard, chunk), chunk)

    def by_position(self, values: tuple[int, ...]) -> Ints:
        return self.mesh.by_position(self.axis, values)

    def send(self, move: Move, read: View, write: View, group: str) -> None:
        """The transfer of one move; `read` is the sender's view, `write` the receiver's, of the whole shard."""
        source, target = halves(read, move.part), halves(write, move.part)
        if source is not None and target is not None:
            peers = self.mesh.peers(self.axis, move.to)
            self.build.transfer(peers, source, target, group, one_hop=self.one_hop)


def along(build: FabricBuilder, axis: str, lies: str) -> Along:
    """`lies`: `ring` or `chain` of neighbours, or `apart` (then a ring over several hops)."""
    size = build.mesh.sizes[axis]
    plan = chain(size) if lies == "chain" and size > 2 else ring(size)
    return Along(build, axis, plan, lies != "apart")


def arriving(move: Move) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """By receiver: the shard that arrives, and whether one does."""
    shard, lands = [0] * len(move.to), [False] * len(move.to)
    for p, q in enumerate(move.to):
        if q != NOBODY:
            shard[q], lands[q] = move.shard[p], True
    return tuple(shard), tuple(lands)


# ------------------------------------------------------------------------------------------- the reshards


def all_gather(a: Along, x: View, out: View, dim: int, group: str) -> None:
    """Every shard to its place in `out`; shards already in `out` are relayed from there."""
    for _ in gathering(a, x, out, dim, group):
        pass


def gathering(a: Along, x: View, out: View, dim: int, group: str) -> Iterator[None]:
    """`all_gather` a round at a time."""
    mine = a.at(out, dim, a.own)
    if x != mine:
        a.build.kernel("copy", [mine], [x])
    if a.build.multicast:
        _to_all(a, x, out, dim, group)
        return
    for r, moves in enumerate(a.plan.rounds):
        for move in moves:
            shard, _ = arriving(move)
            source = x if r == 0 else a.at(out, dim, a.by_position(move.shard))
            a.send(move, source, a.at(out, dim, a.by_position(shard)), group)
        yield


def _to_all(a: Along, x: View, out: View, dim: int, group: str) -> None:
    """Each die sends its shard to all others of its group: the same bytes, which routers may replicate."""
    content = f"{group}.{a.build.channel}"
    for k in range(1, a.size):
        peers = a.mesh.peers(a.axis, tuple((p + k) % a.size for p in range(a.size)))
        sender = a.by_position(tuple((p - k) % a.size for p in range(a.size)))
        a.build.transfer(peers, x, a.at(out, dim, sender), group, content)


def reduce_scatter(a: Along, x: View, out: View, dim: int, group: str, combine: str = "add") -> None:
    """The gather plan backwards: partial sums of a shard flow to its owner, growing on the way."""
    pending: list[tuple[Move, View]] = []
    for r, moves in enumerate(reversed(a.plan.rounds)):
        sends = []
        for i, forward in enumerate(moves):
            move = forward.backwards()
            source = a.at(x, dim, a.by_position(move.shard))
            if pending:
                source = _grown(a, source, move.sent, pending, f"{group}.acc{r}.{i}", combine)
            slot = a.build.buffer(f"{group}.in{r}.{i}", source.shape, source.dtype, slot=True)
            sends.append((move, source, slot))
        for move, source, slot in sends:
            a.send(move, source, slot, group)
        pending = [(move, slot) for move, _, slot in sends]
    _sum_into(a, out, a.at(x, dim, a.own), tuple(range(a.size)), pending, combine)


def _grown(
    a: Along, mine: View, shards: tuple[int, ...], pending: list[tuple[Move, View]], hint: str, combine: str
) -> View:
    """The die's own part of a shard plus what just arrived for it."""
    if not _matches(a, shards, pending):
        return mine
    acc = a.build.buffer(hint, mine.shape, mine.dtype)
    _sum_into(a, acc, mine, shards, pending, combine)
    return acc


def _sum_into(
    a: Along, acc: View, mine: View, shards: tuple[int, ...], pending: list[tuple[Move, View]], combine: str
) -> None:
    """`acc` becomes the die's own part and what arrived for it, added in the order of arrival."""
    if pending and _is_for_all(pending[0][0], shards):
        a.build.kernel(combine, [acc], [mine, pending[0][1]])
        pending = pending[1:]
    else:
        a.build.kernel("copy", [acc], [mine])
    add_arrived(a, acc, shards, pending, combine)


def _is_for_all(move: Move, shards: tuple[int, ...]) -> bool:
    """Whether every die receives the whole shard that it adds to."""
    shard, lands = arriving(move)
    return move.part is Part.WHOLE and all(lands) and shard == shards


def _matches(a: Along, shards: tuple[int, ...], pending: list[tuple[Move, View]]) -> bool:
    return any(
        lands and shard == wanted
        for move, _ in pending
        for shard, lands, wanted in zip(*arriving(move), shards, strict=True)
    )


def add_arrived(
    a: Along, acc: View, shards: tuple[int, ...], pending: list[tuple[Move, View]], combine: str = "add"
) -> None:
    """Add the slots whose shard is the one that the die accumulates."""
    for move, slot in pending:
        shard, lands = arriving(move)
        here = [ok and s == w for s, ok, w in zip(shard, lands, shards, strict=True)]
        part, into = halves(slot, move.part), halves(acc, move.part)
        if any(here) and part is not None and into is not None:
            a.build.kernel(combine, [into], [into, part], where=mask(a.mesh, a.axis, here))


def all_reduce(a: Along, x: View, out: View, group: str, combine: str = "add") -> None:
    """Small: gather the parts, combine in order of position. Large: reduce_scatter, then all_gather."""
    n, size = out.elements, a.size
    if out.bytes <= DIRECT_BYTES or n % size:
        parts = a.build.buffer(f"{group}.parts", (size, *x.shape), x.dtype)
        local = View(x.buffer, x.offset, (1, *x.shape), (0, *x.strides), x.dtype)
        all_gather(a, local, parts, 0, group)
        first, *rest = (sliced(parts, 0, p, 1) for p in range(size))
        shaped = View(out.buffer, out.offset, (1, *out.shape), (0, *out.strides), out.dtype)
        a.build.kernel(combine, [shaped], [first, rest[0]])
        for part in rest[1:]:
            a.build.kernel(combine, [shaped], [shaped, part])
        return
    whole = flat(a.build.contiguous(x, f"{group}.flat"))
    result = out if out.is_contiguous else a.build.buffer(f"{group}.out", out.shape, out.dtype)
    rows = View(whole.buffer, whole.offset, (size, n // size), (n // size, 1), x.dtype)
    into = View(result.buffer, result.offset, (size, n // size), (n // size, 1), x.dtype)
    mine = a.at(into, 0, a.own)
    if whole.buffer == result.buffer:
        held = a.build.buffer(f"{group}.own", mine.shape, mine.dtype)
        reduce_scatter(a, rows, held, 0, group, combine)
        a.build.kernel("copy", [mine], [held])
    else:
        reduce_scatter(a, rows, mine, 0, group, combine)
    all_gather(a, mine, into, 0, group)
    if result is not out:
        a.build.kernel("copy", [out], [result])


def all_to_all(a: Along, x: View, out: View, dim: int, to: int, group: str) -> None:
    """Everyone sends everyone its block of `to`; blocks land in order along `dim`."""
    size = a.size
    places = range(size)
    a.build.kernel("copy", [a.at(out, dim, a.own)], [a.at(x, to, a.own)])
    for k in range(1, size):
        target = tuple((p + k) % size for p in places)
        sender = tuple((p - k) % size for p in places)
        a.build.transfer(
            a.mesh.peers(a.axis, target),
            a.at(x, to, a.by_position(target)),
            a.at(out, dim, a.by_position(sender)),
            group,
        )


def lower_reshard(
    build: FabricBuilder, op: Reshard, x: View, destination: Callable[[tuple[int, ...]], View], lies: str
) -> View:
    """Lower one reshard; returns the view that is its result. A slice is only a view."""
    shape = op.result.type.local_shape(build.mesh.sizes)
    a = along(build, op.axis, lies)
    if op.kind == "slice":
        return a.at(x, op.dim, a.own)
    out = destination(shape)
    group = op.result.name
    if op.kind == "mask":
        first = mask(build.mesh, op.axis, [p == 0 for p in range(a.size)])
        build.kernel("copy", [out], [x], where=first)
        build.kernel("fill", [out], [], {"value": 0.0}, flipped(first))
    elif op.kind == "all_gather":
        all_gather(a, x, out, op.dim, group)
    elif op.kind == "reduce_scatter":
        reduce_scatter(a, x, out, op.dim, group)
    elif op.kind == "all_reduce":
        all_reduce(a, x, out, group, COMBINE[str(op.reduction)])
    elif op.kind == "stage_sum":
        all_reduce(a, x, out, group, COMBINE["sum"])
    elif op.kind == "permute":
        to = tuple(op.target if p == op.source else NOBODY for p in range(a.size))
        build.transfer(a.mesh.peers(op.axis, to), x, out, group)
    else:
        all_to_all(a, x, out, op.dim, op.to, group)
    return out
