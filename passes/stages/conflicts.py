"""Conflicts between calls: accesses to the same element of an array, unless both read or both add.

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
from wscc.passes.stages.runs import CallIndex
from wscc.passes.stages.work_items import Work

# An element of an array: the name of what holds its bytes, and its indices.
Element = tuple[str, tuple[int, ...]]
Access = tuple[Element, AccessKind]


@dataclass(slots=True)
class Groups:
    """The groups of accesses of a reference order, and the progress of another order through them."""

    # By call and access: the number of the group at the element.
    group: dict[tuple[Hashable, Access], int] = field(default_factory=dict)
    sizes: dict[Element, list[int]] = field(default_factory=dict)
    kinds: dict[Element, AccessKind] = field(default_factory=dict)
    reached: dict[Element, int] = field(default_factory=dict)
    followed: set[tuple[Hashable, Access]] = field(default_factory=set)

    def record(self, call: Hashable, access: Access) -> None:
        """Add the next access of the reference order."""
        element, kind = access
        sizes = self.sizes.setdefault(element, [])
        if not sizes or kind is AccessKind.WRITE or self.kinds[element] is not kind:
            sizes.append(0)
        sizes[-1] += 1
        self.kinds[element] = kind
        self.group[call, access] = len(sizes) - 1

    def follow(self, call: Hashable, access: Access) -> bool:
        """Whether the next access of the other order is legal: all groups before its own are complete."""
        element, _ = access
        sizes, group_number = self.sizes[element], self.reached.get(element, 0)
        if self.group[call, access] != group_number:
            return False
        self.followed.add((call, access))
        sizes[group_number] -= 1
        if not sizes[group_number]:
            self.reached[element] = group_number + 1
        return True

    def awaited(self, element: Element) -> tuple[Hashable, AccessKind]:
        """A call that the other order must make next at the element, with the kind of its access."""
        group_number = self.reached.get(element, 0)
        return next(
            (call, kind)
            for (call, (e, kind)), n in self.group.items()
            if e == element and n == group_number and (call, (e, kind)) not in self.followed
        )


@dataclass(frozen=True, slots=True)
class CallAccesses:
    """The accesses of calls on one stage of a module, to one array of each class that is accessed alike."""

    roots: dict[str, str]
    procedures: dict[str, Procedure]
    # By static call: of each argument the array, the kind of access, and the index.
    plans: dict[int, tuple[Call, list[tuple[str, AccessKind, tuple[Affine, ...]] | None]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, module: Module, stage: int, alike: tuple[Module, ...] = ()) -> CallAccesses:
        """The accesses on `stage` of `module`.

        Of arrays that all calls of the stage access alike, in `module` and in the modules `alike`, one stands for all:
        what holds for its elements holds for those of the others.
        """
        uses_by_module = [_uses(m, stage) for m in (module, *alike)]
        representatives: dict[Hashable, str] = {}
        for root in sorted(uses_by_module[0]):
            representatives.setdefault(tuple(uses.get(root) for uses in uses_by_module), root)
        stand_ins = set(representatives.values())
        roots = {n: root for n, root in _roots(module, stage).items() if root in stand_ins}
        return cls(roots, {p.name: p for p in module.procedures})

    def accesses(self, call: Call, variables: dict[str, int]) -> list[Access]:
        """The accesses of a call in their order, each once."""
        return list(dict.fromkeys(t for t in self.arguments(call, variables) if t))

    def arguments(self, call: Call, variables: dict[str, int]) -> list[Access | None]:
        """The access of each argument; None for an array of another stage, or one that another array stands for."""
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
    """By storage, every use of its arrays by a static call of the stage."""
    roots, procedures = _roots(module, stage), {p.name: p for p in module.procedures}
    uses: dict[str, list[Hashable]] = {}
    for number, (call, _) in enumerate(calls(module.steps()[stage])):
        for ref, kind in zip(call.args, argument_accesses(procedures[call.procedure]), strict=True):
            if ref.array in roots:
                uses.setdefault(roots[ref.array], []).append((number, kind, ref.index))
    return {root: tuple(entries) for root, entries in uses.items()}


@dataclass(slots=True)
class StageCalls:
    """The accesses of each call of a stage, in the step of the cutter `expanded`, which has run."""

    expanded: Cutter
    call_accesses: CallAccesses
    index: CallIndex
    templates: dict[int, tuple[Call, str]] = field(default_factory=dict)
    cache: dict[One, list[Access]] = field(default_factory=dict)

    def accesses(self, one: One) -> list[Access]:
        if one not in self.cache:
            number, layer_index, work = self.index[one]
            if number not in self.templates:
                self.templates[number] = self._template(work)
            call, variable = self.templates[number]
            microbatch = {self.expanded.writer.microbatch: one.microbatch or 0}
            self.cache[one] = self.call_accesses.accesses(call, {variable: layer_index} | microbatch)
        return self.cache[one]

    def _template(self, work: Work) -> tuple[Call, str]:
        """A call of the work, and the variable of its loop (empty if there is none)."""
        stmt: Call | Loop = work.piece.stmt
        if work.task is not None:
            m = Affine(0, ((self.expanded.writer.microbatch, 1),))
            stmt = self.expanded.writer.piece(work.piece, work.task[1], m)
        if isinstance(stmt, Call):
            return stmt, ""
        call = stmt.body[0]
        assert isinstance(call, Call)
        return call, stmt.variable


def check_conflicts(stage_calls: StageCalls, default_order: list[One], lines: list[tuple[One, Span]]) -> None:
    """Fail with W205 at the first of `lines` that stands before a call of `default_order` on which it depends."""
    written = {
        e for one in default_order for e, kind in stage_calls.accesses(one) if kind is not AccessKind.READ
    }
    groups = Groups()
    for one in default_order:
        for access in stage_calls.accesses(one):
            if access[0] in written:
                groups.record(one, access)
    spans: dict[Hashable, Span] = dict(lines)
    for one, span in lines:
        for access in stage_calls.accesses(one):
            if access[0] in written and not groups.follow(one, access):
                raise _too_early(one, span, access, *groups.awaited(access[0]), spans)


def _too_early(
    one: One, span: Span, access: Access, other: Hashable, kind: AccessKind, spans: dict[Hashable, Span]
) -> CompileError:  # fmt: skip
    (array, _), own_kind = access
    verb = {AccessKind.READ: "reads", AccessKind.ADD: "adds to", AccessKind.WRITE: "writes"}
    both_read = own_kind is kind is AccessKind.READ  # and a write stands in between
    missing = "has read what it holds until then" if both_read else f"{verb[kind]} it"
    return fail(
        Code.CALL_ORDER,
        f"{one} {verb[own_kind]} `%{array}` before {other} of line {spans[other].line} {missing}",
        span,
        help=f"move {other} up, or {one} down",
    )
