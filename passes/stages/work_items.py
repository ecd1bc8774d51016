"""What one stage runs, statement by statement, under the names that a call order has for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wscc.ir.step import Affine, Call, Loop, substituted
from wscc.ir.text.call_order import CallLine, Number, Numbered, Range, numbers, only
from wscc.passes.stages.cut import Chunk, Piece
from wscc.passes.stages.order_1f1b import Task, Timed
from wscc.passes.stages.parts import Parts
from wscc.passes.stages.roll_loops import Item
from wscc.passes.stages.step import Body, StepWriter


@dataclass(frozen=True, slots=True)
class Work:
    """A statement of a stage: `piece` number `piece_index` of a task (`backward`, `chunk`), or the stage's own
    statement outside the chain. `layers` are in the order in which it runs them; none for a call that has none.
    `microbatches` is how many it runs by itself; 0 for one that has none or is part of a task."""

    name: str
    piece: Piece
    layers: range
    microbatches: int = 0
    task: tuple[bool, int] | None = None
    piece_index: int = 0

    def line(self, microbatch: Number | None) -> Numbered:
        """The line of all its calls (for one micro-batch, of a task)."""
        micro = only(microbatch) if microbatch else None
        if self.microbatches:
            micro = numbers(0, self.microbatches - 1)
        return Numbered(CallLine(self.name, _range(self.layers), micro))


def _range(layers: range) -> Range | None:
    return numbers(layers[0], layers[-1]) if layers else None


@dataclass(frozen=True, slots=True)
class Portion:
    """Some calls of a task: of its pieces, by number, `count` turns from `first` on. `starts` the task or not."""

    backward: bool
    chunk: int
    starts: bool
    spans: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Once:
    """Work number `work` of a stage, which belongs to no task: all of it, or one turn if it is a loop."""

    work: int


@dataclass(frozen=True, slots=True)
class Orders:
    """An order of one's own. By stage: `tasks`, those run in parts several times; by stage and task, the `items`
    that the stage runs for it, what belongs to no task and lies behind the task before included; and what lies
    `before` and `behind` all tasks."""

    tasks: list[list[Task]]
    work: list[dict[Task, list[Item]]]
    before: list[list[Item]]
    behind: list[list[Item]]

    def items(self, event: Timed) -> list[Item]:
        return self.work[event.stage][event.task]


def once(work: Work, turn: list[Affine]) -> Call:
    """The call of a statement outside the chain, in one turn if it is a loop."""
    stmt, call = work.piece.stmt, work.piece.call
    return _with(call, {stmt.variable: turn[0]}) if isinstance(stmt, Loop) else call


def _with(call: Call, variables: dict[str, Affine]) -> Call:
    args = tuple(replace(r, index=tuple(substituted(a, variables) for a in r.index)) for r in call.args)
    return replace(call, args=args)


def works_of(
    stage: int, before: Body, chunks: list[Chunk], after: Body, parts: Parts, writer: StepWriter
) -> list[Work]:
    """All that a stage runs: statements before the chain, pieces of its chunks, statements after it."""
    found = [
        *_outside(before, parts, writer.microbatch),
        *(w for c in range(stage, len(chunks), parts.stages) for w in _pieces(c, chunks[c])),
        *_outside(after, parts, writer.microbatch),
    ]
    taken = Counter((w.name, layer) for w in found for layer in w.layers or (-1,))
    unclear = {name for (name, _), n in taken.items() if n > 1}
    named: list[Work] = []
    for w in found:
        name = w.name
        if name in unclear:
            inputs = len(writer.procedures[name].inputs)
            name = f"{name}:{w.piece.call.args[inputs:][0].array}"
            again = sum(other.name.split("#")[0] == name for other in named)
            name += f"#{again + 1}" if again else ""
        named.append(replace(w, name=name))
    return named


def _pieces(chunk: int, both: Chunk) -> Iterator[Work]:
    for backward, pieces in ((False, both.forward), (True, both.backward)):
        for i, piece in enumerate(pieces):
            layers = range(piece.first, piece.first + piece.count)
            if backward and isinstance(piece.stmt, Loop):
                top = piece.stmt.count - 1 - piece.first
                layers = range(top, top - piece.count, -1)
            yield Work(piece.call.procedure, piece, layers, task=(backward, chunk), piece_index=i)


def _outside(body: Body, parts: Parts, microbatch: str) -> Iterator[Work]:
    first_of = {p.array.name: p.first for held in parts.of.values() for p in held.values()}
    for stmt in body:
        piece = Piece(stmt)
        if isinstance(stmt, Call):
            yield Work(stmt.procedure, piece, range(0))
        elif stmt.variable == microbatch:
            yield Work(piece.call.procedure, piece, range(0), microbatches=stmt.count)
        else:
            first = next((first_of[r.array] for r in piece.call.args if r.index and r.array in first_of), 0)
            yield Work(piece.call.procedure, piece, range(first, first + stmt.count))
