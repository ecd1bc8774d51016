"""Whole arrays in and out of the dies' memories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.small_programs import machine, poke
from wscc.backends.interpreter.host_io import initialise, read, write
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import CompileError
from wscc.ir.array import Init, Kind
from wscc.ir.streams.artifact import HostPart, HostTensor
from wscc.ir.types import DType, Layout, Reduction, TensorType

AXES = (("a", 2), ("b", 3))


def host(type: TensorType, std: float = 0.0) -> Machine:
    init = Init("normal", std) if std else Init()
    t = HostTensor("w", Kind.PARAM, type, (2,), init, (HostPart(-1, 0, 2, 256, 512),))
    return machine("role 0 { } step { }", [0] * 6, axes=AXES, tensors=(t,), mesh=(2, 3))


@given(
    st.permutations(["a", "b"]).flatmap(
        lambda order: st.tuples(
            *[st.sampled_from([0, 1, 2]) for _ in order], st.just(tuple(order)), st.booleans(), st.booleans()
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_what_the_host_writes_it_reads(where: tuple[int, int, tuple[str, ...], bool, bool]) -> None:
    """Axes split dimension 0 or 1, or (2) neither: then they hold replicas, or parts of a sum."""
    *dims, order, partial, maximum = where
    split = tuple(tuple(a for a in order if dims[order.index(a)] == d) for d in (0, 1))
    rest = sorted(a for a in order if dims[order.index(a)] == 2)
    kind = Reduction.MAX if maximum else Reduction.SUM
    layout = Layout(split, tuple((a, kind) for a in rest) if partial else ())
    m = host(TensorType((6, 12), DType.F32, layout))
    value = np.arange(72, dtype=np.float32).reshape(6, 12) - 30
    write(m, "w", (1,), value)
    assert np.array_equal(read(m, "w", (1,)), value)
    with pytest.raises(CompileError, match="nothing wrote"):
        read(m, "w", (0,))


def test_slices_follow_the_coordinates_major_axis_first() -> None:
    m = host(TensorType((6,), DType.F32, Layout((("b", "a"),))))
    write(m, "w", (0,), np.arange(6, dtype=np.float64))
    assert [m.load(d, 256, (1,), np.dtype(np.float32))[0] for d in range(6)] == [0, 2, 4, 1, 3, 5]


def test_replicas_that_differ_are_an_error() -> None:
    m = host(TensorType((6,), DType.F32, Layout((("a",),))))
    write(m, "w", (0,), np.arange(6.0))
    poke(m, 4, 256, 3, 4, 99)
    with pytest.raises(CompileError, match=r"die \(1, 1\) holds another replica of `w`"):
        read(m, "w", (0,))


def test_partial_parts_are_summed_and_checked_as_replicas() -> None:
    m = host(TensorType((2,), DType.F32, Layout(((),), (("a", Reduction.SUM),))))
    for die in range(6):
        poke(m, die, 256, die // 3 + 1, 10)
    assert list(read(m, "w", (0,))) == [3, 20]


def test_weights_are_the_same_whatever_the_layout() -> None:
    layouts = [Layout(((), ())), Layout((("b",), ("a",))), Layout((("a", "b"), ()))]
    machines = [host(TensorType((6, 4), DType.F32, layout), std=0.1) for layout in layouts]
    for m in machines:
        initialise(m, 7)
    values = [[read(m, "w", (i,)) for i in range(2)] for m in machines]
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2])
    assert not np.array_equal(values[0][0], values[0][1])
    assert 0.03 < np.std(values[0]) < 0.3


def test_the_host_refuses_names_shapes_and_elements_that_are_not_there() -> None:
    m = host(TensorType((6,), DType.F32))
    for call in (
        lambda: write(m, "v", (0,), np.zeros(6)),
        lambda: write(m, "w", (0,), np.zeros(5)),
        lambda: write(m, "w", (2,), np.zeros(6)),
        lambda: read(m, "w", ()),
    ):
        with pytest.raises(CompileError):
            call()
