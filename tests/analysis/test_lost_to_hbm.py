"""What accesses to HBM cost a procedure before it is scheduled."""

from __future__ import annotations

import pytest

from wscc.analysis.memory.likely_ranges import lost_to_hbm
from wscc.ir.fabric import Kernel
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.types import DType, TensorType
from wscc.ir.views import whole_view
from wscc.machine.wafer import Die

SIDE = 256
BYTES = 4 * SIDE * SIDE


def products(times: int) -> Procedure:
    """A procedure that adds so many products of `x` to its result."""
    x, total = (Value(name, TensorType((SIDE, SIDE), DType.F32)) for name in ("x", "total"))
    a, out = (whole_view(v.name, v.type.shape, v.type.dtype) for v in (x, total))
    product = Kernel("gemm", (out,), (a, a), (("scale", 1.0), ("accumulate", True)))
    return Procedure("p", (x,), (Output(total, Mode.ADD),), (product,) * times)


def lost(times: int, sram: int) -> float:
    return lost_to_hbm(products(times), Die(sram=sram, hbm=10**9, hbm_bandwidth=BYTES), {})


def test_an_argument_beyond_the_fast_memory_costs_each_access_but_one_copy() -> None:
    """HBM takes a second for the bytes of an argument; each product reads `x` twice and adds to `total`."""
    assert lost(1, sram=BYTES // 2) < 3
    assert lost(17, sram=BYTES // 2) - lost(1, sram=BYTES // 2) == pytest.approx(16 * 3, rel=0.05)


def test_arguments_that_fit_together_cost_nothing_more() -> None:
    assert lost(17, sram=2 * BYTES) == 0
    assert 0 < lost(17, sram=3 * BYTES // 2) < lost(17, sram=BYTES // 2)
