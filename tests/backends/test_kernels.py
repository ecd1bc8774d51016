"""The semantics of every opcode, against one-line oracles, on every kind of view and element type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.kernels import CASES, Array, Case, rate
from wscc.backends.interpreter.kernels import scratch
from wscc.backends.interpreter.kernels import table as kernels
from wscc.backends.interpreter.kernels.optimizers import learning_rate_factor
from wscc.backends.interpreter.kernels.table import SEMANTICS, apply
from wscc.ir.streams.instructions import INSTRUCTIONS

BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 3e-6, BF16: 2e-2}

# How an array may lie in memory.
Layout = Callable[[Array], Array]


def contiguous(x: Array) -> Array:
    return x.copy()


def padded(x: Array) -> Array:
    """Every dimension with a gap after it: nothing merges, nothing is a BLAS matrix."""
    whole = np.zeros([2 * n + 1 for n in x.shape], x.dtype)
    view = whole[(..., *(slice(0, 2 * n, 2) for n in x.shape))]
    view[...] = x
    return view


def reversed_order(x: Array) -> Array:
    """Column-major."""
    return x.T.copy().T


def rows_apart(x: Array) -> Array:
    """A slice of a larger matrix, as chunks of a stream are."""
    if x.ndim == 0:
        return x.copy()
    whole = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    view = whole[..., : x.shape[-1]]
    view[...] = x
    return view


LAYOUTS = (contiguous, padded, reversed_order, rows_apart)


def as_type(x: Array, dtype: np.dtype[Any]) -> Array:
    return x if x.dtype.kind == "i" else x.astype(dtype)


def written(case: Case, dtype: np.dtype[Any], layout: Layout) -> list[Array]:
    """The memory of the writes before the instruction: garbage, where it does not read them."""
    before = case.before or (None,) * len(case.expected)
    return [
        layout(
            as_type(
                np.full(e.shape, 99 if e.dtype.kind == "i" else np.nan, e.dtype) if b is None else b, dtype
            )
        )
        for e, b in zip(case.expected, before, strict=True)
    ]


def error(got: Array, want: Array) -> float:
    """The largest difference relative to the size of the whole; infinities must match."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    return float(np.abs(got[finite] - want[finite]).max() / max(1.0, np.abs(want[finite]).max()))


ALL = [(opcode, n) for opcode, ways in CASES.items() for n in range(len(ways))]


def test_every_opcode_has_a_kernel_and_every_kernel_is_tested() -> None:
    assert set(SEMANTICS) == set(INSTRUCTIONS) - {"post", "send", "wait"}
    assert set(CASES) | set(SLOPES) == set(SEMANTICS)


@pytest.mark.parametrize("opcode", [o for o in SEMANTICS if INSTRUCTIONS[o].reads or INSTRUCTIONS[o].writes])
def test_every_opcode_has_a_kernel_whose_docstring_gives_shapes(opcode: str) -> None:
    first = (SEMANTICS[opcode].__doc__ or "").split("\n", maxsplit=1)[0]
    assert re.search(r"\w \[[^]]*\]", first), "such as `y [*, d] = rows of table [v, d]`"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("opcode", "n"), ALL)
def test_a_kernel_gives_what_the_oracle_says(opcode: str, n: int, dtype: Any, layout: Layout) -> None:
    case = CASES[opcode][n](np.random.default_rng(n))
    reads = [layout(as_type(x, dtype)) for x in case.reads]
    # The oracle sees what the kernel sees: operands rounded to the element type.
    before = [x.copy() for x in reads]
    writes = written(case, dtype, layout)
    apply(opcode, writes, reads, *case.attrs)
    for got, want in zip(writes, case.expected, strict=True):
        assert error(got, want) <= TOLERANCE[dtype] * 2, (got, want)
    for after, x in zip(reads, before, strict=True):
        assert after.tobytes() == x.tobytes(), "an operand that is only read was changed"


