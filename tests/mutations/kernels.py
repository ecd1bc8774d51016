"""Instructions that mean something else: the mistakes that are easy to make in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from tests.models import gpt, llama
from tests.mutations.harness import Setting
from tests.mutations.zoo import zoo
from wscc.backends.kernels import MEANING
from wscc.ir.instructions import INSTRUCTIONS
from wscc.ir.types import DType

Kernel = Callable[..., None]
RIGHT = dict(MEANING)  # as it is before anything is broken

ONE_DIE = Setting(family=gpt)
LLAMA = Setting(family=llama)
ZOO = Setting(family=zoo)
SGD = Setting(family=gpt, optimizer="sgd", steps=3)
LONGER = Setting(family=gpt, steps=3)
TP = Setting(family=gpt, degrees=(("tp", 2),))
# One sequence in a call: the axis splits the sequence, and keys travel.
STREAMED = Setting(family=gpt, degrees=(("tatp", 2),), batch=2)
STREAMED_LLAMA = Setting(family=llama, degrees=(("tatp", 2),), batch=2)
HOT = Setting(family=llama, optimizer="sgd", dtype=DType.F32, heat=200.0)
HOT_TP = Setting(family=llama, degrees=(("tp", 2),), optimizer="sgd", dtype=DType.F32, heat=200.0)
PADDED = Setting(family=llama, limit=29)
PADDED_TP = Setting(family=llama, degrees=(("tp", 2),), limit=29)


@dataclass(frozen=True, slots=True)
class BrokenKernel:
    """`kernel` in place of `opcode`, and the smallest strategy under which it shows."""

    opcode: str
    mistake: str
    setting: Setting
    kernel: Kernel

    def __str__(self) -> str:
        return f"{self.opcode}: {self.mistake}"


def with_attrs(opcode: str, **changes: Any) -> Kernel:
    """The kernel with some of its attributes replaced, or changed by a function of their value."""
    row = INSTRUCTIONS[opcode]
    first = len(row.writes.split()) + len(row.reads.split())
    right = MEANING[opcode]

    def run(*given: Any) -> None:
        attrs = dict(zip(row.attr_names, given[first:], strict=True))
        attrs.update({k: c(attrs[k]) if callable(c) else c for k, c in changes.items()})
        right(*given[:first], *attrs.values())

    return run


def plus(n: int) -> Callable[[int], int]:
    return lambda value: value + n


# ---------------------------------------------------------------------------------------- the usual mistakes


def unbiased_layernorm(y: Any, x: Any, g: Any, b: Any, eps: float) -> None:
    variance = x.var(-1, ddof=1, keepdims=True)
    y[...] = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + eps) * g + b


def gather_clips(y: Any, ids: Any, table: Any, start: int) -> None:
    np.take(table, ids - start, axis=0, out=y, mode="clip")


def scatter_overwrites(table: Any, ids: Any, dy: Any, start: int, accumulate: bool) -> None:
    """The last of several equal tokens wins."""
    if not accumulate:
        table.fill(0)
    inside = (ids >= start) & (ids < start + len(table))
    table[ids[inside] - start] = dy[inside]


def nll_of_all(l: Any, m: Any, z: Any, p: Any, y: Any) -> None:  # noqa: E741
    l[...] = np.log(z) + m - p


def nll_bwd_dz_of_all(dz: Any, dp: Any, z: Any, y: Any, dl: Any) -> None:
    dz[...] = dl / z
    dp[...] = np.where(y == -100, 0, -dl)


def nll_bwd_dp_of_all(dz: Any, dp: Any, z: Any, y: Any, dl: Any) -> None:
    dz[...] = np.where(y == -100, 0, dl / z)
    dp[...] = -dl


def mean_of_all(s: Any, x: Any, n: Any) -> None:
    s[...] = x.mean()


def mean_bwd_of_all(dx: Any, ds: Any, n: Any) -> None:
    dx[...] = ds / dx.size


def count_all(n: Any, y: Any) -> None:
    n[...] = y.size


def rope_by_pairs(y: Any, x: Any, theta: float, sign: float, start: int) -> None:
    """Neighbouring elements turned together, the other convention."""
    order = np.arange(x.shape[-1]).reshape(-1, 2).T.reshape(-1)
    turned = np.empty_like(x)
    RIGHT["rope"](turned, np.ascontiguousarray(x[..., order]), theta, sign, start)
    y[..., order] = turned


def merge_by_sum(o: Any, l: Any, o1: Any, l1: Any, o2: Any, l2: Any) -> None:  # noqa: E741
    np.add(o1, o2, out=o)
    np.logaddexp(l1, l2, out=l)


def merge_by_halves(o: Any, l: Any, o1: Any, l1: Any, o2: Any, l2: Any) -> None:  # noqa: E741
    np.multiply(o1 + o2, 0.5, out=o)
    np.logaddexp(l1, l2, out=l)


def merge_without_hidden_rows(o: Any, l: Any, o1: Any, l1: Any, o2: Any, l2: Any) -> None:  # noqa: E741
    """A chunk of which a query sees nothing gives -inf - -inf."""
    joint = np.logaddexp(l1, l2)
    o[...] = o1 * np.exp(l1 - l2)[..., None] / (1 + np.exp(l1 - l2))[..., None]
    o += o2 * np.exp(l2 - joint)[..., None]
    l[...] = joint


def sumexp_without_shift(z: Any, x: Any, m: Any, limit: int, start: int) -> None:
    z[...] = np.exp(x).sum(-1) * np.exp(-m)


def rowmax_dropped(m: Any, x: Any, limit: int, start: int) -> None:
    m.fill(0)


def maximum_summed(z: Any, x: Any, y: Any) -> None:
    np.add(x, y, out=z)


def rowdot_without_weights(r: Any, a: Any, b: Any) -> None:
    r[...] = a.sum(-1)


def softmax_bwd_without_delta(ds: Any, p: Any, dp: Any, delta: Any, scale: float) -> None:
    ds[...] = p * dp * scale


def relu_bwd_everywhere(dx: Any, x: Any, dy: Any) -> None:
    dx[...] = dy


def sqsum_of_absolutes(s: Any, x: Any) -> None:
    s[...] = np.abs(x).sum()


def tick_forgets(t: Any, old: Any) -> None:
    t[...] = 1


def adamw_with(**changes: Any) -> Kernel:
    """AdamW as the paper has it, but for one thing."""

    def run(
        w: Any, m: Any, v: Any, w0: Any, m0: Any, v0: Any, g: Any, norm2: Any, t: Any,
        lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
        clip: float, warmup: int, decay: int, floor: float,
    ) -> None:  # fmt: skip
        step = changes.get("step", int(t))
        rate = lr * min(1.0, changes.get("first", int(t)) / warmup)
        norm = float(norm2) if changes.get("squared") else sqrt(float(norm2))
        grad = g * min(1.0, clip / (norm + 1e-6))
        grad = grad + weight_decay * w0 if changes.get("coupled") else grad
        square = m0 * 0 + grad * grad if changes.get("forgetful") else beta2 * v0 + (1 - beta2) * grad * grad
        mean = beta1 * m0 + (1 - beta1) * grad
        m1, v1 = (mean, square) if changes.get("raw") else (mean / (1 - beta1**step), square / (1 - beta2**step))
        root = np.sqrt(v1 + eps) if changes.get("inside") else np.sqrt(v1) + eps
        kept = w0 if changes.get("coupled") else w0 * (1 - rate * weight_decay)
        w[...], m[...], v[...] = kept - rate * m1 / root, mean, square

    return run


BROKEN = (
    BrokenKernel("gelu", "the erf form", ONE_DIE, MEANING["gelu_erf"]),
    BrokenKernel("gelu_bwd", "the erf form", ONE_DIE, MEANING["gelu_erf_bwd"]),
    BrokenKernel("gelu_erf", "the tanh form", ZOO, MEANING["gelu"]),
    BrokenKernel("gelu_erf_bwd", "the tanh form", ZOO, MEANING["gelu_bwd"]),
    BrokenKernel("relu", "absolute value", ZOO, lambda y, x: np.abs(x, out=y)),
    BrokenKernel("relu_bwd", "gradient everywhere", ZOO, relu_bwd_everywhere),
    BrokenKernel("layernorm", "without eps", ONE_DIE, with_attrs("layernorm", eps=0.0)),
    BrokenKernel("layernorm", "unbiased variance", ONE_DIE, unbiased_layernorm),
    BrokenKernel("layernorm_bwd", "without eps", ONE_DIE, with_attrs("layernorm_bwd", eps=0.0)),
    BrokenKernel("rmsnorm", "without eps", LLAMA, with_attrs("rmsnorm", eps=0.0)),
    BrokenKernel("rmsnorm_bwd", "without eps", LLAMA, with_attrs("rmsnorm_bwd", eps=0.0)),
    BrokenKernel("rope", "turned back", LLAMA, with_attrs("rope", sign=lambda s: -s)),
    BrokenKernel("rope", "another base", LLAMA, with_attrs("rope", theta=9999.0)),
    BrokenKernel("rope", "by pairs", LLAMA, rope_by_pairs),
    BrokenKernel("rope", "ignores its first position", STREAMED_LLAMA, with_attrs("rope", start=0)),
    BrokenKernel("softmax", "no mask", ONE_DIE, with_attrs("softmax", causal=False)),
    BrokenKernel("softmax", "sees the next token", ONE_DIE, with_attrs("softmax", q_start=plus(1))),
    BrokenKernel("softmax", "does not see its own token", ONE_DIE, with_attrs("softmax", k_start=plus(1))),
    BrokenKernel("softmax", "ignores the first query", STREAMED, with_attrs("softmax", q_start=0)),
    BrokenKernel("softmax", "ignores the first key", STREAMED, with_attrs("softmax", k_start=0)),
    BrokenKernel("probs", "no mask", ONE_DIE, with_attrs("probs", causal=False)),
    BrokenKernel("probs", "sees the next token", ONE_DIE, with_attrs("probs", q_start=plus(1))),
    BrokenKernel("probs", "does not see its own token", ONE_DIE, with_attrs("probs", k_start=plus(1))),
    BrokenKernel("probs", "ignores the first query", STREAMED, with_attrs("probs", q_start=0)),
    BrokenKernel("probs", "ignores the first key", STREAMED, with_attrs("probs", k_start=0)),
    BrokenKernel("softmax_bwd", "without the row sums", ONE_DIE, softmax_bwd_without_delta),
    BrokenKernel("softmax_bwd", "unscaled", ONE_DIE, with_attrs("softmax_bwd", scale=1.0)),
    BrokenKernel("rowdot", "a plain sum", ONE_DIE, rowdot_without_weights),
    BrokenKernel("merge", "by plain sum", STREAMED, merge_by_sum),
    BrokenKernel("merge", "in equal parts", STREAMED, merge_by_halves),
    BrokenKernel("merge", "divides by rows that saw nothing", STREAMED, merge_without_hidden_rows),
    BrokenKernel("gemm", "unscaled", ONE_DIE, with_attrs("gemm", scale=1.0)),
    BrokenKernel("gemm", "never accumulates", STREAMED, with_attrs("gemm", accumulate=False)),
    BrokenKernel("scale", "ignores its factor", ZOO, with_attrs("scale", factor=1.0)),
    BrokenKernel("gather", "clips instead of masking", TP, gather_clips),
    BrokenKernel("gather", "ignores its first row", TP, with_attrs("gather", start=0)),
    BrokenKernel("scatter_add", "ignores its first row", TP, with_attrs("scatter_add", start=0)),
    BrokenKernel("scatter_add", "overwrites", ONE_DIE, scatter_overwrites),
    BrokenKernel("scatter_add", "keeps what was there", ONE_DIE, with_attrs("scatter_add", accumulate=True)),
    BrokenKernel("pick", "ignores its first column", TP, with_attrs("pick", start=0)),
    BrokenKernel("pick_bwd", "ignores its first column", TP, with_attrs("pick_bwd", start=0)),
    BrokenKernel("nll", "counts ignored labels", ONE_DIE, nll_of_all),
    BrokenKernel("nll_bwd", "dz of ignored labels", ONE_DIE, nll_bwd_dz_of_all),
    BrokenKernel("nll_bwd", "dp of ignored labels", ONE_DIE, nll_bwd_dp_of_all),
    BrokenKernel("mean", "over all positions", ONE_DIE, mean_of_all),
    BrokenKernel("mean_bwd", "over all positions", ONE_DIE, mean_bwd_of_all),
    BrokenKernel("count", "counts ignored labels", ONE_DIE, count_all),
    BrokenKernel("rowmax", "dropped, hot logits", HOT, rowmax_dropped),
    BrokenKernel("maximum", "summed, hot logits", HOT_TP, maximum_summed),
    BrokenKernel("sumexp", "shifted afterwards, hot logits", HOT, sumexp_without_shift),
    BrokenKernel("sumexp", "counts pads", PADDED, with_attrs("sumexp", limit=0)),
    BrokenKernel("sumexp", "pads in local columns", PADDED_TP, with_attrs("sumexp", start=0)),
    BrokenKernel("sumexp_bwd", "gradients of pads", PADDED, with_attrs("sumexp_bwd", limit=0)),
    BrokenKernel("sumexp_bwd", "pads in local columns", PADDED_TP, with_attrs("sumexp_bwd", start=0)),
    BrokenKernel("sqsum", "sums absolute values", ONE_DIE, sqsum_of_absolutes),
    BrokenKernel("tick", "forgets", ONE_DIE, tick_forgets),
    BrokenKernel("adamw", "no correction of the moments", ONE_DIE, adamw_with(raw=True)),
    BrokenKernel("adamw", "always corrected as in step 1", ONE_DIE, adamw_with(step=1)),
    BrokenKernel("adamw", "steps counted from 0", ONE_DIE, adamw_with(first=0)),
    BrokenKernel("adamw", "eps inside the root", ONE_DIE, adamw_with(inside=True)),
    BrokenKernel("adamw", "weight decay in the gradient", ONE_DIE, adamw_with(coupled=True)),
    BrokenKernel("adamw", "clips by the squared norm", ONE_DIE, adamw_with(squared=True)),
    BrokenKernel("adamw", "no memory of squares", ONE_DIE, adamw_with(forgetful=True)),
    BrokenKernel("adamw", "no clipping", ONE_DIE, with_attrs("adamw", clip=0.0)),
    BrokenKernel("adamw", "no warm-up", ONE_DIE, with_attrs("adamw", warmup=0)),
    BrokenKernel("adamw", "no decay", LONGER, with_attrs("adamw", decay=0)),
    BrokenKernel("adamw", "decays to zero", LONGER, with_attrs("adamw", floor=0.0)),
    BrokenKernel("sgd", "no clipping", SGD, with_attrs("sgd", clip=0.0)),
    BrokenKernel("sgd", "no warm-up", SGD, with_attrs("sgd", warmup=0)),
    BrokenKernel("sgd", "no decay", SGD, with_attrs("sgd", decay=0)),
    BrokenKernel("sgd", "decays to zero", SGD, with_attrs("sgd", floor=0.0)),
)
