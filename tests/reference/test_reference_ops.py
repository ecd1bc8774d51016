"""The reference, op by op: numbers worked by hand, and derivatives against central differences in f64."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.ir.builder import Builder
from wscc.ir.op import Attr, Op
from wscc.ir.ops import OPS
from wscc.ir.types import DType, TensorType
from wscc.reference.tape import SEMANTICS

A = np.ndarray
NOT_FORWARD = {"matmul_add", "sqsum", "tick", "adamw", "sgd"}


def build_op(
    kind: str, rule: str, xs: list[A], attrs: dict[str, Attr], sizes: dict[str, int] | None = None
) -> Op:
    b = Builder()
    types = [TensorType(x.shape, DType.F64 if x.dtype.kind == "f" else DType.I32) for x in xs]
    values = [b.input(f"x{i}", t) for i, t in enumerate(types)]
    b.emit(
        kind, values, rule, attrs=attrs, sizes=sizes, dtypes=[DType.F64] * len(rule.split("->")[1].split(","))
    )
    return b.ops[0]


def run(kind: str, rule: str, *xs: object, sizes: dict[str, int] | None = None, **attrs: Attr) -> list[A]:
    arrays = [np.asarray(x) for x in xs]
    arrays = [x.astype(np.int32) if x.dtype.kind == "i" else x for x in arrays]
    op = build_op(kind, rule, arrays, attrs, sizes)
    results = [np.asarray(y) for y in SEMANTICS[kind].forward(op, arrays)]
    assert [y.shape for y in results] == [v.type.shape for v in op.results]
    return results


# ---- numbers worked by hand


def test_matmul_is_what_its_rule_says() -> None:
    a, w = [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]]
    (y,) = run("matmul", "b k, k n -> b n", a, w)
    assert y.tolist() == [[21, 24, 27], [47, 54, 61]]
    (y,) = run("matmul", "b k, v k -> b v", a, a)
    assert y.tolist() == [[5, 11], [11, 25]]
    (y,) = run("matmul", "b s h e, h e n -> b s n", np.ones((1, 2, 3, 4)), np.ones((3, 4, 5)))
    assert (y == 12).all()
    (y,) = run("matmul", "b i, b j -> b j i", [[1.0, 2.0]], [[3.0, 4.0, 5.0]])
    assert y.tolist() == [[[3, 6], [4, 8], [5, 10]]]


def test_sum_adds_up_what_the_result_lacks_and_may_turn_dimensions() -> None:
    (y,) = run("sum", "a b c -> c a", np.arange(12.0).reshape(2, 3, 2))
    assert y.tolist() == [[6, 24], [9, 27]]
    (y,) = run("sum", "v d -> d v", [[1.0, 2.0], [3.0, 4.0]])
    assert y.tolist() == [[1, 3], [2, 4]]
    (y,) = run("sum", "a -> ", [1.0, 2.0, 4.0])
    assert y == 7


@pytest.mark.parametrize(("kind", "rows"), [
    ("add", [[11, 22], [13, 24]]), ("sub", [[-9, -18], [-7, -16]]), ("mul", [[10, 40], [30, 80]]),
    ("div", [[0.1, 0.1], [0.3, 0.2]]),
])  # fmt: skip
def test_binary_ops_repeat_the_smaller_operand(kind: str, rows: list[list[float]]) -> None:
    (y,) = run(kind, "s d, d -> s d", [[1.0, 2.0], [3.0, 4.0]], [10.0, 20.0])
    assert np.allclose(y, rows, rtol=1e-15)


def test_the_first_operand_may_be_the_smaller_one() -> None:
    (y,) = run("sub", "d, s d -> s d", [10.0, 20.0], [[1.0, 2.0], [3.0, 4.0]])
    assert y.tolist() == [[9, 18], [7, 16]]


def test_scale_cast_partial_sum_fill() -> None:
    assert run("scale", "a -> a", [1.0, -2.0], factor=2.5)[0].tolist() == [2.5, -5]
    assert run("cast", "a -> a", [1.0, -2.0])[0].tolist() == [1, -2]
    assert run("partial_sum", "a, a, a -> a", [1.0, 2.0], [3.0, 4.0], [5.0, 6.0])[0].tolist() == [9, 12]
    assert run("fill", "-> a", value=0.5, sizes={"a": 3})[0].tolist() == [0.5, 0.5, 0.5]


def test_split_and_stack_take_a_dimension_apart_and_put_it_back() -> None:
    x = np.arange(12.0).reshape(2, 3, 2)
    parts = run("split", "b c! e -> b e, b e, b e", x, dim=1)
    assert parts[1].tolist() == [[2, 3], [8, 9]]
    (y,) = run("stack", "b e, b e, b e -> b c! e", *parts, dim=1, sizes={"c": 3})
    assert y.tolist() == x.tolist()


def test_activations() -> None:
    x = [-1.0, 0.0, 2.0]
    assert run("relu", "a -> a", x)[0].tolist() == [0, 0, 2]
    # tanh(0.7978845608 * 1.044715) = 0.6823838; 1 - Phi(1) = 0.15865525, Phi(2) = 0.97724987
    assert np.allclose(run("gelu", "a -> a", x)[0], [-0.15880801, 0, 1.95459769], atol=1e-8)
    assert np.allclose(run("gelu_erf", "a -> a", x)[0], [-0.15865525393, 0, 1.95449973610], atol=1e-10)
    # sigmoid(1) = 0.7310585786
    assert np.allclose(run("swiglu", "a, a -> a", [1.0, 0.0], [3.0, 3.0])[0], [2.1931757358, 0], atol=1e-10)


def test_extreme_activations_neither_overflow_nor_vanish() -> None:
    big = [-1e4, 1e4]
    for kind in ("gelu", "gelu_erf", "relu"):
        assert np.allclose(run(kind, "a -> a", big)[0], [0, 1e4])
    assert np.allclose(run("swiglu", "a, a -> a", big, [1.0, 1.0])[0], [0, 1e4])


def test_norms() -> None:
    # mean 3, deviation 2: (1 - 3) / 2 = -1, (5 - 3) / 2 = 1
    (y,) = run("layernorm", "b d!, d, d -> b d", [[1.0, 5.0]], [2.0, 3.0], [10.0, 20.0], eps=0.0)
    assert y.tolist() == [[8, 23]]
    # mean square of (3, 4, 0, 0) with eps 0: 25 / 4, root 2.5
    (y,) = run("rmsnorm", "b d!, d -> b d", [[3.0, 4.0, 0.0, 0.0]], [1.0, 10.0, 1.0, 1.0], eps=0.0)
    assert np.allclose(y, [[1.2, 16, 0, 0]])
    (y,) = run("rmsnorm", "b d!, d -> b d", [[0.0, 0.0]], [1.0, 1.0], eps=1e-5)
    assert y.tolist() == [[0, 0]]


def test_rope_turns_halves_by_position() -> None:
    x = np.zeros((1, 3, 4))
    x[..., 0], x[..., 1] = 1.0, 1.0
    (y,) = run("rope", "b s@ e! -> b s@ e!", x, theta=100.0, sign=1.0)
    for s in range(3):  # speeds 1 and 100^(-1/2) = 0.1
        want = [np.cos(s), np.cos(s / 10), np.sin(s), np.sin(s / 10)]
        assert np.allclose(y[0, s], want, atol=1e-14)
    (back,) = run("rope", "b s@ e! -> b s@ e!", y, theta=100.0, sign=-1.0)
    assert np.allclose(back, x, atol=1e-14)


def test_embedding_gives_zero_outside_the_table() -> None:
    (y,) = run("embedding", "b s, v@ d -> b s d", [[1, 0, -1, -100, 2]], [[1.0, 2.0], [3.0, 4.0]])
    assert y.tolist() == [[[3, 4], [1, 2], [0, 0], [0, 0], [0, 0]]]


def test_cross_entropy_pieces() -> None:
    x, big = [[0.0, np.log(3.0), 5.0]], [[1000.0, 999.0]]
    assert run("rowmax", "b v@ -> b", x, limit=0)[0].tolist() == [5]
    assert run("rowmax", "b v@ -> b", x, limit=2)[0].tolist() == [np.log(3.0)]
    assert np.allclose(run("sumexp", "b v@, b -> b", x, [0.0], limit=2)[0], [4])
    assert np.allclose(run("sumexp", "b v@, b -> b", big, [1000.0], limit=0)[0], [1 + np.exp(-1)])
    assert run("pick", "b v@, b -> b", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [1, -100, 0])[0].tolist() == [
        2,
        0,
        5,
    ]
    nll = run("nll", "b, b, b, b -> b", [1.0, 1.0], [np.e, np.e], [0.5, 0.5], [3, -100])[0]
    assert np.allclose(nll, [1.5, 0])
    assert run("mean", "b s, ->", [[1.0, 2.0], [3.0, 0.0]], 3.0)[0] == 2
    assert run("mean", "b s, ->", [[0.0, 0.0]], 0.0)[0] == 0
    assert run("count", "b s -> ", [[1, -100, 0], [-100, -100, 5]])[0] == 3


def test_attention_of_two_positions() -> None:
    """Scores of the second query are 0 and log 3: weights 1/4 and 3/4."""
    q, k = np.array([1.0, 1.0]).reshape(1, 2, 1, 1), np.array([0.0, np.log(3.0)]).reshape(1, 2, 1, 1)
    v = np.array([4.0, 8.0]).reshape(1, 2, 1, 1)
    rule = "b q@ h e!, b k~@ h e!, b k~@ h e! -> b q@ h e!, b q@ h, b q@ h"
    out, m, z = run("attention", rule, q, k, v, causal=True, scale=1.0)
    assert np.allclose(out.ravel(), [4, 7])
    assert np.allclose(m.ravel(), [0, np.log(3)])
    assert np.allclose(z.ravel(), [1, 4 / 3])
    out, m, z = run("attention", rule, q, k, v, causal=False, scale=0.0)
    assert np.allclose(out.ravel(), [6, 6])
    assert np.allclose(m.ravel(), 0)
    assert np.allclose(z.ravel(), 2)


MHA = "b q@ h e!, b k~@ h e!, b k~@ h e! -> b q@ h e!, b q@ h, b q@ h"
GQA = "b q@ h g e!, b k~@ h e!, b k~@ h e! -> b q@ h g e!, b q@ h g, b q@ h g"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), chunk=st.integers(1, 6), causal=st.booleans(), groups=st.integers(1, 3))
def test_attention_is_the_online_softmax_over_key_chunks(
    seed: int, chunk: int, causal: bool, groups: int
) -> None:
    """One query, one head at a time; chunks merged as they come, with a running maximum."""
    rng = np.random.default_rng(seed)
    b, s, h, e = 2, 6, 2, 4
    q, k, v = (
        rng.normal(size=(b, s, h, groups, e)) * 3,
        rng.normal(size=(b, s, h, e)),
        rng.normal(size=(b, s, h, e)),
    )
    out, m, z = run("attention", GQA, q, k, v, causal=causal, scale=0.5)
    for i, t, head, g in np.ndindex(b, s, h, groups):
        maximum, total, acc = -np.inf, 0.0, np.zeros(e)
        for start in range(0, t + 1 if causal else s, chunk):
            keys = slice(start, min(start + chunk, t + 1) if causal else start + chunk)
            scores = k[i, keys, head] @ q[i, t, head, g] * 0.5
            new = max(maximum, scores.max())
            w = np.exp(scores - new)
            total = total * np.exp(maximum - new) + w.sum()
            acc = acc * np.exp(maximum - new) + w @ v[i, keys, head]
            maximum = new
        assert np.allclose(out[i, t, head, g], acc / total, rtol=1e-12, atol=1e-12)
        assert m[i, t, head, g] == pytest.approx(maximum, rel=1e-12)
        assert z[i, t, head, g] == pytest.approx(total, rel=1e-12)


def test_one_group_is_plain_multi_head() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, 3, 2, 4)) for _ in range(3))
    plain = run("attention", MHA, q, k, v, causal=True, scale=0.5)
    grouped = run("attention", GQA, q[:, :, :, None], k, v, causal=True, scale=0.5)
    assert np.array_equal(plain[0], grouped[0][:, :, :, 0])
    assert np.array_equal(plain[1], grouped[1][..., 0])


# ---- derivatives


_EDGES = np.array([[0, 0], [0, 1], [1, 3], [3, 1], [3, 1], [1, 1]], np.int32)


@dataclass(frozen=True)
class Case:
    """Operand shapes, or arrays where the values matter."""

    kind: str
    rule: str
    operands: list[tuple[int, ...] | A]
    attrs: dict[str, Attr] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    constant: tuple[int, ...] = ()  # float operands that are data: no derivative

    def __str__(self) -> str:
        return f"{self.kind} {self.rule}"


_LABELS = np.array([[0, -100, 4], [2, 2, 1]], np.int32)
_Q, _K = (2, 3, 2, 4), (2, 3, 2, 4)
ROUTE = "b s! e! -> b s! k!, b s! k!, e!, e!"
# Two choices of each of four tokens among three experts of two slots each; negative: dropped.
_SLOTS = np.array([[[0, 2], [1, 4], [3, -1], [5, -2]], [[2, 0], [-3, 1], [4, 3], [5, -1]]], np.int32)

# Three pairs that turn 3.8, 1.04 and 0.3 times in 24 positions: in the band twice, and below it.
PART: dict[str, Attr] = {
    "theta": 50.0, "sign": 1.0, "width": 6, "factor": 8.0, "low": 1.0, "high": 4.0, "original": 24.0, "interleaved": 0,
}  # fmt: skip
ALIBI = MHA.replace(" h", " h@")
OPTIONS: dict[str, Attr] = {"causal": True, "scale": 0.7, "limit": 0, "window": 0, "cap": 0.0, "alibi": 0}
CASES = [
    Case("matmul", "b s k, k n -> b s n", [(2, 3, 4), (4, 5)]),
    Case("matmul", "b s k, v k -> b s v", [(2, 3, 4), (5, 4)]),
    Case("matmul", "b s k, k c h e -> b s c h e", [(2, 3, 4), (4, 3, 2, 2)]),
    Case("matmul", "b s h e, h e n -> b s n", [(2, 3, 2, 2), (2, 2, 5)]),
    Case("matmul", "b i k, b k j -> j b i", [(2, 3, 4), (2, 4, 5)]),
    Case("matmul", "a k m, k n -> a n", [(2, 3, 4), (3, 5)]),
    Case("sum", "a b c -> c a", [(2, 3, 4)]),
    Case("sum", "a b -> ", [(2, 3)]),
    Case("add", "b s d, s d -> b s d", [(2, 3, 4), (3, 4)]),
    Case("sub", "d, b s d -> b s d", [(4,), (2, 3, 4)]),
    Case("mul", "b s d, d -> b s d", [(2, 3, 4), (4,)]),
    Case("div", "b s d, s d -> b s d", [(2, 3, 4), np.array([[1.5, -2, 3, 0.7]] * 3)]),
    Case("div", "d, s d -> s d", [(4,), np.array([[1.5, -2, 3, 0.7]] * 3)]),
    Case("scale", "a b -> a b", [(2, 3)], {"factor": -1.7}),
    Case("cast", "a b -> a b", [(2, 3)]),
    Case("partial_sum", "a b, a b, a b -> a b", [(2, 3), (2, 3), (2, 3)]),
    Case("split", "b c! h e -> b h e, b h e, b h e", [(2, 3, 2, 4)], {"dim": 1}),
    Case("stack", "b h, b h -> b c! h", [(2, 3), (2, 3)], {"dim": 1}, {"c": 2}),
    Case("expand", "b d -> b s d", [(2, 3)], {}, {"s": 4}),
    Case("concat", "t! d, b s! d -> b u! d", [(1, 4), (2, 3, 4)], {"dim": 1}, {"u": 4}),
    Case("concat", "b s! d, b t! d -> b u! d", [(2, 3, 4), (2, 2, 4)], {"dim": 1}, {"u": 7}),
    Case("cut", "b u! d -> b s! d, b t! d", [(2, 6, 4)], {"dim": 1}, {"s": 3, "t": 2}),
    Case("fill", " -> a", [], {"value": 2.0}, {"a": 3}),
    Case("gelu", "b f -> b f", [(3, 7)]),
    Case("gelu_erf", "b f -> b f", [(3, 7)]),
    Case("relu", "b f -> b f", [(3, 7)]),
    Case("dropout", "b s@ d@, b -> b s@ d@", [(2, 3, 4), np.array([5, -1], np.int32)], {"rate": 0.3, "salt": 1}),
    Case("sigmoid", "b f -> b f", [(3, 7)]),
    Case("rsqrt", "b f -> b f", [np.linspace(0.1, 3, 6).reshape(2, 3)], {"eps": 0.5}),
    Case("swiglu", "b f, b f -> b f", [(3, 7), (3, 7)]),
    Case("layernorm", "b s d!, d, d -> b s d", [(2, 3, 5), (5,), (5,)], {"eps": 1e-2}),
    Case("rmsnorm", "b s d!, d -> b s d", [(2, 3, 5), (5,)], {"eps": 1e-2}),
    Case("rope", "b s@ h g e! -> b s@ h g e!", [(2, 3, 2, 2, 4)], {"theta": 50.0, "sign": 1.0}),
    Case("rope", "b s@ h e! -> b s@ h e!", [(2, 3, 2, 6)], {"theta": 50.0, "sign": -1.0}),
    Case("rope", "b s@ h e! -> b s@ h e!", [(2, 3, 2, 8)], PART),
    Case("rope", "b s@ h e! -> b s@ h e!", [(2, 3, 2, 8)], {**PART, "interleaved": 1}),
    Case("embedding", "b s, v@ d -> b s d", [_LABELS, (5, 4)]),
    Case("attention", MHA, [_Q, _K, _K], {"causal": True, "scale": 0.7}),
    Case("attention", MHA, [_Q, (2, 5, 2, 4), (2, 5, 2, 4)], {"causal": False, "scale": 0.7}),
    Case("attention", GQA, [(2, 3, 2, 3, 4), _K, _K], {"causal": True, "scale": 0.5}),
    Case("attention", MHA, [_Q, (2, 5, 2, 4), (2, 5, 2, 4)], {"causal": False, "scale": 0.7, "limit": 3}),
    Case("attention", MHA, [_Q, _K, _K], {**OPTIONS, "window": 2, "cap": 1.5}),
    Case("attention", ALIBI, [_Q, _K, _K], {**OPTIONS, "alibi": 2}),
    Case("soft_cap", "b f -> b f", [(3, 7)], {"cap": 0.8}),
    Case("rowmax", "b s v@ -> b s", [(2, 3, 5)], {"limit": 4}),
    Case("sumexp", "b s v@, b s -> b s", [(2, 3, 5), (2, 3)], {"limit": 4}),
    Case("sumexp", "b s v@, b s -> b s", [(2, 3, 5), (2, 3)], {"limit": 0}),
    Case("rowsum", "b s v@ -> b s", [(2, 3, 5)], {"limit": 4}),
    Case("rowsum", "b v@ -> b", [(2, 5)], {"limit": 0}),
    Case("zloss", "b s, b s, b s -> b s", [(2, 3), np.full((2, 3), 2.5), _LABELS], {"factor": 0.3}),
    Case("pick", "b s v@, b s -> b s", [(2, 3, 5), _LABELS]),
    Case("nll", "b s, b s, b s, b s -> b s", [(2, 3), np.full((2, 3), 2.5), (2, 3), _LABELS]),
    Case("route", ROUTE, [(2, 4, 5)], {"capacity": 2, "renormalise": False}, {"k": 2}),
    Case("route", ROUTE, [(2, 4, 5)], {"capacity": 1, "renormalise": True}, {"k": 3}),
    Case("dispatch", "b s! d, b s! k! -> e@ b c@ d", [(2, 4, 3), _SLOTS], {"capacity": 2}, {"e": 3, "c": 2}),
    Case(
        "combine", "b s! k!, b s! k!, e@ b c@ d -> b s! d", [(2, 4, 2), _SLOTS, (3, 2, 2, 3)], {"capacity": 2}
    ),
    Case("balance", "b s! e! -> ", [(2, 4, 5)], {"k": 2, "scale": 0.3}),
    Case("z_loss", "b s e! -> ", [(2, 4, 5)], {"scale": 0.3}),
    *(
        Case("spmm", "e! c!, b m~@ d -> b n@ d", [_EDGES, (2, 4, 3)], {"weights": w}, {"n": 4})
        for w in ("sum", "mean", "symmetric")
    ),
    Case(
        "edge_attention", "e! c!, b n@ h, b m! h, b m! h f -> b n@ h f",
        [_EDGES, (2, 4, 2), (2, 4, 2), (2, 4, 2, 3)], {"slope": 0.3},
    ),
    Case("edge_max", "e! c!, b m! d -> b n@ d", [_EDGES, (2, 4, 3)], sizes={"n": 4}),
    Case("edge_sum", "e! c!, b m! d, e! -> b n@ d", [_EDGES, (2, 4, 3), (6,)], sizes={"n": 4}),
    Case("mean", "b s, -> ", [(2, 3), np.array(4.0)], constant=(1,)),
    Case("count", "b s -> ", [_LABELS]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("sum", [[6], [2], [0]]), ("mean", [[3], [2], [0]]), ("symmetric", [[2 / 2 + 4 / 2**0.5], [2 / 2**0.5], [0]])],
)  # fmt: skip
def test_spmm_adds_up_what_edges_name(weights: str, expected: list[list[float]]) -> None:
    """Node 0 takes from 0 and 1, node 1 from 0: two edges and one."""
    rule, edges = "e! c!, b m~@ d -> b n@ d", [[0, 0], [0, 1], [1, 0]]
    (y,) = run("spmm", rule, edges, [[[2.0], [4.0], [9.0]]], sizes={"n": 3}, weights=weights)
    assert y[0] == pytest.approx(np.array(expected))


def test_every_forward_op_has_semantics_and_a_case() -> None:
    forward = {k for k in OPS if not k.endswith("_bwd")} - NOT_FORWARD
    assert set(SEMANTICS) == forward == {c.kind for c in CASES}


# Results that are sums over a batch, in f64 whatever is added up, as are the numbers that the host reads.
TOTALS = {"mean": {0}, "balance": {0}, "z_loss": {0}, "route": {2, 3}, "count": {0}, "fill": {0}}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_of_f32_are_computed_in_f32(case: Case) -> None:
    """Else one device would be nearer to f64 than its types let any program be, and right ones would fail."""
    rng = np.random.default_rng(7)
    given = [x if isinstance(x, A) else rng.normal(size=x) for x in case.operands]
    xs = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in given]
    op, semantics = build_op(case.kind, case.rule, given, case.attrs, case.sizes), SEMANTICS[case.kind]
    ys = [np.asarray(y) for y in semantics.forward(op, xs)]
    totals = TOTALS.get(case.kind, set())
    assert all(y.dtype != np.float64 for i, y in enumerate(ys) if i not in totals)
    dys = [rng.normal(size=y.shape).astype(np.float32) for y in ys]
    grads = semantics.vjp(op, xs, [y.astype(np.float32) for y in ys], dys)
    assert all(np.asarray(g).dtype == np.float32 for g in grads if g is not None)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_derivative_of_each_operand_is_the_central_difference(case: Case) -> None:
    rng = np.random.default_rng(7)
    xs = [x if isinstance(x, A) else rng.normal(size=x) for x in case.operands]
    op = build_op(case.kind, case.rule, xs, case.attrs, case.sizes)
    semantics, h = SEMANTICS[case.kind], 1e-6
    ys = semantics.forward(op, xs)
    dys = [rng.normal(size=np.shape(y)) for y in ys]

    def scalar(changed: list[A]) -> float:
        return sum(float((dy * y).sum()) for dy, y in zip(dys, semantics.forward(op, changed), strict=True))

    grads = semantics.vjp(op, xs, ys, dys)
    assert len(grads) == len(xs)
    for i, (x, grad) in enumerate(zip(xs, grads, strict=True)):
        if x.dtype.kind == "i" or i in case.constant:
            assert grad is None
            continue
        assert grad is not None
        assert grad.shape == x.shape
        for index in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = [np.array(z) for z in xs]
                moved[i][index] += sign * h
                sides.append(scalar(moved))
            assert grad[index] == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=1e-7, abs=1e-7), (
                i,
                index,
            )
