"""How many micro-batches are in flight in each chunk: the slots that its values need."""

from __future__ import annotations

from wscc.passes.stages_cut import Message
from wscc.passes.stages_order import Task, Timed

# A task runs at twice its slot, and what it made crosses to other stages right after.
Span = tuple[int, int]


def in_flight(events: list[Timed], messages: list[Message], chunks: int) -> tuple[list[int], list[int]]:
    """By chunk, the slots for values (from their arrival or making to the backward task) and for gradients (from
    arrival to what the backward task sends on): enough that micro-batches of one slot are never live together."""
    at = {e.task: 2 * e.slot for e in events}
    count = 1 + max((t.microbatch for t in at), default=0)
    slots, gradient_slots = [], []
    for c in range(chunks):
        sources = {m.source for m in messages if m.target == c}
        readers = {m.target for m in messages if m.source == c}
        values: list[Span] = []
        gradients: list[Span] = []
        for m in range(count):
            back = at[Task(True, c, m)]
            values.append((min([at[Task(False, c, m)], *(at[Task(False, s, m)] + 1 for s in sources)]), back))
            gradients.append((min([back, *(at[Task(True, r, m)] + 1 for r in readers)]), back + 1))
        slots.append(_needed(values))
        gradient_slots.append(_needed(gradients))
    return slots, gradient_slots


def _needed(spans: list[Span]) -> int:
    """The least K of which i and i + K (and i + K + 1, ..) are never live together."""
    widest = 0
    for i, (first, last) in enumerate(spans):
        for j in range(i + widest + 1, len(spans)):
            if spans[j][0] <= last and first <= spans[j][1]:
                widest = j - i
    return widest + 1
