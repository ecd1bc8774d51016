"""Chunks of layers into which the chain of segments is cut, the elements that each accesses, and their messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import ge
from typing import Final, Literal

from wscc.analysis.op_times import procedure_seconds
from wscc.diagnostics import Code, Proposal, fail
from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Mode, Module
from wscc.ir.naming import BACKWARD, FORWARD
from wscc.ir.step import Call, Loop, Ref
from wscc.passes.stages.balance import Balance
from wscc.passes.stages.by_hand import check_by_hand, check_unstaged
from wscc.passes.stages.room import most_layers
from wscc.strategy import stage_axes, with_degree

By = Literal["hand", "work", "work and memory"]
_PER_SECOND: Final = 10**15  # weights of the balance are whole femtoseconds


@dataclass(frozen=True, slots=True)
class Piece:
    """Iterations `first` to `first + count - 1` of a statement's loop over layers, or a call (`count` 0)."""

    stmt: Call | Loop
    first: int = 0
    count: int = 0

    @property
    def call(self) -> Call:
        call = self.stmt if isinstance(self.stmt, Call) else self.stmt.body[0]
        assert isinstance(call, Call)
        return call

    def interval(self, ref: Ref) -> tuple[int, int]:
        """The least and the greatest element to which the reference refers, by the first extent; (0, 0) for an array
        without extents."""
        if not ref.index:
            return 0, 0
        index = ref.index[0]
        variable = self.stmt.variable if isinstance(self.stmt, Loop) else ""
        ends = [
            index.base + sum(c * i for v, c in index.terms if v == variable)
            for i in (self.first, self.first + max(self.count, 1) - 1)
        ]
        return min(ends), max(ends)


@dataclass(frozen=True, slots=True)
class Message:
    """Element `element` of a loop-carried array, which chunk `source` writes and chunk `target` reads."""

    array: str
    element: int
    source: int
    target: int


@dataclass(slots=True)
class Chunk:
    """Consecutive layers, as pieces of forward and of backward statements in the order in which they run."""

    forward: list[Piece] = field(default_factory=list)
    backward: list[Piece] = field(default_factory=list)
    zeroing: list[Call | Loop] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        return [*self.forward, *self.backward]


def chain_loop(module: Module) -> int:
    """The position in the step of the loop over micro-batches that contains the chain."""
    return next(
        i
        for i, s in enumerate(module.step)
        if isinstance(s, Loop) and any(_name(inner).endswith(FORWARD) for inner in s.body)
    )


def _name(stmt: Call | Loop) -> str:
    return Piece(stmt).call.procedure


def cut(module: Module, stages: int, interleave: int) -> list[Chunk]:
    """The chain cut into `stages` x `interleave` chunks, with the layers of `layers_of_chunks`.

    Statements before the first layer belong to the first chunk, those behind the last layer to the last chunk, and
    others outside a loop to the chunk of the layer before them. Fails as that does.
    """
    zeroing = [s for s in _chain(module) if not _name(s).endswith((FORWARD, BACKWARD))]
    pairs = _pairs(module)
    layers_left = list(layers_of_chunks(module, stages, interleave).layers)
    chunks = [Chunk(zeroing=zeroing) for _ in layers_left]
    chunk, layers_behind = 0, sum(layers_left)
    for f, b in pairs:
        if isinstance(f, Call):
            chunk = chunk if layers_behind else len(chunks) - 1
            chunks[chunk].forward.append(Piece(f))
            chunks[chunk].backward.insert(0, Piece(b))
            continue
        first = 0
        while first < f.count:
            while layers_left[chunk] == 0:
                chunk += 1
            count = min(layers_left[chunk], f.count - first)
            layers_left[chunk] -= count
            chunks[chunk].forward.append(Piece(f, first, count))
            # Layers run backwards there: iteration i is layer count - 1 - i.
            chunks[chunk].backward.insert(0, Piece(b, f.count - first - count, count))
            first += count
        layers_behind -= f.count
    return chunks


@dataclass(frozen=True, slots=True)
class LayerCut:
    """The layers of each chunk, in order, and the seconds that it takes for one micro-batch on a die, by an estimate;
    chunk c is on stage c mod `stages`. `by` tells what decided."""

    stages: int
    layers: tuple[int, ...]
    seconds: tuple[float, ...]
    by: By

    @property
    def unevenness(self) -> float:
        """The time of the fullest stage over the mean of all; 1 where all take as long."""
        whole = sum(self.seconds)
        fullest = max(sum(self.seconds[stage :: self.stages]) for stage in range(self.stages))
        return fullest * self.stages / whole if whole else 1.0


