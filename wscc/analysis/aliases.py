"""Which arguments of a procedure a call may bind to the same bytes."""

from __future__ import annotations

from itertools import combinations

from networkx.utils import UnionFind

from wscc.ir.module import Module
from wscc.ir.step import Affine, Ref, Step, calls


def aliases(module: Module) -> dict[str, dict[str, str]]:
    """By procedure: each argument that may share its bytes, with the common name of those it shares them with.

    Arguments with the same name are the same memory anyway. Elements of arrays in one storage share either all
    bytes or none (plan_memory gives them equal strides).
    """
    storage = {a.name: a.storage or a.name for a in module.arrays}
    shared: dict[str, UnionFind[str]] = {p.name: UnionFind() for p in module.procedures}
    for name, args in _bindings(module.step):
        sharing: dict[str, list[tuple[str, Ref]]] = {}
        for argument, ref in zip(module.procedure(name).arguments, args, strict=True):
            sharing.setdefault(storage[ref.array], []).append((argument.name, ref))
        for (a, x), (b, y) in (pair for group in sharing.values() for pair in combinations(group, 2)):
            if a != b and not apart(x, y):
                shared[name].union(a, b)
    return {name: _named(groups) for name, groups in shared.items()}


def _named(groups: UnionFind[str]) -> dict[str, str]:
    """Each argument with the first of its group: which one names it in the union-find is left open."""
    first: dict[str, str] = {}
    return {argument: first.setdefault(groups[argument], argument) for argument in groups}


def _bindings(step: Step) -> list[tuple[str, tuple[Ref, ...]]]:
    """Each distinct static call once."""
    return list(dict.fromkeys((call.procedure, call.args) for call, _ in calls(step)))


def apart(x: Ref, y: Ref) -> bool:
    """Whether the two elements differ in every iteration."""
    return any(_differ(i, j) for i, j in zip(x.index, y.index, strict=True))


def _differ(i: Affine, j: Affine) -> bool:
    if i.terms != j.terms or i.modulus != j.modulus:
        return False
    gap = i.base - j.base
    return (gap % i.modulus if i.modulus else gap) != 0
