"""`view_overlap` and `aliases`: views and arguments are told apart exactly, and never wrongly."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fabric_modules import module_of
from wscc.analysis.aliases import aliases
from wscc.analysis.view_overlap import byte_dims, overlap, span
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref, walk
from wscc.ir.types import DType, Layout, TensorType

Shape = tuple[tuple[int, int], ...]

# (size, stride) of each dimension; strides of 0, repeated and overlapping ones included.
windows = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 14)), max_size=3).map(tuple)


def byte_set(window: Shape, size: int) -> set[int]:
    """The bytes of a window, one by one."""
    places = product(*(range(0, n * s, s) if s else [0] for n, s in window))
    return {sum(place) * size + byte for place in places for byte in range(size)}


@settings(deadline=None, max_examples=150)
@given(windows, windows, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(-80, 80))
def test_views_overlap_exactly_when_they_share_a_byte(a: Shape, b: Shape, x: int, y: int, shift: int) -> None:
    dims = [byte_dims(tuple(n for n, _ in w), tuple(s for _, s in w), size) for w, size in ((a, x), (b, y))]
    left, right = byte_set(a, x), {byte + shift for byte in byte_set(b, y)}
    assert overlap(dims[0], dims[1], shift) == bool(left & right)
    assert span(dims[0]) == max(left) + 1


def test_views_count_as_overlapping_when_the_search_exceeds_its_budget() -> None:
    hard = byte_dims((9,) * 9, tuple(2 * 3**i + 2 for i in range(9)), 1)
    assert overlap(hard, byte_dims((9,) * 9, tuple(2 * 3**i + 4 for i in range(9)), 1), 10_001)


def test_an_empty_view_overlaps_nothing() -> None:
    assert not overlap((), byte_dims((4,), (1,), 4), 0)
    assert span(()) == 0


indices = st.builds(
    Affine,
    st.integers(0, 5),
    st.sampled_from([(), (("i", 1),), (("i", 2),), (("i", -1),)]),
    st.sampled_from([2, 3]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), indices), min_size=3, max_size=3))
def test_arguments_that_ever_share_an_element_have_one_name(refs: list[tuple[str, Affine]]) -> None:
    """Array `c` is in the storage of `a`."""
    kind = TensorType((8,), DType.F32, Layout.whole(1))
    arrays = tuple(Array(n, kind, Kind.CARRIED, (3,), storage="a" if n == "c" else "") for n in "abc")
    args = tuple(Ref(n, (index,)) for n, index in refs)
    procedure = Procedure("p", (Value("x", kind), Value("y", kind)), (Output(Value("z", kind)),), ())
    module: Module = module_of(1, []).with_(
        arrays=arrays, procedures=(procedure,), step=(Loop("i", 4, (Call("p", args),)),)
    )
    names = aliases(module)["p"]
    for call, variables in walk(module.step):
        elements = [(module.array(r.array).storage or r.array, r.index[0].at(variables)) for r in call.args]
        for i, j in product(range(3), repeat=2):
            if elements[i] == elements[j]:
                assert names.get("xyz"[i], "xyz"[i]) == names.get("xyz"[j], "xyz"[j])


def test_neighbouring_layers_are_told_apart() -> None:
    kind = TensorType((8,), DType.F32, Layout.whole(1))

    def names(*indices: Affine) -> dict[str, str]:
        procedure = Procedure("p", (Value("x", kind),), (Output(Value("y", kind)),), ())
        call = Call("p", tuple(Ref("a", (i,)) for i in indices))
        array = Array("a", kind, Kind.CARRIED, (5,))
        module = module_of(1, []).with_(
            arrays=(array,), procedures=(procedure,), step=(Loop("l", 4, (call,)),)
        )
        return aliases(module)["p"]

    layer = (("l", 1),)
    assert names(Affine(0, layer), Affine(1, layer)) == {}
    assert names(Affine(0, layer, 2), Affine(1, layer, 2)) == {}
    assert len(set(names(Affine(0, layer), Affine(0, layer)).values())) == 1
    assert len(set(names(Affine(0, layer, 2), Affine(2, layer, 2)).values())) == 1
