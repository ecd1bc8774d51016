"""Every plan of a collective, executed by the interpreter on dies with memories of their own."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest

from wscc.backends.collective.memory import Scale
from wscc.backends.collective.run import execute
from wscc.collectives.algorithms import ALGORITHMS, families
from wscc.collectives.choose import make_request
from wscc.collectives.plan import Message, Op, Plan, Request
from wscc.collectives.semantics import Vectors, semantics
from wscc.collectives.timing import LinkModel
from wscc.diagnostics import Code, CompileError
from wscc.machine.links import LINK_MODELS
from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer, dead_links

MODELS = [LinkModel.of(256 * 10**9, 1e-9, 256, kind) for kind in LINK_MODELS]

# Whole, odd, long, with holes, with a dead link, a ring with nothing inside, a line, one die.
SHAPES = {
    "2x4": Wafer("w", 2, 4),
    "3x3": Wafer("w", 3, 3),
    "1x5": Wafer("w", 1, 5),
    "1x1": Wafer("w", 1, 1),
    "hole": Wafer("w", 3, 3, dead_dies=frozenset({(1, 1)})),
    "corner": Wafer("w", 3, 4, dead_dies=frozenset({(0, 0), (2, 1)})),
    "cut": Wafer("w", 3, 3, dead_links=dead_links([((0, 0), (0, 1)), ((1, 1), (2, 1))])),
}


def request_on(shape: str, op: Op, size: int) -> Request:
    return make_request(op, Topology.mesh(SHAPES[shape]), size)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", list(Op))
def test_every_plan_gives_what_the_collective_means(op: Op, shape: str) -> None:
    """Sizes: no byte, fewer bytes than dies, merged messages, several pieces; one executed at a reduced size."""
    for i, size in enumerate([0, 5, 1500, 1 << 28]):
        some = ALGORITHMS if 0 < size < 10_000 else ("packing",)
        for algorithm in some if size < 10_000 or shape == "corner" else ():
            request = request_on(shape, op, size)
            for plan in nth_plan(request, MODELS[i % 2], algorithm, i // 2):
                executed = execute(request, plan, seed=i)
                assert executed.ok, (algorithm, size, executed)
                assert executed.link_elements == moved(request, plan)


def nth_plan(request: Request, model: LinkModel, algorithm: str, n: int) -> list[Plan]:
    """The n-th candidate, if there are so many."""
    return list(islice(chain.from_iterable(families(request, model, algorithm)), n, n + 1))


def moved(request: Request, plan: Plan) -> dict[tuple[int, int], int]:
    """Elements by link, from the messages of the plan."""
    counts, by_link = Scale.of(request, plan).chunks(plan), dict[tuple[int, int], int]()
    for m in plan.messages:
        by_link[m.src, m.dst] = by_link.get((m.src, m.dst), 0) + sum(counts[c] for c in m.chunks)
    return by_link


def numbers(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, np.float64)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        (Op.ALL_GATHER, {0: (1,), 1: (2, 3)}, {0: (1, 2, 3), 1: (1, 2, 3)}),
        (Op.REDUCE_SCATTER, {0: (1, 2, 3), 1: (10, 20, 30)}, {0: (11,), 1: (22, 33)}),
        (Op.ALL_REDUCE, {0: (1, 2, 3), 1: (10, 20, 30)}, {0: (11, 22, 33), 1: (11, 22, 33)}),
        (Op.ALL_TO_ALL, {0: (1, 2, 3), 1: (10, 20, 30)}, {0: (1, 10), 1: (2, 3, 20, 30)}),
        (Op.BROADCAST, {0: (1, 2, 3)}, {0: (1, 2, 3), 1: (1, 2, 3)}),
        (Op.P2P, {0: (1, 2, 3)}, {1: (1, 2, 3)}),
    ],
)  # fmt: skip
def test_the_semantics_by_hand(
    op: Op, inputs: dict[int, tuple[int, ...]], outputs: dict[int, tuple[int, ...]]
) -> None:
    request = make_request(op, Topology.mesh(Wafer("w", 1, 2)), 3)
    outputs_by_die: Vectors = semantics(request, {d: numbers(*v) for d, v in inputs.items()}, request.shards)
    assert {d: tuple(v) for d, v in outputs_by_die.items()} == outputs


def planned(op: Op = Op.ALL_REDUCE) -> tuple[Request, Plan]:
    request = request_on("hole", op, 4000)
    return request, nth_plan(request, MODELS[0], "packing", 0)[0]


def with_message(plan: Plan, i: int, *messages: Message) -> Plan:
    return replace(plan, messages=(*plan.messages[:i], *messages, *plan.messages[i + 1 :]))


def is_wrong(request: Request, plan: Plan) -> bool:
    """Other values at the end, or a read of what nothing wrote."""
    try:
        return not execute(request, plan).ok
    except CompileError as error:
        return error.diagnostics[0].code is Code.CHECK


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER])
def test_a_missing_message_is_seen(op: Op) -> None:
    request, plan = planned(op)
    assert not is_wrong(request, plan)
    assert all(is_wrong(request, with_message(plan, i)) for i in range(0, len(plan.messages), 5))


def test_a_message_too_many_or_of_the_other_kind_is_seen() -> None:
    request, plan = planned()
    first = plan.messages[0]
    assert first.op == "reduce"
    assert not execute(request, with_message(plan, 0, first, first)).ok
    assert not execute(request, with_message(plan, 0, first._replace(op="copy"))).ok
