"""Which calls may not change places: those that touch the same element of an array, unless both read or both add.

Two orders of the same accesses give the same values if, at every element, the same groups of accesses follow one
another: writes, each a group of its own, and between them reads together and additions together (conflict
serializability: Bernstein, Hadzilacos and Goodman, 1987, section 2.3; sums commute but for rounding).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from wscc.analysis.call_accesses import AccessKind, argument_accesses
from wscc.diagnostics import Code, CompileError, Span, fail
from wscc.ir.module import Module, Procedure
from wscc.ir.step import Affine, Call, Loop, calls
from wscc.ir.text.call_order import One
from wscc.passes.stages.cutter import Cutter
from wscc.passes.stages.runs import Known
from wscc.passes.stages.work_items import Work

# An element of an array: the name of what holds its bytes, and its indices.
Element = tuple[str, tuple[int, ...]]
Touch = tuple[Element, AccessKind]


@dataclass(slots=True)
class Groups:
    """The accesses of one order, and how far another has come in it."""

    # By who touches what and how: the number of the group at the element.
    group: dict[tuple[Hashable, Touch], int] = field(default_factory=dict)
    sizes: dict[Element, list[int]] = field(default_factory=dict)
    kinds: dict[Element, AccessKind] = field(default_factory=dict)
    reached: dict[Element, int] = field(default_factory=dict)
    followed: set[tuple[Hashable, Touch]] = field(default_factory=set)

    def record(self, who: Hashable, touch: Touch) -> None:
        """The next access of the first order."""
        element, kind = touch
        sizes = self.sizes.setdefault(element, [])
        if not sizes or kind is AccessKind.WRITE or self.kinds[element] is not kind:
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
        self.followed.add((who, touch))
        sizes[at] -= 1
        if not sizes[at]:
            self.reached[element] = at + 1
        return True

    def awaited(self, element: Element) -> tuple[Hashable, AccessKind]:
        """One that the second order has to make before it goes on at the element, and how it touches it."""
        at = self.reached.get(element, 0)
        return next(
            (who, kind)
            for (who, (e, kind)), number in self.group.items()
            if e == element and number == at and (who, (e, kind)) not in self.followed
        )


@dataclass(frozen=True, slots=True)
class Toucher:
    """What calls of a module touch on one stage, of some of its arrays."""

    roots: dict[str, str]
    procedures: dict[str, Procedure]
    # By static call: of each argument the array, how it is touched, and the index.
    plans: dict[int, tuple[Call, list[tuple[str, AccessKind, tuple[Affine, ...]] | None]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, module: Module, stage: int, alike: tuple[Module, ...] = ()) -> Toucher:
        """Of arrays that all calls of the stage touch alike, in this module and in others that are `alike`, one is
        looked at: what holds for its elements holds for those of the others."""
        every = [_uses(m, stage) for m in (module, *alike)]
        kept: dict[Hashable, str] = {}
        for root in sorted(every[0]):
            kept.setdefault(tuple(uses.get(root) for uses in every), root)
        some = set(kept.values())
        roots = {n: root for n, root in _roots(module, stage).items() if root in some}
        return cls(roots, {p.name: p for p in module.procedures})

    def touches(self, call: Call, variables: dict[str, int]) -> list[Touch]:
        """In the order in which they happen, each once."""
        return list(dict.fromkeys(t for t in self.arguments(call, variables) if t))

    def arguments(self, call: Call, variables: dict[str, int]) -> list[Touch | None]:
        """Of each argument; None for one that is on other stages or not looked at."""
        if id(call) not in self.plans:
            kinds = argument_accesses(self.procedures[call.procedure])
            plan = [
                (self.roots[ref.array], kind, ref.index) if ref.array in self.roots else None
                for ref, kind in zip(call.args, kinds, strict=True)
            ]
            self.plans[id(call)] = call, plan
        return [
            ((p[0], tuple([i.at(variables) for i in p[2]])), p[1]) if p else None
            for p in self.plans[id(call)][1]
        ]


def _roots(module: Module, stage: int) -> dict[str, str]:
    return {a.name: a.storage or a.name for a in module.arrays if a.stage in (-1, stage)}


def _uses(module: Module, stage: int) -> dict[str, tuple[Hashable, ...]]:
    """Every use of an array by a static call of the stage, by the name of what holds its bytes."""
    roots, procedures = _roots(module, stage), {p.name: p for p in module.procedures}
    found: dict[str, list[Hashable]] = {}
    for number, (call, _) in enumerate(calls(module.steps()[stage])):
        for ref, kind in zip(call.args, argument_accesses(procedures[call.procedure]), strict=True):
            if ref.array in roots:
                found.setdefault(roots[ref.array], []).append((number, kind, ref.index))
    return {root: tuple(uses) for root, uses in found.items()}


@dataclass(slots=True)
class StageCalls:
    """What each call of a stage touches, in a step (`apart`, which has run) where micro-batches share no slot."""

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
            at = {self.apart.writer.microbatch: one.microbatch or 0}
            self.found[one] = self.toucher.touches(call, {variable: i} | at)
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


def check_reads_and_writes(touching: StageCalls, own: list[One], listed: list[tuple[One, Span]]) -> None:
    """Compare an order with `own`, that which `stages` takes. Fails with W205 at the line that comes too early."""
    written = {e for one in own for e, kind in touching.touches(one) if kind is not AccessKind.READ}
    groups = Groups()
    for one in own:
        for touch in touching.touches(one):
            if touch[0] in written:
                groups.record(one, touch)
    lines: dict[Hashable, Span] = dict(listed)
    for one, span in listed:
        for touch in touching.touches(one):
            if touch[0] in written and not groups.follow(one, touch):
                raise _too_early(one, span, touch, *groups.awaited(touch[0]), lines)


def _too_early(
    one: One, span: Span, touch: Touch, other: Hashable, kind: AccessKind, lines: dict[Hashable, Span]
) -> CompileError:  # fmt: skip
    (array, _), own = touch
    verb = {AccessKind.READ: "reads", AccessKind.ADD: "adds to", AccessKind.WRITE: "writes"}
    both_read = own is kind is AccessKind.READ  # and it is written in between
    due = "has read what it holds until then" if both_read else f"{verb[kind]} it"
    return fail(
        Code.CALL_ORDER,
        f"{one} {verb[own]} `%{array}` before {other} of line {lines[other].line} {due}",
        span,
        help=f"move {other} up, or {one} down",
    )
