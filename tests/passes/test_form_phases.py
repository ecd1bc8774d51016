"""`form_phases`: whole groups in a phase, no dependence inside it, and the same semantics."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fabric_modules import CASES, DTYPE, Case, elements, module_of, some
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY, at, per_die
from wscc.ir.views import View
from wscc.passes.form_phases import FormPhases

Elements = set[tuple[int, str, int]]


def accessed(stmt: object, dies: int) -> tuple[Elements, Elements]:
    """What a statement reads and writes, element by element: (die, buffer, position)."""

    def of(view: View, active: list[int]) -> Elements:
        return {(d, view.buffer, int(e)) for d in active for e in elements(view, d).reshape(-1)}

    if isinstance(stmt, Transfer):
        pairs = stmt.pairs(dies)
        return of(stmt.read, [i for i, _ in pairs]), of(stmt.write, [j for _, j in pairs])
    assert isinstance(stmt, Kernel)
    active = [d for d in range(dies) if at(stmt.where, d)]
    return (
        set().union(*(of(v, active) for v in stmt.reads)),
        set().union(*(of(v, active) for v in stmt.writes)),
    )


def dependencies(procedure: Procedure, dies: int) -> nx.DiGraph:
    """The dependency graph of a body without shared arguments, from single elements."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(procedure.body)))
    sets = [accessed(s, dies) for s in procedure.body]
    for (i, (r1, w1)), (j, (r2, w2)) in combinations(enumerate(sets), 2):
        if w1 & (r2 | w2) or r1 & w2:
            graph.add_edge(i, j)
    return graph


def interleaved(procedure: Procedure) -> dict[int, int]:
    """By transfer position, the number of its cluster: the same group, or groups whose ranges overlap."""
    groups: dict[object, list[int]] = {}
    for i, s in enumerate(procedure.body):
        if isinstance(s, Transfer):
            groups.setdefault(s.group or i, []).append(i)
    ranges = nx.Graph()
    ranges.add_nodes_from(groups)
    for a, b in combinations(groups, 2):
        if min(groups[a]) < max(groups[b]) and min(groups[b]) < max(groups[a]):
            ranges.add_edge(a, b)
    return {
        i: n for n, cluster in enumerate(nx.connected_components(ranges)) for g in cluster for i in groups[g]
    }


def unshared(module: Module) -> Module:
    """With an array of its own for each argument, so that names alone tell memory apart."""
    return module.with_(step=())


@some
@given(CASES, st.booleans())
def test_phases_hold_whole_groups_and_no_dependency(case: Case, merge: bool) -> None:
    module = unshared(case.module)
    result = FormPhases(merge=merge).run(module)
    for before, after in zip(module.procedures, result.procedures, strict=True):
        reach = nx.transitive_closure(dependencies(before, module.dies_used))
        cluster = interleaved(before)
        phase = {i: s.phase for i, s in enumerate(after.body) if isinstance(s, Transfer)}
        assert [*dict.fromkeys(phase.values())] == list(range(len(set(phase.values()))))
        assert list(phase.values()) == sorted(phase.values())
        for i, j in combinations(phase, 2):
            if cluster[i] == cluster[j]:
                assert phase[i] == phase[j]
            elif phase[i] == phase[j]:
                assert merge
                assert not reach.has_edge(i, j)


@some
@given(CASES)
def test_a_phase_ends_only_where_a_dependency_forces_it(case: Case) -> None:
    module = unshared(case.module)
    for procedure in FormPhases().run(module).procedures:
        reach = nx.transitive_closure(dependencies(procedure, module.dies_used))
        phase = {i: s.phase for i, s in enumerate(procedure.body) if isinstance(s, Transfer)}
        cluster = interleaved(procedure)
        for i, j in zip(list(phase), list(phase)[1:], strict=False):
            if phase[i] != phase[j]:
                earlier = [k for k in phase if phase[k] == phase[i]]
                later = [k for k in phase if cluster[k] == cluster[j]]
                assert any(reach.has_edge(a, b) for a in earlier for b in later)


@some
@given(CASES)
def test_nothing_but_phases_changes(case: Case) -> None:
    module = case.module
    result = FormPhases().run(module)
    for before, after in zip(module.procedures, result.procedures, strict=True):
        for a, b in zip(before.body, after.body, strict=True):
            if isinstance(a, Transfer):
                assert isinstance(b, Transfer)
                assert b.phase >= 0
                b = replace(b, phase=a.phase)
            assert a == b


def line(buffer: str, offset: int | tuple[int, ...], size: int = 8) -> View:
    return View(buffer, offset if isinstance(offset, int) else per_die(offset), (size,), (1,), DTYPE)


def phases(*body: Kernel | Transfer, dies: int = 2) -> list[int]:
    (procedure,) = FormPhases().run(module_of(dies, body)).procedures
    return [s.phase for s in procedure.body if isinstance(s, Transfer)]


def test_independent_collectives_share_a_phase_and_dependent_ones_do_not() -> None:
    swap = per_die((1, 0))
    first = Transfer(0, swap, line("in0", 0), line("t0", 0), "g")
    apart = Transfer(1, swap, line("in0", 8), line("t0", 8), "h")
    through_kernel = Transfer(2, swap, line("t1", 0), line("t0", 16), "h")
    add = Kernel("add", (line("t1", 0),), (line("t0", 0), line("t0", 0)))
    assert phases(first, apart) == [0, 0]
    assert phases(first, through_kernel) == [0, 0]
    assert phases(first, add, through_kernel) == [0, 1]


def test_dependencies_are_told_apart_by_die_and_slice() -> None:
    """Each die passes on the half that it did not receive."""
    to = per_die((1, 0))
    first = Transfer(0, to, line("in0", 0), line("t0", (0, 8)), "g")
    assert phases(first, Transfer(1, to, line("t0", (8, 0)), line("t1", 0), "h")) == [0, 0]
    assert phases(first, Transfer(1, to, line("t0", (0, 8)), line("t1", 0), "h")) == [0, 1]
    assert phases(first, Transfer(1, per_die((1, NOBODY)), line("t0", (8, 8)), line("t1", 0), "h")) == [0, 0]


def test_columns_of_a_matrix_are_independent() -> None:
    def column(at: int) -> View:
        return View("t0", at, (4, 2), (6, 1), DTYPE)

    swap = per_die((1, 0))
    first = Transfer(0, swap, View("in0", 0, (4, 2), (2, 1), DTYPE), column(0), "g")
    for offset, expected in ((2, [0, 0]), (4, [0, 0]), (1, [0, 1]), (0, [0, 1])):
        read = Transfer(1, swap, column(offset), View("t1", 0, (4, 2), (2, 1), DTYPE), "h")
        assert phases(first, read) == expected
