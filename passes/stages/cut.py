"""Where the chain of segments is cut: chunks of layers, what each touches, and what passes between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wscc.diagnostics import Code, fail
from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Module
from wscc.ir.naming import BACKWARD, FORWARD
from wscc.ir.step import Call, Loop, Ref


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
        """The least and greatest element that the reference names; (0, 0) for an array without extents."""
        if not ref.index:
            return 0, 0
        (index,) = ref.index
        variable = self.stmt.variable if isinstance(self.stmt, Loop) else ""
        ends = [
            index.base + sum(c * i for v, c in index.terms if v == variable)
            for i in (self.first, self.first + max(self.count, 1) - 1)
        ]
        return min(ends), max(ends)


@dataclass(frozen=True, slots=True)
class Message:
    """Element `element` of a carried array, made in chunk `source` and read in chunk `target`."""

    array: str
    element: int
    source: int
    target: int


@dataclass(slots=True)
class Chunk:
    """Consecutive layers: pieces of forward and backward statements, each in the order in which they run."""

    forward: list[Piece] = field(default_factory=list)
    backward: list[Piece] = field(default_factory=list)
    zeroing: list[Call | Loop] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        return [*self.forward, *self.backward]


def chain_loop(module: Module) -> int:
    """The position of the loop over micro-batches that holds the chain."""
    return next(
        i
        for i, s in enumerate(module.step)
        if isinstance(s, Loop) and any(_name(inner).endswith(FORWARD) for inner in s.body)
    )


def _name(stmt: Call | Loop) -> str:
    return Piece(stmt).call.procedure


def cut(module: Module, stages: int, each: int) -> list[Chunk]:
    """`stages` x `each` chunks of the chain, layers spread evenly, earlier chunks taking one more ([8, 8, 7, 7]).

    Straight code before the first layer goes with the first chunk, other straight code with the layer before
    it. Fails with W201 where there are fewer layers than chunks.
    """
    loop = module.step[chain_loop(module)]
    assert isinstance(loop, Loop)
    forward = [s for s in loop.body if _name(s).endswith(FORWARD)]
    backward = [s for s in loop.body if _name(s).endswith(BACKWARD)][::-1]
    zeroing = [s for s in loop.body if not _name(s).endswith((FORWARD, BACKWARD))]
    layers = sum(s.count for s in forward if isinstance(s, Loop))
    _check_layers(module, layers, stages, each)
    room = _spread(layers, stages * each)
    chunks = [Chunk(zeroing=zeroing) for _ in room]
    at = 0
    for f, b in zip(forward, backward, strict=True):
        if isinstance(f, Call):
            chunks[at].forward.append(Piece(f))
            chunks[at].backward.insert(0, Piece(b))
            continue
        done = 0
        while done < f.count:
            if room[at] == 0:
                at += 1
            n = min(room[at], f.count - done)
            room[at] -= n
            chunks[at].forward.append(Piece(f, done, n))
            # Layers run backwards there: iteration i is layer count - 1 - i.
            chunks[at].backward.insert(0, Piece(b, f.count - done - n, n))
            done += n
    return chunks


def _spread(layers: int, chunks: int) -> list[int]:
    return [layers // chunks + (c < layers % chunks) for c in range(chunks)]


def _check_layers(module: Module, layers: int, stages: int, each: int) -> None:
    if layers >= stages * each or stages * each == 1:
        return
    axis = module.axes[0][0]
    inside = f" x interleave {each}" if each > 1 else ""
    nearest = f"`interleave {layers // stages}`" if layers >= stages else f"`{axis} = {layers}`"
    raise fail(
        Code.DEGREE,
        f"`{axis} = {stages}`{inside} needs {stages * each} layers or more, and the model has {layers}",
        help=f"the nearest that works is {nearest}" if layers else "only layers of a `repeat` are cut apart",
    )


def check_groups(module: Module, axes: list[str]) -> None:
    """Interleaved chunks take micro-batches in groups of one per stage. Fails with W201."""
    each, calls = module.train.interleave, module.train.microbatches
    if each == 1:
        return
    if not axes:
        raise fail(
            Code.DEGREE,
            f"`interleave {each}` is of pipeline stages, and the strategy has none",
            help="leave `interleave` out, or cut the model into stages",
        )
    axis, stages = axes[0], module.sizes[axes[0]]
    if calls % stages == 0:
        return
    near = [n for n in (calls // stages * stages, -(-calls // stages) * stages) if n]
    raise fail(
        Code.DEGREE,
        f"`interleave {each}` needs a multiple of `{axis} = {stages}` micro-batches, and there are {calls}",
        help=f"{' or '.join(map(str, near))} micro-batches would work, or `interleave 1`",
    )


# ---- what chunks touch


def touched(chunks: list[Chunk], module: Module) -> dict[str, dict[int, tuple[int, int]]]:
    """By array and chunk, the interval of elements that the chunk reads or writes; names of the same bytes are
    touched together."""
    arrays = {a.name: a for a in module.arrays}
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for c, chunk in enumerate(chunks):
        for piece in chunk.pieces:
            for ref in piece.call.args:
                root = arrays[ref.array].storage or ref.array
                low, high = piece.interval(ref)
                old = found.setdefault(root, {}).get(c, (low, high))
                found[root][c] = min(low, old[0]), max(high, old[1])
    return found


def messages(chunks: list[Chunk], module: Module) -> list[Message]:
    """What each chunk reads of others, in order of chunks."""
    arrays = {a.name: a for a in module.arrays}
    made: dict[tuple[str, int], int] = {}
    out: list[Message] = []
    for c, chunk in enumerate(chunks):
        for piece, ref in _carried(chunk.forward, arrays, module, written=True):
            low, high = piece.interval(ref)
            made.update(((ref.array, e), c) for e in range(low, high + 1))
        wanted: dict[Message, None] = {}
        for piece, ref in _carried(chunk.pieces, arrays, module, written=False):
            low, high = piece.interval(ref)
            for e in range(low, high + 1):
                source = made.get((ref.array, e), c)
                if source != c:
                    wanted[Message(ref.array, e, source, c)] = None
        out += wanted
    return out


def _carried(
    pieces: list[Piece], arrays: dict[str, Array], module: Module, *, written: bool
) -> Iterator[tuple[Piece, Ref]]:
    """References to forward values that cross segments."""
    for piece in pieces:
        procedure = module.procedure(piece.call.procedure)
        n = len(procedure.inputs)
        refs = piece.call.args[n:] if written else piece.call.args[:n]
        for ref in refs:
            array = arrays[ref.array]
            if array.kind is Kind.CARRIED and not array.is_a(Role.GRADIENT):
                yield piece, ref
