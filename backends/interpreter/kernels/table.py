"""The table of kernels: the semantics of every opcode but those of messages, and calls of them.

A kernel is a function of its writes, reads and attributes, in this order. It writes into the arrays that it is given
(strided ones too), allocates next to nothing, and runs under `np.errstate(all="ignore")`. Operands come as `merged`
makes them: at least one leading dimension where the declaration says `*`. bf16 is computed in f32 and rounded once,
when it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from wscc.backends.interpreter.kernels import attention as attention
from wscc.backends.interpreter.kernels import dropout as dropout
from wscc.backends.interpreter.kernels import elementwise as elementwise
from wscc.backends.interpreter.kernels import experts as experts
from wscc.backends.interpreter.kernels import gemm as contraction
from wscc.backends.interpreter.kernels import graphs as graphs
from wscc.backends.interpreter.kernels import loss as loss
from wscc.backends.interpreter.kernels import memory as memory
from wscc.backends.interpreter.kernels import norm as norm
from wscc.backends.interpreter.kernels import optimizers as update
from wscc.backends.interpreter.kernels.scratch import Array, scratch
from wscc.backends.interpreter.kernels.views import Prepared, Shape, merged
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.types import is_bf16

Kernel = Callable[..., None]

SEMANTICS: Final[dict[str, Kernel]] = {
    "copy": memory.copy,
    "cast": memory.cast,
    "fill": memory.fill,
    "gather": memory.gather,
    "scatter_add": memory.scatter_add,
    "gemm": contraction.gemm,
    "sum": contraction.total,
    "rowdot": contraction.rowdot,
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "div": elementwise.div,
    "maximum": elementwise.maximum,
    "scale": elementwise.scale,
    "gelu": elementwise.gelu,
    "gelu_bwd": elementwise.gelu_bwd,
    "gelu_erf": elementwise.gelu_erf,
    "gelu_erf_bwd": elementwise.gelu_erf_bwd,
    "soft_cap": elementwise.soft_cap,
    "soft_cap_bwd": elementwise.soft_cap_bwd,
    "relu": elementwise.relu,
    "relu_bwd": elementwise.relu_bwd,
    "sigmoid": elementwise.sigmoid,
    "sigmoid_bwd": elementwise.sigmoid_bwd,
    "rsqrt": elementwise.rsqrt,
    "rsqrt_bwd": elementwise.rsqrt_bwd,
    "swiglu": elementwise.swiglu,
    "swiglu_bwd": elementwise.swiglu_bwd,
    "layernorm": norm.layernorm,
    "layernorm_bwd": norm.layernorm_bwd,
    "rmsnorm": norm.rmsnorm,
    "rmsnorm_bwd": norm.rmsnorm_bwd,
    "dropout": dropout.dropout,
    "rope": norm.rope,
    "alibi": attention.alibi,
    "softmax": attention.softmax,
    "merge": attention.merge,
    "probs": attention.probs,
    "rowmean": attention.rowmean,
    "softmax_bwd": attention.softmax_bwd,
    "rowmax": loss.rowmax,
    "sumexp": loss.sumexp,
    "sumexp_bwd": loss.sumexp_bwd,
    "rowsum": loss.rowsum,
    "rowsum_bwd": loss.rowsum_bwd,
    "zloss": loss.zloss,
    "zloss_bwd": loss.zloss_bwd,
    "pick": loss.pick,
    "pick_bwd": loss.pick_bwd,
    "nll": loss.nll,
    "nll_bwd": loss.nll_bwd,
    "mean": loss.mean,
    "mean_bwd": loss.mean_bwd,
    "count": loss.count,
    "route": experts.route,
    "route_bwd": experts.route_bwd,
    "spmm": graphs.spmm,
    "edge_attention": graphs.edge_attention,
    "edge_attention_bwd": graphs.edge_attention_bwd,
    "edge_max": graphs.edge_max,
    "edge_max_bwd": graphs.edge_max_bwd,
    "edge_sum": graphs.edge_sum,
    "edge_sum_bwd": graphs.edge_sum_bwd,
    "dispatch": experts.dispatch,
    "dispatch_bwd": experts.dispatch_bwd,
    "combine": experts.combine,
    "combine_bwd": experts.combine_bwd,
    "balance": experts.balance,
    "balance_bwd": experts.balance_bwd,
    "z_loss": experts.z_loss,
    "z_loss_bwd": experts.z_loss_bwd,
    "sqsum": loss.sqsum,
    "tick": update.tick,
    "adamw": update.adamw,
    "sgd": update.sgd,
    "delay": update.delay,
}

# These only move elements, so that no arithmetic is done in bf16.
_MOVES: Final = frozenset({"copy", "cast", "fill", "gather"})


def kernel(opcode: str, dtypes: Sequence[np.dtype[Any]], writes: int, accumulate: bool) -> Kernel:
    """The kernel of an opcode for operands of these element types; the first `writes` of them are written."""
    plain = SEMANTICS[opcode]
    narrow = [i for i, d in enumerate(dtypes) if is_bf16(d)]
    if not narrow or opcode in _MOVES:
        return plain
    return _widened(plain, narrow, writes, accumulate)


def _widened(plain: Kernel, narrow: Sequence[int], writes: int, accumulate: bool) -> Kernel:
    """The kernel `plain` with its bf16 operands (numbered in `narrow`) held in f32 while it runs."""

    def run(*args: Any) -> None:
        wide = list(args)
        for i in narrow:
            wide[i] = scratch(f"wide.{i}", args[i].shape, np.float32)
            if i >= writes or accumulate:
                np.copyto(wide[i], args[i])
        plain(*wide)
        for i in narrow:
            if i < writes:
                np.copyto(args[i], wide[i], casting="same_kind")

    return run


def bound(run: Kernel, args: tuple[Any, ...]) -> Prepared:
    """The call `run(*args)`, specialised to the layouts of its arrays."""
    return contraction.bound(*args) if run is contraction.gemm else (run, args)


def apply(opcode: str, writes: Sequence[Array], reads: Sequence[Array], *attrs: Any) -> None:
    """Run one instruction on arrays of the declared ranks, without the engine.

    `ValueError` if ranks or sizes do not fit the declaration.
    """
    operands = (*writes, *reads)
    shapes = merged(opcode, [Shape(x.shape, x.strides, x.itemsize) for x in operands])
    views = [
        np.lib.stride_tricks.as_strided(x, s.sizes, s.strides) for x, s in zip(operands, shapes, strict=True)
    ]
    accumulate = "accumulate" in INSTRUCTIONS[opcode].attr_names and bool(attrs[-1])
    with np.errstate(all="ignore"):
        run, args = bound(
            kernel(opcode, [x.dtype for x in operands], len(writes), accumulate), (*views, *attrs)
        )
        run(*args)
