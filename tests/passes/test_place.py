"""`place`: every logical die on a live one, streaming groups one hop apart, other peers close."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from wscc.diagnostics import Code, CompileError
from wscc.ir.module import Module
from wscc.machine.wafer import Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.place import Place, placement
from wscc.passes.place.traffic import axis_traffic
from wscc.passes.stages import Stages

WAFERS = st.builds(
    lambda rows, cols, dead: Wafer(
        "w", rows, cols, dead_dies=frozenset((d // cols % rows, d % cols) for d in dead)
    ),
    rows=st.sampled_from([2, 3, 4]),
    cols=st.sampled_from([2, 4]),
    dead=st.sets(st.integers(0, 15), max_size=2),
)
DEGREES = st.fixed_dictionaries({a: st.sampled_from([1, 2, 4]) for a in ("dp", "tp", "tatp")})


def sharded(degrees: dict[str, int], wafer: Wafer) -> Module:
    shape = Shape(batch=2 * degrees["dp"] * degrees["tatp"], calls=2)
    return Partition().run(Differentiate().run(gpt(degrees, shape, wafer=wafer)))


def neighbours(wafer: Wafer, a: int, b: int) -> bool:
    (ra, ca), (rb, cb) = divmod(a, wafer.cols), divmod(b, wafer.cols)
    return abs(ra - rb) + abs(ca - cb) == 1


@settings(max_examples=12, deadline=None)
@given(wafer=WAFERS, degrees=DEGREES)
def test_the_program_keeps_its_meaning_and_each_die_its_place(wafer: Wafer, degrees: dict[str, int]) -> None:
    """Placing changes `dies` only; dies are distinct and alive; consecutive members of a tatp group, the last
    axis, are neighbours, or the placement says why not. A refusal is for too few dies, or islands."""
    module = sharded(degrees, wafer)
    alive = {r * wafer.cols + c for r in range(wafer.rows) for c in range(wafer.cols)} - {
        r * wafer.cols + c for r, c in wafer.dead_dies
    }
    try:
        placed = Place().run(module)
    except CompileError as refused:
        code = refused.diagnostics[0].code
        assert (code is Code.TOO_MANY_DIES) == (prod(degrees.values()) > len(alive))
        assert code in (Code.TOO_MANY_DIES, Code.DISCONNECTED)
        return
    assert placed.with_(dies=()) == module
    assert len(set(placed.dies)) == len(placed.dies) == prod(degrees.values())
    assert set(placed.dies) <= alive
    size = degrees["tatp"]
    if any("no neighbours" in axis.note for axis in placement(module).axes):
        return
    for first in range(0, len(placed.dies), size):
        group = placed.dies[first : first + size]
        assert all(neighbours(wafer, a, b) for a, b in pairwise(group))


def test_a_whole_mesh_gives_closed_rings() -> None:
    wafer = Wafer("w", 2, 4)
    dies = Place().run(sharded({"dp": 2, "tp": 1, "tatp": 4}, wafer)).dies
    for group in (dies[:4], dies[4:]):
        assert neighbours(wafer, group[-1], group[0])


def test_traffic_counts_what_a_step_moves() -> None:
    """dp moves each gradient twice (n-1)/n, whatever the micro-batches; nothing else crosses it."""
    module = sharded({"dp": 2, "tp": 1, "tatp": 1}, Wafer("w", 2, 4))
    params = sum(a.type.elements * a.count for a in module.arrays if a.kind == "param")
    scalars = 3  # loss, count, norm2 is complete on every die already
    dp = axis_traffic(module)["dp"]
    assert dp.pair == dp.closing == (params + scalars - 1) * 8


def test_stages_exchange_with_those_beside_them_and_the_last_with_the_first() -> None:
    """Each micro-batch crosses a border once as activations and once as gradients; the tied embedding, used by
    the first and the last stage, crosses between these as gradient and as weight."""
    shape = Shape(layers=4, batch=8, calls=4)
    pp = axis_traffic(
        Stages().run(Partition().run(Differentiate().run(gpt({"pp": 4}, shape, wafer=Wafer("w", 2, 2)))))
    )["pp"]
    residual, table = shape.batch * shape.seq * shape.d * 8, shape.vocab * shape.d * 8
    assert pp.closing == pytest.approx(2 * table, rel=0.01)
    assert pp.pair == pytest.approx(2 * residual, rel=0.01)
