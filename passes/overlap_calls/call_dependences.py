"""Dependences between the statements of a step: pairs that access the same array elements, and so keep their order."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.analysis.aliases import apart
from wscc.analysis.call_accesses import AccessKind, argument_accesses
from wscc.ir.module import Module, Procedure
from wscc.ir.step import Affine, Call, Loop, Ref

Use = tuple[Ref, bool]  # (element, is written)


class CallDependences:
    """Conflicts between the calls of a module: both access the same storage, and one of them writes it."""

    def __init__(self, module: Module) -> None:
        self._storage = {a.name: a.storage or a.name for a in module.arrays}
        self._kinds = {p.name: argument_accesses(p) for p in module.procedures}

    def add(self, procedure: Procedure) -> None:
        """Add a procedure that the module does not have."""
        self._kinds[procedure.name] = argument_accesses(procedure)

    def arrays_conflict(self, a: Call | Loop, b: Call | Loop) -> bool:
        """Whether both access an array that one of them writes."""
        return any(True for _ in self._shared(list(self._uses(a)), list(self._uses(b))))

    def elements_conflict(self, a: Call, b: Call) -> bool:
        """Whether both may access an element that one of them writes; loop variables of equal names are equal."""
        return any(not apart(x, y) for x, y in self._shared(list(self._uses(a)), list(self._uses(b))))

    def pairing(self, first: Loop, second: Loop) -> Affine | None:
        """The iteration of `second` that conflicts with each iteration of `first` (both loops over one call).

        None if there is not exactly one for each, or if iterations of `second` depend on each other.
        """
        a, b = only_call(first), only_call(second)
        if a is None or b is None or first.count != second.count:
            return None
        uses = list(self._uses(b))
        for x, y in self._shared(uses, uses):
            if x.index != y.index or not any(_has_unit_stride(i, second.variable) for i in x.index):
                return None
        pairings = {
            _pairing(x, y, first.variable, second.variable)
            for x, y in self._shared(list(self._uses(a)), uses)
        }
        (pairing,) = pairings if len(pairings) == 1 else (None,)
        if pairing is None:
            return None
        last = first.count - 1
        ends = {pairing.base, pairing.base + last * sum(c for _, c in pairing.terms)}
        return pairing if ends == {0, last} else None

    def _uses(self, stmt: Call | Loop) -> Iterator[Use]:
        if isinstance(stmt, Loop):
            for inner in stmt.body:
                yield from self._uses(inner)
            return
        for ref, kind in zip(stmt.args, self._kinds[stmt.procedure], strict=True):
            yield ref, kind is not AccessKind.READ

    def _shared(self, a: list[Use], b: list[Use]) -> Iterator[tuple[Ref, Ref]]:
        """Pairs of uses of the same storage, at least one of which writes."""
        by_storage: dict[str, list[Use]] = {}
        for use in b:
            by_storage.setdefault(self._storage[use[0].array], []).append(use)
        for x, writes in a:
            for y, written in by_storage.get(self._storage[x.array], ()):
                if writes or written:
                    yield x, y


def only_call(stmt: Call | Loop) -> Call | None:
    """The call of a statement that has exactly one; None of others."""
    if isinstance(stmt, Call):
        return stmt
    call = stmt.body[0] if len(stmt.body) == 1 else None
    return call if isinstance(call, Call) else None


def _has_unit_stride(index: Affine, variable: str) -> bool:
    """Whether the index goes up or down by one in each iteration."""
    return not index.modulus and [v for v, _ in index.terms] == [variable] and abs(index.terms[0][1]) == 1


def _pairing(x: Ref, y: Ref, first: str, second: str) -> Affine | None:
    """The value of variable `second` with which `y` is the element `x`, as a function of variable `first`; None if
    there is none."""
    for i, j in zip(x.index, y.index, strict=True):
        if _has_unit_stride(i, first) and _has_unit_stride(j, second):
            sign = j.terms[0][1]
            return Affine(sign * (i.base - j.base), ((first, sign * i.terms[0][1]),))
    return None
