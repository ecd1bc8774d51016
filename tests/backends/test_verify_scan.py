"""The scan of a procedure against one byte by byte, and dies that are placed together against each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.backends.verify.body import DTYPES, Actions, Body
from wscc.backends.verify.places import Places, Sharing
from wscc.backends.verify.procedure import scan
from wscc.backends.verify.summary import Summary, summary
from wscc.ir.streams.program import Code, Column, Instruction, Operand
from wscc.ir.types import DType

COLUMNS = 3
PRODUCT = (("scale", 1.0), ("accumulate", False))
Bytes = frozenset[int]
EXAMPLES = 400

# A line of 16 elements, among the locals or in one of two arguments, and operands on it: rows or matrices.
views = st.sampled_from(
    [((4,), (1,)), ((2,), (1,)), ((8,), (1,)), ((2, 2), (4, 1)), ((3, 1), (2, 1)), ((2, 2), (2, 1))]
)
offsets = st.one_of(st.integers(0, 8).map(lambda n: 4 * n), st.integers(0, COLUMNS - 1).map(Column))
operands = st.builds(
    lambda arg, offset, view, dtype: Operand(arg, offset, *view, dtype),
    st.sampled_from([-1, -1, -1, 0, 1]),
    offsets,
    views,
    st.sampled_from([DType.F32] * 4 + [DType.BF16]),
)
# An instruction, or a message that begins: what is sent or granted, and the number of steps until it is waited for.
Step = Instruction | tuple[str, Operand, int]


def steps_on(few: list[Operand]) -> st.SearchStrategy[list[Step]]:
    """Steps on a few operands, which therefore meet again."""
    some = st.sampled_from(few)
    elementwise = st.builds(
        lambda y, x, in_place: Instruction("add", (y,), (y if in_place else x, x)), some, some, st.booleans()
    )
    products = st.builds(lambda c, a, b: Instruction("gemm", (c,), (a, b), PRODUCT), some, some, some)
    fills = st.builds(lambda y: Instruction("fill", (y,), (), (("value", 0.0),)), some)
    messages = st.tuples(st.sampled_from(["send", "post"]), some, st.integers(0, 3))
    return st.lists(st.one_of(fills, fills, elementwise, products, messages), min_size=1, max_size=10)


def written(steps: Sequence[Step]) -> Code:
    """A procedure of these instructions and messages, each with its own channel."""
    body: list[Instruction] = []
    waits: dict[int, list[Instruction]] = {}
    for n, step in enumerate(steps):
        if isinstance(step, Instruction):
            body.append(step)
        else:
            opcode, o, length = step
            channel, side = ("channel", n), "sent" if opcode == "send" else "received"
            operands = ((), (o,)) if opcode == "send" else ((o,), ())
            body.append(Instruction(opcode, *operands, (channel, ("peer", 0))))
            waits.setdefault(n + length, []).append(Instruction("wait", (), (), (channel, ("side", side))))
        body += waits.pop(n, [])
    return Code("f", 2, tuple(body))


codes = st.lists(operands, min_size=2, max_size=5).flatmap(steps_on).map(written)
tables = st.lists(st.integers(0, 8).map(lambda n: 4 * n), min_size=COLUMNS, max_size=COLUMNS).map(np.array)
sharings: st.SearchStrategy[Sharing] = st.sampled_from([((0, 0), (1, 0)), ((0, 0), (0, 16))])


def made(code: Code, rows: Sequence[np.ndarray], sharing: Sharing) -> list[tuple[Summary, list[str]]]:
    """Of a die with each row, the summary and what is wrong."""
    body = Body.of(code, Actions())
    places = Places([(body, body.offsets(row)) for row in rows], sharing)
    found = []
    for placed in places.placed:
        told = list[str]()
        outcome = scan(placed, places, lambda i, words, told=told: told.append(f"{i} {words}"))
        found.append((summary(outcome, placed, places), told))
    return found


def places_of(o: Operand, row: np.ndarray, sharing: Sharing) -> Bytes:
    space, start = sharing[o.arg] if o.arg >= 0 else (-1, 0)
    offset = int(row[o.offset.index]) if isinstance(o.offset, Column) else o.offset
    first = (space + 1) * 1000 + start + offset
    size = o.dtype.size
    elements = (sum(i * s for i, s in zip(n, o.strides, strict=True)) for n in np.ndindex(*o.shape))
    return frozenset(first + size * e + b for e in elements for b in range(size))


def first_mistake(code: Code, row: np.ndarray, sharing: Sharing) -> int | None:
    """The first instruction that reads what nothing has written, what was overwritten in part, or what is of another
    type, by the object that each byte holds; that accesses what a message may not share; or that writes over its own
    operands."""
    holds: dict[int, int] = {}  # by byte, the object: the number of the instruction that wrote it
    objects: dict[int, tuple[Bytes, DType]] = {}  # those of which no write has taken a part, or all at once
    slots: dict[object, Bytes] = {}
    sent: dict[object, Bytes] = {}

    def unreadable(o: Operand) -> bool:
        own = places_of(o, row, sharing)
        known = {objects.get(holds[b], (own, None))[1] for b in own if b in holds}
        return bool(known - {o.dtype}) or any(b < 1000 and b not in holds for b in own)

    for i, x in enumerate(code.body):
        if x.opcode == "wait":
            (slots if x.attr("side") == "received" else sent).pop(x.attr("channel"))
            continue
        granted, busy = frozenset().union(*slots.values()), frozenset().union(*sent.values())
        reads = [places_of(o, row, sharing) for o in x.reads]
        if any(map(unreadable, x.reads)) or any(read & granted for read in reads):
            return i
        if x.opcode == "send":
            sent[x.attr("channel")] = reads[0]
            continue
        (y,) = x.writes
        new = places_of(y, row, sharing)
        for o, read in zip(x.reads, reads, strict=True):
            is_same = (o.shape, o.strides) == (y.shape, y.strides) and read == new
            if read & new and (x.opcode == "gemm" or not is_same):
                return i
        if new & (granted | busy):
            return i
        if x.opcode == "post":
            slots[x.attr("channel")] = new
        if y in x.reads and all(b in holds for b in new):
            continue
        objects = {n: old for n, old in objects.items() if not old[0] & new or new < old[0]}
        objects[i] = new, y.dtype
        holds |= dict.fromkeys(new, i)
    return None


@settings(max_examples=EXAMPLES, deadline=None)
@given(codes, tables, sharings)
def test_a_scan_finds_what_is_wrong_byte_by_byte(code: Code, row: np.ndarray, sharing: Sharing) -> None:
    ((_, told),) = made(code, [row], sharing)
    assert min((int(t.split()[0]) for t in told), default=None) == first_mistake(code, row, sharing)


@settings(max_examples=30, deadline=None)
@given(codes, st.lists(tables, min_size=2, max_size=4), sharings)
def test_a_die_among_others_has_what_it_has_alone(
    code: Code, rows: list[np.ndarray], sharing: Sharing
) -> None:
    assert made(code, rows, sharing) == [made(code, [row], sharing)[0] for row in rows]


def test_dies_of_a_ring_use_memory_again_in_their_own_order() -> None:
    """Two parts of a buffer are written in the order of each die, and memory that was a slot is one again."""

    def of(arg: int, offset: int | Column, n: int) -> Operand:
        return Operand(arg, offset, (n,), (1,), DType.F32)

    body = [
        Instruction("fill", (of(-1, Column(2), 4),), (), (("value", 0.0),)),
        Instruction("copy", (of(-1, Column(0), 4),), (of(-1, Column(2), 4),)),
        Instruction("fill", (of(-1, 32, 2),), (), (("value", 0.0),)),
        Instruction("copy", (of(-1, Column(1), 2),), (of(-1, 32, 2),)),
        Instruction("copy", (of(0, 0, 6),), (of(-1, 0, 6),)),
        Instruction("copy", (of(0, 24, 2),), (of(-1, Column(3), 2),)),
    ]
    code, sharing = Code("f", 1, tuple(body)), ((0, 0),)
    right_rows = [[0, 16, 32, 0], [8, 0, 36, 8], [8, 0, 36, 0], [0, 16, 32, 16], [0, 16, 32, 4]]
    wrong_rows = [[8, 0, 0, 8], [8, 8, 32, 8], [0, 8, 32, 0], [0, 16, 32, 24], [8, 0, 36, 60]]
    found = made(code, [np.array(row) for row in (*right_rows, *wrong_rows)], sharing)
    for n, (_, told) in enumerate(found):
        assert (not told) == (n < len(right_rows)), (n, told)
    f32 = DTYPES.index(DType.F32)
    assert found[0][0] == Summary((), ((0, 0, 32, f32),), (), ((0, 24), (32, 48)))
    assert found[1][0] == Summary((), ((0, 0, 32, f32),), (), ((0, 24), (32, 52)))


def test_a_part_of_a_value_that_was_overwritten_in_parts_is_gone_until_all_of_it_is() -> None:
    def of(offset: int, n: int) -> Operand:
        return Operand(-1, offset, (n,), (1,), DType.F32)

    def fill(o: Operand) -> Instruction:
        return Instruction("fill", (o,), (), (("value", 0.0),))

    read = Instruction("copy", (of(64, 4),), (of(16, 4),))
    lost = [fill(of(0, 16)), fill(of(16, 4)), fill(of(24, 4))]  # its second half, and what lies behind it
    again = [fill(of(16, 2)), read, read]
    cases = (
        ([read], [3]),
        ([fill(of(16, 1)), read], [4]),
        (again, []),
        ([*again, fill(of(20, 1)), read], []),
        ([*again, fill(of(12, 2)), read], [7]),  # of the new first half, a part is lost again
    )
    for rest, wrong in cases:
        ((_, told),) = made(Code("f", 0, (*lost, *rest)), [np.zeros(0, np.int64)], ())
        assert [int(t.split()[0]) for t in told] == wrong, (rest, told)


def wrong_in(*steps: Step) -> list[int]:
    """The instructions of a procedure with two arguments that are wrong."""
    ((_, told),) = made(written(steps), [np.zeros(0, np.int64)], ((0, 0), (1, 0)))
    return [int(t.split()[0]) for t in told]


def test_a_value_that_was_read_before_may_not_be_read_in_a_granted_slot() -> None:
    a, b = (Operand(-1, offset, (4,), (1,), DType.F32) for offset in (0, 64))
    fill, read = Instruction("fill", (a,), (), (("value", 0.0),)), Instruction("copy", (b,), (a,))
    assert wrong_in(fill, read, ("post", a, 1), read, read) == [3]  # waited for behind it


def test_what_is_added_to_an_argument_is_a_value_that_a_write_takes_a_part_of() -> None:
    y, z = (Operand(0, offset, (8,), (1,), DType.F32) for offset in (0, 16))
    add, fill = Instruction("add", (y,), (y, y)), Instruction("fill", (z,), (), (("value", 0.0),))
    read = Instruction("copy", (Operand(-1, 0, (8,), (1,), DType.F32),), (y,))
    assert wrong_in(add, fill, read) == [2]
    assert wrong_in(fill, read) == []  # of the caller's bytes, each is a value of its own


def test_operands_lie_to_one_another_as_their_bytes_do() -> None:
    """Views of any strides, also those whose runs are unlike or go backwards, of two sizes and in shared arguments."""
    random = Random(5)
    touching = 0
    for _ in range(40):
        views = [_any_view(random) for _ in range(10)]
        body = Body.of(Code("f", 2, tuple(Instruction("copy", (o,), (o,)) for o in views)), Actions())
        sharing = random.choice([((0, 0), (1, 0)), ((0, 0), (0, 16)), ((-1, 100), (0, 0))])
        places = Places([(body, body.offsets(np.zeros(0, np.int64)))], sharing)
        held = [
            {b for low, high in zip(*places.runs(v), strict=True) for b in range(low, high)}
            for v in range(len(places.low))
        ]
        for v, u in product(range(len(held)), repeat=2):
            a, b = held[v], held[u]
            assert places.relation(v, u) == (bool(a & b), bool(a & b) and a <= b, bool(a & b) and a >= b)
            touching += bool(a & b)
        some = random.sample(range(len(held)), 4)
        assert {
            b for low, high in zip(*places.union(some), strict=True) for b in range(low, high)
        } == set().union(*(held[v] for v in some))
    assert touching > 1000


def _any_view(random: Random) -> Operand:
    rank = random.randint(0, 3)
    shape = tuple(random.randint(random.random() > 0.1, 4) for _ in range(rank))
    strides = tuple(random.choice([0, 1, 2, 4, 8, 8, 8, -8]) for _ in range(rank))
    dtype = random.choice([DType.F32, DType.BF16])
    return Operand(random.choice([-1, -1, 0, 1]), 8 * random.randint(0, 40), shape, strides, dtype)
