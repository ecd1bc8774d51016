"""Which statements of a step touch the same array elements, and so keep their order."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.analysis.aliases import apart
from wscc.analysis.call_accesses import AccessKind, argument_accesses
from wscc.ir.module import Module, Procedure
from wscc.ir.step import Affine, Call, Loop, Ref

Use = tuple[Ref, bool]  # an element, and whether it is written


class Order:
    """What calls of a module touch, by storage."""

    def __init__(self, module: Module) -> None:
        self._storage = {a.name: a.storage or a.name for a in module.arrays}
        self._kinds = {p.name: argument_accesses(p) for p in module.procedures}

    def learn(self, procedure: Procedure) -> None:
        """A procedure that the module does not have."""
        self._kinds[procedure.name] = argument_accesses(procedure)

    def meet(self, a: Call | Loop, b: Call | Loop) -> bool:
        """Whether both touch an array that one of them writes."""
        return any(True for _ in self._shared(list(self._uses(a)), list(self._uses(b))))

    def clash(self, a: Call, b: Call) -> bool:
        """Whether both may touch an element that one of them writes; loop variables of equal names are equal."""
        return any(not apart(x, y) for x, y in self._shared(list(self._uses(a)), list(self._uses(b))))

    def pairing(self, first: Loop, second: Loop) -> Affine | None:
        """By iteration of `first` (a loop over one call), the one of `second` that touches what it touched; none
        touches what another does. None if that is not so, or if iterations of `second` depend on each other."""
        a, b = only_call(first), only_call(second)
        if a is None or b is None or first.count != second.count:
            return None
        own = list(self._uses(b))
        for x, y in self._shared(own, own):
            if x.index != y.index or not any(_moves(i, second.variable) for i in x.index):
                return None
        found = {
            _pairing(x, y, first.variable, second.variable) for x, y in self._shared(list(self._uses(a)), own)
        }
        (pairing,) = found if len(found) == 1 else (None,)
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
        """Pairs of elements in the same storage, one of them written."""
        by_storage: dict[str, list[Use]] = {}
        for use in b:
            by_storage.setdefault(self._storage[use[0].array], []).append(use)
        for x, writes in a:
            for y, written in by_storage.get(self._storage[x.array], ()):
                if writes or written:
                    yield x, y


def only_call(stmt: Call | Loop) -> Call | None:
    """The call of a statement that has but one."""
    if isinstance(stmt, Call):
        return stmt
    call = stmt.body[0] if len(stmt.body) == 1 else None
    return call if isinstance(call, Call) else None


def _moves(index: Affine, variable: str) -> bool:
    """Whether the index is another one in each iteration, one beside the one before."""
    return not index.modulus and [v for v, _ in index.terms] == [variable] and abs(index.terms[0][1]) == 1


def _pairing(x: Ref, y: Ref, first: str, second: str) -> Affine | None:
    """By value of `first`, the value of `second` with which `y` is the element that `x` is."""
    for i, j in zip(x.index, y.index, strict=True):
        if _moves(i, first) and _moves(j, second):
            sign = j.terms[0][1]
            return Affine(sign * (i.base - j.base), ((first, sign * i.terms[0][1]),))
    return None
