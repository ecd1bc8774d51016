"""Aliases among the arguments of a procedure: groups of arguments that some call may bind to the same bytes."""

from __future__ import annotations

from itertools import combinations

from wscc.disjoint_sets import DisjointSets
from wscc.ir.module import Module
from wscc.ir.step import Affine, Ref, Step, calls


def aliases(module: Module) -> dict[str, dict[str, str]]:
    """The common name of each argument that may alias another, by procedure and argument.

    Arguments that alias no other are left out; those with the same name are the same memory anyway. Elements of arrays
    in one storage share either all bytes or none (`plan_memory` gives them equal strides).
    """
    storage = {a.name: a.storage or a.name for a in module.arrays}
    groups: dict[str, DisjointSets[str]] = {p.name: DisjointSets() for p in module.procedures}
    for name, args in _bindings(module.step):
        by_storage: dict[str, list[tuple[str, Ref]]] = {}
        for argument, ref in zip(module.procedure(name).arguments, args, strict=True):
            by_storage.setdefault(storage[ref.array], []).append((argument.name, ref))
        for (a, x), (b, y) in (pair for refs in by_storage.values() for pair in combinations(refs, 2)):
            if a != b and not apart(x, y):
                groups[name].union(a, b)
    return {name: _named(group) for name, group in groups.items()}


def _named(groups: DisjointSets[str]) -> dict[str, str]:
    """The first member of each argument's group: the root that the union-find chooses is unspecified."""
    first: dict[str, str] = {}
    return {argument: first.setdefault(groups[argument], argument) for argument in groups}


def _bindings(step: Step) -> list[tuple[str, tuple[Ref, ...]]]:
    """Distinct (procedure, arguments) of the static calls, in program order."""
    return list(dict.fromkeys((call.procedure, call.args) for call, _ in calls(step)))


def apart(x: Ref, y: Ref) -> bool:
    """Whether two elements of one array differ in every iteration."""
    return any(_differ(i, j) for i, j in zip(x.index, y.index, strict=True))


def _differ(i: Affine, j: Affine) -> bool:
    if i.terms != j.terms or i.modulus != j.modulus:
        return False
    gap = i.base - j.base
    return (gap % i.modulus if i.modulus else gap) != 0