@pytest.mark.parametrize(("opcode", "n"), ALL)
def test_blocks_change_nothing_but_rounding(opcode: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BLOCK", 7)
    test_a_kernel_gives_what_the_oracle_says(opcode, n, np.dtype(np.float64), contiguous)
    test_a_kernel_gives_what_the_oracle_says(opcode, n, np.dtype(np.float64), padded)


@settings(max_examples=150)
@given(st.tuples(*[st.integers(1, 9)] * 3), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_where_operands_lie_changes_no_bit_of_a_product(
    sizes: tuple[int, int, int], gap: int, columns: bool, seed: int
) -> None:
    """Replicas of a result read chunks from their own memory, and from slots of messages."""
    (m, k, n), rng = sizes, np.random.default_rng(seed)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    results = []
    for apart in (0, gap):
        x, y = np.zeros((m, k + apart))[:, :k], np.zeros((k, n + apart))[:, :n]
        if columns:
            y = np.zeros((n, k + apart))[:, :k].T
        x[...], y[...] = a, b
        c = np.zeros((m, n + apart))[:, :n]
        apply("gemm", [c], [x, y], 1.0, False)
        results.append(c.tobytes())
    assert results[0] == results[1]


# In place, where the declarations say so or lowering relies on it: (opcode, write, read).
IN_PLACE = (
    ("softmax", 0, 0), ("probs", 0, 0), ("softmax_bwd", 0, 1), ("add", 0, 0), ("add", 0, 1), ("merge", 0, 0),
    ("merge", 1, 1), ("merge", 2, 2), ("rowmean", 0, 2), ("adamw", 0, 0), ("adamw", 1, 1), ("adamw", 2, 2),
    ("sgd", 0, 0), ("gelu_bwd", 0, 1),
    ("layernorm", 0, 0), ("layernorm_bwd", 0, 2), ("swiglu", 0, 1), ("rope", 0, 0), ("tick", 0, 0),
    ("sumexp_bwd", 0, 0), ("nll", 0, 2), ("gelu", 0, 0), ("relu_bwd", 0, 1), ("rmsnorm", 0, 0),
    ("swiglu_bwd", 0, 0), ("swiglu_bwd", 1, 1), ("scale", 0, 0), ("alibi", 0, 0), ("soft_cap", 0, 0),
    ("soft_cap_bwd", 0, 1),
)  # fmt: skip


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("opcode", "write", "read"), IN_PLACE)
def test_a_result_may_replace_an_operand(opcode: str, write: int, read: int, dtype: Any) -> None:
    if opcode in SLOPES:
        forward, case = SLOPES[opcode](np.random.default_rng(0))
        del forward
    else:
        case = CASES[opcode][0](np.random.default_rng(0))
    reads = [as_type(x, dtype).copy() for x in case.reads]
    apart = written(case, dtype, contiguous)
    apply(opcode, apart, [x.copy() for x in reads], *case.attrs)
    writes = written(case, dtype, contiguous)
    writes[write] = reads[read]
    apply(opcode, writes, reads, *case.attrs)
    for got, want in zip(writes, apart, strict=True):
        assert got.tobytes() == want.tobytes()


# Backward kernels by finite differences: the forward opcode with its attributes, and operands with gradients.
def _slope(
    forward: str, attrs: tuple[Any, ...], *shapes: tuple[int, ...]
) -> Callable[[np.random.Generator], tuple[Callable[..., Array], Case]]:
    def make(rng: np.random.Generator) -> tuple[Callable[..., Array], Case]:
        xs = [rng.standard_normal(s) for s in shapes]
        dy = rng.standard_normal(shapes[0])

        def value(*xs: Array) -> Array:
            y = np.empty(shapes[0])
            apply(forward, [y], list(xs), *attrs)
            return y

        # The bias of layernorm has a gradient and is no operand of it.
        operands = xs[:-1] if forward == "layernorm" else xs
        return value, Case((*operands, dy), attrs, tuple(np.empty(s) for s in shapes))

    return make


SLOPES = {
    "layernorm_bwd": _slope("layernorm", (1e-3,), (3, 4, 6), (6,), (6,)),
    "rmsnorm_bwd": _slope("rmsnorm", (1e-3,), (3, 4, 6), (6,)),
    "swiglu_bwd": _slope("swiglu", (), (3, 4, 6), (3, 4, 6)),
}


@pytest.mark.parametrize("block", [5, 1 << 16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("opcode", SLOPES)
def test_a_backward_kernel_is_the_slope_of_the_forward_one(
    opcode: str, layout: Layout, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "BLOCK", block)
    rng = np.random.default_rng(3)
    value, case = SLOPES[opcode](rng)
    writes = [layout(np.full(e.shape, np.nan)) for e in case.expected]
    apply(opcode, writes, [layout(x) for x in case.reads], *case.attrs)
    xs = [*case.reads[:-1], *(np.zeros(e.shape) for e in case.expected[len(case.reads) - 1 :])]
    for i, grad in enumerate(writes):
        for _ in range(4):
            u = rng.standard_normal(xs[i].shape)
            ahead, behind = ([x + s * u if j == i else x for j, x in enumerate(xs)] for s in (1e-6, -1e-6))
            slope = ((value(*ahead) - value(*behind)) / 2e-6 * case.reads[-1]).sum()
            assert abs((grad * u).sum() - slope) <= 1e-7 * max(1.0, abs(slope))


def test_repeated_operands_are_read_in_place() -> None:
    bias, x = np.arange(4.0), np.ones((2, 3, 4))
    y = np.empty((2, 3, 4))
    apply("add", [y], [x, np.broadcast_to(bias, (2, 3, 4))])
    assert np.array_equal(y, np.broadcast_to(bias + 1, (2, 3, 4)))
    w = np.broadcast_to(np.arange(8.0).reshape(4, 2).T, (2, 2, 4)).swapaxes(-1, -2)
    c = np.empty((2, 3, 2))
    apply("gemm", [c], [x, w], 1.0, False)
    assert np.array_equal(c, np.broadcast_to([12.0, 16.0], (2, 3, 2)))


def test_merging_chunks_of_keys_equals_the_whole_softmax() -> None:
    """Query 2 sees only the first chunk, and the order of the chunks does not matter."""
    rng = np.random.default_rng(5)
    s, v = rng.standard_normal((2, 6, 12)), rng.standard_normal((2, 12, 3))

    def attend(keys: slice) -> list[Array]:
        scores = s[..., keys].copy()
        p, m, z, o = np.empty_like(scores), np.empty((2, 6)), np.empty((2, 6)), np.empty((2, 6, 3))
        apply("softmax", [p, m, z], [scores], True, 2, keys.start)
        apply("gemm", [o], [p, v[:, keys]], 1.0, False)
        return [o, m, z]

    whole = attend(slice(0, 12))
    for order in ([0, 4, 8], [8, 0, 4]):
        merged = attend(slice(order[0], order[0] + 4))
        for start in order[1:]:
            apply("merge", merged, [*merged, *attend(slice(start, start + 4))])
        assert all(error(got, want) < 1e-14 for got, want in zip(merged, whole, strict=True))


def test_the_average_of_equal_values_is_their_value_however_large_scores_are() -> None:
    """Joined by exp(l - L) of a rounded L they were off by |L| roundings: 1e-11 here, in each layer, which sp = 4
    showed as gradients wrong by 4e-8 (`tests.fuzz`, scores of 2e5 in a model without norms)."""
    rng = np.random.default_rng(6)
    ones, levels = np.ones((50, 1)), 2e5 + rng.standard_normal((4, 50))
    merged = [ones.copy(), levels[0].copy(), np.ones(50)]
    for level in levels[1:]:
        apply("merge", merged, [*merged, ones, level, np.ones(50)])
    o, m, z = merged
    assert np.abs(o - 1).max() <= 8 * np.finfo(np.float64).eps
    assert np.array_equal(m, levels.max(0))
    assert error(z, np.exp(levels - m).sum(0)) < 1e-15


def test_softmax_and_its_pieces_survive_large_numbers() -> None:
    for dtype, big in ((np.float32, 1e4), (np.float64, 1e5)):
        s = np.array([[[big, 0, -big], [-big, -big, -big]]], dtype)
        p, m, z = np.empty_like(s), np.empty((1, 2), dtype), np.empty((1, 2), dtype)
        apply("softmax", [p, m, z], [s], False, 0, 0)
        assert np.allclose(p, [[[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]])
        assert np.array_equal(m, [[big, -big]])
        assert np.array_equal(z, [[1, 3]])
    x = np.array([[-200.0, 0.0, 200.0]], np.float32)
    for opcode, want in (("gelu", [0, 0, 200]), ("gelu_erf", [0, 0, 200])):
        y = np.empty_like(x)
        apply(opcode, [y], [x])
        assert np.array_equal(y, [want])
    y = np.empty_like(x)
    apply("swiglu", [y], [x, np.ones_like(x)])
    assert np.array_equal(y, [[0, 0, 200]])


def test_gelu_erf_is_exact_far_out_in_the_tail() -> None:
    from math import erfc, sqrt

    x = -np.linspace(0, 12, 500)
    y = np.empty_like(x)
    apply("gelu_erf", [y], [x])
    want = np.array([v / 2 * erfc(-v / sqrt(2)) for v in x])
    assert np.abs(y[1:] / want[1:] - 1).max() < 1e-12


def test_columns_beyond_the_limit_of_a_whole_shard_of_pads_count_for_nothing() -> None:
    x, m, z = np.full((2, 3), np.nan), np.empty(2), np.empty(2)
    apply("rowmax", [m], [x], 9, 9)
    apply("sumexp", [z], [x, np.zeros(2)], 9, 12)
    assert np.array_equal(m, [-np.inf, -np.inf])
    assert np.array_equal(z, [0, 0])


def test_bf16_sums_are_taken_in_f32_and_rounded_once() -> None:
    """In bf16 itself, 256 + 1 is 256."""
    x = np.ones((300, 1), BF16)
    y = np.empty(1, BF16)
    apply("sum", [y], [x], "0", False)
    assert float(y[0]) == 300
    c = np.full((1, 1, 1), 256, BF16)
    apply("gemm", [c], [np.ones((1, 1, 300), BF16), np.ones((1, 300, 1), BF16)], 1.0, True)
    assert float(c[0, 0, 0]) == 556
    w = np.full(1, 256, BF16)
    apply("sgd", [w], [w, np.full(1, -1, BF16), np.array(0.0), np.array(1, np.int32)], 6.0, 0.0, 0, 0, 0.0)
    assert float(w[0]) == 262


def test_a_bf16_kernel_rounds_to_the_nearest_bf16() -> None:
    x = np.linspace(-4, 4, 1001).astype(BF16)
    y = np.empty_like(x)
    apply("gelu_erf", [y], [x])
    wide = np.empty(x.shape, np.float32)
    apply("gelu_erf", [wide], [x.astype(np.float32)])
    assert y.tobytes() == wide.astype(BF16).tobytes()


@pytest.mark.parametrize("opcode", ["gemm", "layernorm_bwd", "softmax", "gelu", "adamw", "scatter_add"])
def test_a_kernel_gives_the_same_bits_every_time(opcode: str) -> None:
    rng = np.random.default_rng(1)
    case = SLOPES[opcode](rng)[1] if opcode in SLOPES else CASES[opcode][0](rng)
    results = []
    for _ in range(2):
        writes = written(case, np.dtype(np.float32), contiguous)
        apply(opcode, writes, [as_type(x, np.dtype(np.float32)) for x in case.reads], *case.attrs)
        results.append([w.tobytes() for w in writes])
        kernels.apply("gelu", [np.empty(9)], [np.ones(9)])
    assert results[0] == results[1]


def test_the_learning_rate_warms_up_and_decays() -> None:
    for warmup, decay in ((0, 0), (3, 0), (0, 8), (3, 8), (5, 5)):
        for step in range(1, 12):
            got = learning_rate_factor(step, warmup, decay, 0.2)
            assert got == pytest.approx(rate(step, warmup, decay, 0.2)), (step, warmup, decay)


def test_operands_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="`k` is"):
        apply("gemm", [np.empty((2, 3))], [np.empty((2, 4)), np.empty((5, 3))], 1.0, False)
    with pytest.raises(ValueError, match="dimensions"):
        apply("mean", [np.empty(1)], [np.empty(3), np.array(1)])
    with pytest.raises(ValueError, match="operands"):
        apply("add", [np.empty(1)], [np.empty(1)])
