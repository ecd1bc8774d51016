"""Which calls may not change places: those that touch the same element of an array, unless both read or both add.

Two orders of the same accesses give the same values if, at every element, the same groups of accesses follow one
another: writes, each a group of its own, and between them reads together and additions together (conflict
serializability: Bernstein, Hadzilacos and Goodman, 1987, section 2.3; sums commute but for rounding).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wscc.diagnostics import Code, Span, fail
from wscc.ir.call_table import One
from wscc.ir.module import Affine, Array, Call, Loop, Mode, Module, Procedure
from wscc.passes.stages_cutter import Cutter
from wscc.passes.stages_runs import Known
from wscc.passes.stages_works import Work


class Access(StrEnum):
    READ = "read"
    ADD = "add"
    WRITE = "write"


# An element of an array: the name of what holds its bytes, and its indices.
Element = tuple[str, tuple[int, ...]]
Touch = tuple[Element, Access]
_OF_MODE: Final = {Mode.WRITE: Access.WRITE, Mode.ADD: Access.ADD}


@dataclass(slots=True)
class Groups:
    """The accesses of one order, and how far another has come in it."""

    # By who touches what and how: the number of the group at the element.
    group: dict[tuple[Hashable, Touch], int] = field(default_factory=dict)
    sizes: dict[Element, list[int]] = field(default_factory=dict)
    kinds: dict[Element, Access] = field(default_factory=dict)
    reached: dict[Element, int] = field(default_factory=dict)

    def record(self, who: Hashable, touch: Touch) -> None:
        """The next access of the first order."""
        element, kind = touch
        sizes = self.sizes.setdefault(element, [])
        if not sizes or kind is Access.WRITE or self.kinds[element] is not kind:
            sizes.append(0)
        sizes[-1] += 1
        self.kinds[element] = kind
        self.group[who, touch] = len(sizes) - 1

    def follow(self, who: Hashable, touch: Touch) -> bool:
        """Whether the next access of the second order may come now, all groups before its own being complete."""
        element, _ = touch
        sizes, at = self.sizes[element], self.reached.get(element, 0)
        if self.group[who, touch] != at:
            return False
        sizes[at] -= 1
        if not sizes[at]:
            self.reached[element] = at + 1
        return True

    def awaited(self, element: Element) -> Iterator[tuple[Hashable, Access]]:
        """Who belongs to the group that the second order has reached."""
        at = self.reached.get(element, 0)
        return (
            (who, kind) for (who, (e, kind)), number in self.group.items() if e == element and number == at
        )


@dataclass(frozen=True, slots=True)
class Toucher:
    """What calls of a module touch on one stage."""

    arrays: dict[str, Array]
    procedures: dict[str, Procedure]

    @classmethod
    def of(cls, module: Module, stage: int) -> Toucher:
        held = {a.name: a for a in module.arrays if a.stage in (-1, stage)}
        return cls(held, {p.name: p for p in module.procedures})

    def touches(self, call: Call, variables: dict[str, int]) -> list[Touch]:
        """In the order in which they happen, each once."""
        return list(dict.fromkeys(t for t in self.arguments(call, variables) if t))

    def arguments(self, call: Call, variables: dict[str, int]) -> list[Touch | None]:
        """Of each argument; None for one that is on other stages."""
        procedure = self.procedures[call.procedure]
        kinds = [Access.READ] * len(procedure.inputs) + [_OF_MODE[o.mode] for o in procedure.outputs]
        found: list[Touch | None] = []
        for ref, kind in zip(call.args, kinds, strict=True):
            array = self.arrays.get(ref.array)
            root = array and (array.storage or array.name)
            found.append(((root, tuple(i.at(variables) for i in ref.index)), kind) if root else None)
        return found


def check_reads_and_writes(
    apart: Cutter, module: Module, stage: int, own: list[One], listed: list[tuple[One, Span]], known: Known
) -> None:  # fmt: skip
    """Compare an order with `own`, that which `stages` takes, on the arrays of a stage without slots in common.

    Fails with W205 at the line that comes too early.
    """
    calls = _Calls(apart, Toucher.of(module, stage), known)
    written = {e for one in known for e, kind in calls.touches(one) if kind is not Access.READ}
    groups = Groups()
    for one in own:
        for touch in calls.touches(one):
            if touch[0] in written:
                groups.record(one, touch)
    lines: dict[One, Span] = {one: span for one, span in listed}
    done: Counter[One] = Counter()
    for one, span in listed:
        for touch in calls.touches(one):
            if touch[0] in written and not groups.follow(one, touch):
                waits = [(w, kind) for w, kind in groups.awaited(touch[0]) if isinstance(w, One) and not done[w]]
                raise _too_early(one, span, touch, *waits[0], lines)
        done[one] += 1


def _too_early(
    one: One, span: Span, touch: Touch, other: One, kind: Access, lines: dict[One, Span]
) -> Exception:  # fmt: skip
    (array, _), own = touch
    verb = {Access.READ: "reads", Access.ADD: "adds to", Access.WRITE: "writes"}
    return fail(
        Code.CALL_ORDER,
        f"{one} {verb[own]} `%{array}` before {other} of line {lines[other].line} {verb[kind]} it",
        span,
        help=f"move {other} up, or {one} down",
    )


@dataclass(slots=True)
class _Calls:
    """What each call of a stage touches; `apart` has run."""

    apart: Cutter
    toucher: Toucher
    known: Known
    templates: dict[int, tuple[Call, str]] = field(default_factory=dict)
    found: dict[One, list[Touch]] = field(default_factory=dict)

    def touches(self, one: One) -> list[Touch]:
        if one not in self.found:
            number, i, work = self.known[one]
            if number not in self.templates:
                self.templates[number] = self._template(work)
            call, variable = self.templates[number]
            micro = self.apart.writer.microbatch
            at = {micro: one.microbatch} if variable == micro else {micro: one.microbatch, variable: i}
            self.found[one] = self.toucher.touches(call, at)
        return self.found[one]

    def _template(self, work: Work) -> tuple[Call, str]:
        """A call of the work with the variable of its loop, if it has one."""
        stmt: Call | Loop = work.piece.stmt
        if work.task is not None:
            m = Affine(0, ((self.apart.writer.microbatch, 1),))
            stmt = self.apart.writer.piece(work.piece, work.task[1], m)
        if isinstance(stmt, Call):
            return stmt, ""
        call = stmt.body[0]
        assert isinstance(call, Call)
        return call, stmt.variable
