"""`accesses`, `dependences` and `statement_accesses`: the one scan of reads and writes, against one that counts
bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.reads_and_writes import Bytes, reads_and_writes
from tests.support.fabric_modules import CASES, Case
from wscc.analysis.accesses import Accesses, AccessSet, accesses
from wscc.analysis.dependences import Dependences
from wscc.analysis.statement_accesses import accesses_by_buffer, messages, positions_by_buffer, views_of
from wscc.ir.fabric import Kernel, Post, Send, Wait
from wscc.ir.module import Procedure
from wscc.ir.per_die import Ints, per_die
from wscc.ir.types import DType
from wscc.ir.views import View
from wscc.passes.form_phases import FormPhases
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule

few = settings(deadline=None, max_examples=12)


def bodies(case: Case, *, scheduled: bool) -> list[tuple[Procedure, int]]:
    module = FormPhases().run(case.module)
    if scheduled:
        module = Schedule().run(Route(adaptive=False).run(module))
    return [(p, module.dies_used) for p in module.procedures]


@pytest.mark.parametrize("scheduled", [False, True])
@few
@given(CASES)
def test_statements_depend_on_one_another_where_they_share_a_byte(scheduled: bool, case: Case) -> None:
    """On some die, and if one of them writes it; arguments have no bytes in common here."""
    for procedure, dies in bodies(case, scheduled=scheduled):
        dependences_agree(procedure, dies)


def matrices(stride: int) -> st.SearchStrategy[Kernel]:
    """Writes of matrices of one buffer with rows so far apart, at offsets and on dies of any kind."""
    offset = st.integers(0, 5 * stride)
    offsets = offset | st.tuples(offset, offset, offset).map(per_die)
    where = st.just(1) | st.tuples(*[st.integers(0, 1)] * 3).filter(any).map(per_die)
    sides = st.tuples(st.integers(1, 5), st.integers(1, stride))

    def kernel(offset: Ints, where: Ints, sides: tuple[int, int]) -> Kernel:
        view = View("x", offset, sides, (stride, 1), DType.F32)
        return Kernel("fill", (view,), (), (("value", 0.0),), where)

    return st.builds(kernel, offsets, where, sides)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 4).flatmap(lambda stride: st.lists(matrices(stride), min_size=2, max_size=6)))
def test_parts_of_one_matrix_depend_on_one_another_where_they_share_a_byte(body: list[Kernel]) -> None:
    dependences_agree(Procedure("p", (), (), tuple(body)), 3)


def dependences_agree(procedure: Procedure, dies: int) -> None:
    byte_sets = reads_and_writes(procedure.body, dies)
    scanned = accesses(procedure, dies, {})
    dependences = Dependences.of(procedure, dies, {})
    for i, own in enumerate(byte_sets):
        dependent = [j for j, other in enumerate(byte_sets) if j != i and share_a_byte(own, other)]
        regions = scanned.by_statement[i]
        assert dependent == [
            j for j, other in enumerate(scanned.by_statement) if j != i and conflict(scanned, regions, other)
        ]
        predecessors, successors = dependences.neighbours([i])
        assert dependent == [*predecessors.tolist(), *successors.tolist()]


def share_a_byte(a: tuple[Bytes, Bytes], b: tuple[Bytes, Bytes]) -> bool:
    return bool(a[1] & (b[0] | b[1]) or a[0] & b[1])


def conflict(scanned: Accesses, a: AccessSet, b: AccessSet) -> bool:
    pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)]
    pairs += [(x, y) for x in a.reads for y in b.writes]
    return any(y in scanned.overlapping[x] for x, y in pairs)


@few
@given(CASES)
def test_a_buffer_is_in_use_from_the_post_or_send_to_the_wait(case: Case) -> None:
    for procedure, dies in bodies(case, scheduled=True):
        positions, by_buffer = positions_by_buffer(procedure.body), accesses_by_buffer(procedure.body)
        uses: dict[str, set[int]] = {}
        for i, sides in enumerate(reads_and_writes(procedure.body, dies)):
            for _, buffer, _ in set().union(*sides):
                uses.setdefault(buffer, set()).add(i)
        # A statement that no die of `where` takes part in counts all the same: all dies run the one order.
        assert all(uses[b] <= set(positions[b]) for b in uses)
        assert {b: [a.position for a in accesses_] for b, accesses_ in by_buffer.items()} == positions
        body = procedure.body
        for channel, m in messages(body).items():
            kinds = [(Post, m.post), (Send, m.send), (Wait, m.received), (Wait, m.sent)]
            assert all(isinstance(body[i], kind) and body[i].channel == channel for kind, i in kinds)
            assert {m.post, m.received} <= set(positions[body[m.post].write.buffer])
            assert {m.send, m.sent} <= set(positions[body[m.send].read.buffer])
            assert [tuple(map(len, views_of(body[i]))) for i in (m.post, m.send, m.sent)] == [
                (1, 0),
                (0, 1),
                (0, 0),
            ]


def test_of_many_tiles_those_depend_on_one_another_that_share_a_byte() -> None:
    """So many that they are looked up: columns of a matrix, some of which wrap around or begin elsewhere on some die,
    pieces of rows, and all of it."""

    def tile(offset: Ints, shape: tuple[int, int], stride: int = 40) -> Kernel:
        return Kernel("fill", (View("x", offset, shape, (stride, 1), DType.F32),), (), (("value", 0.0),))

    columns = [tile(c, (3, 2 if c % 7 else 3)) for c in range(0, 40, 1)]
    shifted = [tile(per_die((c, c + 40 * (c % 2), c + c % 3)), (2, 1)) for c in range(1, 40, 3)]
    pieces = [tile(11 * i, (1, 7 + i % 6), 1) for i in range(10)]
    body = (*columns, *shifted, *pieces, tile(0, (1, 160), 1))
    dependences_agree(Procedure("p", (), (), body), 3)