def layer_cut(module: Module) -> LayerCut | None:
    """The cut of a sharded module into pipeline stages, and with `interleave` into chunks; None without stages. Fails
    as `layers_of_chunks` does."""
    axes = stage_axes(module.sizes)
    return layers_of_chunks(module, module.sizes[axes[0]], module.train.interleave) if axes else None


def layers_of_chunks(module: Module, stages: int, interleave: int) -> LayerCut:
    """The layers of `stages` x `interleave` chunks: those of `stages` of the training, else such that the fullest chunk
    takes the least time: 8, 8, 7, 7 of 30 alike, fewer beside a head that takes as long as several layers, or where the
    memory of a stage is too small for more.

    A chunk has a layer, or else it is the first or the last, with statements before or behind all layers. Fails with
    W201 where there are fewer layers than chunks that need one, and where `stages` is no such cut.
    """
    pairs = _pairs(module)
    forward = [f for f, _ in pairs]
    layers = sum(f.count for f in forward if isinstance(f, Loop))
    least = _least_layers(forward, stages * interleave)
    _check_layers(module, layers, stages, interleave, sum(least))
    balance = _balance(module, pairs, least)
    fitting = replace(balance, most=_most(module, pairs, least) if interleave == 1 else ())
    if module.train.stages:
        check_by_hand(module, layers, least, fitting.counts)
        return _layer_cut(balance, stages, module.train.stages, "hand")
    counts, by_work = fitting.counts(), balance.counts()
    return _layer_cut(balance, stages, counts, "work" if counts == by_work else "work and memory")


def _layer_cut(balance: Balance, stages: int, counts: Sequence[int], by: By) -> LayerCut:
    seconds = tuple(n / _PER_SECOND for n in balance.weights(counts))
    return LayerCut(stages, tuple(counts), seconds, by)


def _most(module: Module, pairs: list[tuple[Call | Loop, Call | Loop]], least: list[int]) -> Sequence[int]:
    """The most layers of each stage, by its memory; no limits where all stages together have no room for the model,
    which `plan_memory` refuses with exact numbers."""
    if len(least) == 1:
        return ()
    most = most_layers(module, pairs, len(least))
    fits = sum(most) >= sum(f.count for f, _ in pairs if isinstance(f, Loop))
    return most if fits and all(map(ge, most, least)) else ()


def _chain(module: Module) -> tuple[Call | Loop, ...]:
    loop = module.step[chain_loop(module)]
    assert isinstance(loop, Loop)
    return loop.body


def _pairs(module: Module) -> list[tuple[Call | Loop, Call | Loop]]:
    """The statements of the chain, each with that of its backward pass."""
    forward = [s for s in _chain(module) if _name(s).endswith(FORWARD)]
    backward = [s for s in _chain(module) if _name(s).endswith(BACKWARD)][::-1]
    return list(zip(forward, backward, strict=True))


def _least_layers(forward: list[Call | Loop], chunks: int) -> list[int]:
    """The layers that each chunk needs at least: one, or none where the first or the last has statements of its own."""
    if chunks == 1:
        return [0]
    least = [1] * chunks
    if any(isinstance(s, Loop) for s in forward):
        least[0] -= isinstance(forward[0], Call)
        least[-1] -= isinstance(forward[-1], Call)
    return least


def _balance(module: Module, pairs: list[tuple[Call | Loop, Call | Loop]], least: list[int]) -> Balance:
    """The layers and the statements around them with their weights, in femtoseconds of a micro-batch on a die."""

    def weight(*stmts: Call | Loop) -> int:
        procedures = [module.procedure(_name(s)) for s in stmts]
        return round(_PER_SECOND * sum(procedure_seconds(module, p) for p in procedures))

    layers: list[int] = []
    before = after = 0
    for f, b in pairs:
        if isinstance(f, Loop):
            if layers:
                layers[-1] += after
            layers += [weight(f, b)] * f.count
            after = 0
        elif layers:
            after += weight(f, b)
        else:
            before += weight(f, b)
    return Balance(layers, least, before, after)


