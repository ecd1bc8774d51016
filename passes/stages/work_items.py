"""The work of one stage, statement by statement, with the names that a call order uses."""

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
    """A statement of a stage: `piece` number `piece_index` of `task` (backward, chunk), or outside the chain.

    `layers` are in the order in which the statement runs them; empty for a call without layers. `microbatches` is the
    number that it runs itself; 0 for a statement without micro-batches or in a task.
    """

    name: str
    piece: Piece
    layers: range
    microbatches: int = 0
    task: tuple[bool, int] | None = None
    piece_index: int = 0

    def line(self, microbatch: Number | None) -> Numbered:
        """The line of a call order for all its calls (in a task: for one micro-batch)."""
        micro = only(microbatch) if microbatch else None
        if self.microbatches:
            micro = numbers(0, self.microbatches - 1)
        return Numbered(CallLine(self.name, _range(self.layers), micro))


def _range(layers: range) -> Range | None:
    return numbers(layers[0], layers[-1]) if layers else None


@dataclass(frozen=True, slots=True)
class Portion:
    """Some calls of a task: spans (piece, first, count) of its iterations; `starts` if they begin the task."""

    backward: bool
    chunk: int
    starts: bool
    spans: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class OutsideWork:
    """Work `number` of a stage, outside the tasks: all of it, or one iteration if it is a loop."""

    number: int


@dataclass(frozen=True, slots=True)
class Orders:
    """A given order of work, by stage.

    `tasks`: the tasks in order, once for each part. `work`: by task, the items that the stage runs for it, with those
    outside the tasks since the task before. `before` and `after`: the items before and after all tasks.
    """

    tasks: list[list[Task]]
    work: list[dict[Task, list[Item]]]
    before: list[list[Item]]
    after: list[list[Item]]

    def items(self, event: Timed) -> list[Item]:
        return self.work[event.stage][event.task]


def outside_call(work: Work, iteration: list[Affine]) -> Call:
    """The call of a statement outside the chain, in that `iteration` if it is a loop."""
    stmt, call = work.piece.stmt, work.piece.call
    return _with(call, {stmt.variable: iteration[0]}) if isinstance(stmt, Loop) else call


def _with(call: Call, variables: dict[str, Affine]) -> Call:
    args = tuple(replace(r, index=tuple(substituted(a, variables) for a in r.index)) for r in call.args)
    return replace(call, args=args)


def works_of(
    stage: int, before: Body, chunks: list[Chunk], after: Body, parts: Parts, writer: StepWriter
) -> list[Work]:
    """The work of a stage: statements before the chain, pieces of its chunks, statements after the chain."""
    works = [
        *_outside(before, parts, writer.microbatch),
        *(work for c in range(stage, len(chunks), parts.stages) for work in _pieces(c, chunks[c])),
        *_outside(after, parts, writer.microbatch),
    ]
    uses = Counter((work.name, layer) for work in works for layer in work.layers or (-1,))
    ambiguous = {name for (name, _), n in uses.items() if n > 1}
    named: list[Work] = []
    for work in works:
        name = work.name
        if name in ambiguous:
            inputs = len(writer.procedures[name].inputs)
            name = f"{name}:{work.piece.call.args[inputs:][0].array}"
            duplicates = sum(other.name.split("#")[0] == name for other in named)
            name += f"#{duplicates + 1}" if duplicates else ""
        named.append(replace(work, name=name))
    return named


def _pieces(chunk: int, both: Chunk) -> Iterator[Work]:
    for backward, pieces in ((False, both.forward), (True, both.backward)):
        for i, piece in enumerate(pieces):
            layers = range(piece.first, piece.first + piece.count)
            if backward and isinstance(piece.stmt, Loop):
                last = piece.stmt.count - 1 - piece.first
                layers = range(last, last - piece.count, -1)
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