def _check_layers(module: Module, layers: int, stages: int, interleave: int, needed: int) -> None:
    if layers >= needed:
        return
    chunks = stages * interleave
    axis, most = module.axes[0][0], layers + chunks - needed
    factor = f" x interleave {interleave}" if interleave > 1 else ""
    uncut = [Proposal(sets=(("train.interleave", str(n)),)) for n in range(most // stages, 0, -1)]
    fewer = [Proposal(with_degree(module.axes, axis, n)) for n in range(min(max(most, 1), stages - 1), 0, -1)]
    raise fail(
        Code.DEGREE,
        f"`{axis} = {stages}`{factor} needs {needed} layers or more, and the model has {layers}",
        help="" if layers else "only layers of a `repeat` are cut apart",
        candidates=[*uncut, *(change.then(more) for change in fewer for more in _uncut(interleave))],
    )


def _uncut(interleave: int) -> Iterator[Proposal]:
    """No further change, and none of stages into chunks."""
    yield Proposal()
    if interleave > 1:
        yield Proposal(sets=(("train.interleave", "1"),))


def check_groups(module: Module, axes: list[str]) -> None:
    """Fail with W201 where interleaved chunks cannot take the micro-batches in groups of one for each stage, or there
    are no stages."""
    interleave, microbatches = module.train.interleave, module.train.microbatches
    if not axes:
        check_unstaged(module)
    if interleave == 1 or not axes:
        return
    axis, stages = axes[0], module.sizes[axes[0]]
    if microbatches % stages == 0:
        return
    calls = [n for n in (microbatches // stages * stages, -(-microbatches // stages) * stages) if n]
    batches = [n * (module.train.batch // microbatches) for n in calls]
    raise fail(
        Code.DEGREE,
        f"`interleave {interleave}` needs a multiple of `{axis} = {stages}` micro-batches, "
        f"and there are {microbatches}",
        candidates=[
            *(Proposal(sets=(("train.batch", str(n)),)) for n in batches),
            Proposal(sets=(("train.interleave", "1"),)),
        ],
    )


# ---- accesses of chunks


def accessed_intervals(chunks: list[Chunk], module: Module) -> dict[str, dict[int, tuple[int, int]]]:
    """By array and chunk, the interval (least, greatest) of the elements that the chunk reads or writes.

    Arrays that share their bytes have one entry, under the name of the storage.
    """
    arrays = {a.name: a for a in module.arrays}
    intervals: dict[str, dict[int, tuple[int, int]]] = {}
    for c, chunk in enumerate(chunks):
        for piece in chunk.pieces:
            for ref in piece.call.args:
                root = arrays[ref.array].storage or ref.array
                low, high = piece.interval(ref)
                interval = intervals.setdefault(root, {}).get(c, (low, high))
                intervals[root][c] = min(low, interval[0]), max(high, interval[1])
    return intervals


def added_numbers(chunks: list[Chunk], module: Module) -> list[str]:
    """Storages of the numbers, such as the loss, that the work of chunks adds to."""
    found: dict[str, None] = {}
    for chunk in chunks:
        for piece in chunk.pieces:
            procedure = module.procedure(piece.call.procedure)
            for out, ref in zip(procedure.outputs, piece.call.args[len(procedure.inputs) :], strict=True):
                array = module.array(ref.array)
                if out.mode is Mode.ADD and array.kind is Kind.SCALAR:
                    found[array.storage or array.name] = None
    return list(found)


def messages(chunks: list[Chunk], module: Module) -> list[Message]:
    """The values that each chunk reads from other chunks, in the order of the reading chunks."""
    arrays = {a.name: a for a in module.arrays}
    writers: dict[tuple[str, int], int] = {}
    messages: list[Message] = []
    for c, chunk in enumerate(chunks):
        for piece, ref in _carried(chunk.forward, arrays, module, written=True):
            low, high = piece.interval(ref)
            writers.update(((ref.array, e), c) for e in range(low, high + 1))
        incoming: dict[Message, None] = {}
        for piece, ref in _carried(chunk.pieces, arrays, module, written=False):
            low, high = piece.interval(ref)
            for e in range(low, high + 1):
                source = writers.get((ref.array, e), c)
                if source != c:
                    incoming[Message(ref.array, e, source, c)] = None
        messages += incoming
    return messages


def _carried(
    pieces: list[Piece], arrays: dict[str, Array], module: Module, *, written: bool
) -> Iterator[tuple[Piece, Ref]]:
    """References to loop-carried forward values, each with its piece."""
    for piece in pieces:
        procedure = module.procedure(piece.call.procedure)
        n = len(procedure.inputs)
        refs = piece.call.args[n:] if written else piece.call.args[:n]
        for ref in refs:
            array = arrays[ref.array]
            if array.kind is Kind.CARRIED and not array.is_a(Role.GRADIENT):
                yield piece, ref
