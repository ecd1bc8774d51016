"""Operations of the language for models built in Python.

Each function returns an `Expression`; shapes are checked when the model is compiled. Shapes below: `[*]` is any leading
dimensions. Raises `CompileError` W005 for an operand that is no number, name or expression. An operation that was
registered (`wscc.register_op`) is called as `nn.call("name", x)`.
"""

from __future__ import annotations

from wscc.api.expressions import Expression, Operand, called

call = called


def embedding(ids: Operand, table: Operand) -> Expression:
    """Rows of `table` `[v, d]` by `ids` `[*]` of i32: `[*, d]`."""
    return called("embedding", ids, table)


def layernorm(
    x: Operand, gain: Operand | None = None, bias: Operand | None = None, *, eps: float | None = None
) -> Expression:
    """`x` `[*, d]` normalised over `d`, with `gain` and `bias` `[d]` (ones and zeros); `eps` is 1e-5 if not given."""
    return called("layernorm", x, *_given(gain, bias), **_options(eps=eps))


def rmsnorm(x: Operand, gain: Operand | None = None, *, eps: float | None = None) -> Expression:
    """`x` `[*, d]` over its root mean square, with `gain` `[d]` (ones), or `[h, d]` over both dimensions; `eps` is 1e-5
    if not given."""
    return called("rmsnorm", x, *_given(gain), **_options(eps=eps))


def split(x: Operand) -> Expression:
    """`x` `[b, s, n, *]` taken apart along an inner dimension into the n tensors that `parts` names."""
    return called("split", x)


def mean(x: Operand) -> Expression:
    """The mean of `x` `[b, s, *]` over its positions: `[b, *]`."""
    return called("mean", x)


def first(x: Operand) -> Expression:
    """What `x` `[b, s, *]` has at its first position: `[b, *]`."""
    return called("first", x)


def concat(x: Operand, y: Operand) -> Expression:
    """Positions of `y` behind those of `x`, each `[b, s, *]`, or `[s, *]` for all of the batch: `[b, s + s', *]`."""
    return called("concat", x, y)


def project(x: Operand, weight: Operand) -> Expression:
    """Product over the trailing dimensions of `x` that lead those of `weight`: `[b, s, k]`, `[k, *]` -> `[b, s, *]`."""
    return called("project", x, weight)


def attention(
    q: Operand, k: Operand, v: Operand, *, causal: bool = False, window: int | None = None, cap: float | None = None,
    alibi: bool = False,
) -> Expression:  # fmt: skip
    """Softmax attention scaled by 1 / sqrt(e): `q` `[b, s, h, e]` (or `[b, s, h, g, e]`), `k`, `v` `[b, s, h, e]`;
    the result has the shape of `q`. `window`: a position sees so many, itself the last; `cap`: scores s are
    cap tanh(s / cap); `alibi`: each head adds a slope of its own times the distance. The first and last are causal."""
    flags = [name for name, on in (("causal", causal), ("alibi", alibi)) if on]
    return called("attention", q, k, v, *flags, **_options(window=window, cap=cap))


def soft_cap(x: Operand, *, cap: float) -> Expression:
    """cap tanh(x / cap) of `x` `[*]`, element by element: `[*]`."""
    return called("soft_cap", x, cap=cap)


def gelu(x: Operand) -> Expression:
    """GELU of `x` `[*]` by its tanh approximation, element by element: `[*]`."""
    return called("gelu", x)


def gelu_erf(x: Operand) -> Expression:
    """GELU of `x` `[*]` by the error function, element by element: `[*]`."""
    return called("gelu_erf", x)


def relu(x: Operand) -> Expression:
    """max(x, 0) of `x` `[*]`, element by element: `[*]`."""
    return called("relu", x)


def sigmoid(x: Operand) -> Expression:
    """1 / (1 + exp(-x)) of `x` `[*]`, element by element: `[*]`."""
    return called("sigmoid", x)


def weigh(x: Operand, w: Operand) -> Expression:
    """`x` `[b, s, *]` times a number for each position, `w` `[b, s]`: `[b, s, *]`."""
    return called("weigh", x, w)


def swiglu(gate: Operand, up: Operand) -> Expression:
    """gate sigmoid(gate) up, element by element; `gate` and `up` `[*]` of one shape: `[*]`."""
    return called("swiglu", gate, up)


def dropout(x: Operand, *, rate: float) -> Expression:
    """`x` `[batch, *]` with elements set to 0 with probability `rate`, others over 1 - `rate`; not in validation."""
    return called("dropout", x, rate=rate)


def rope(
    x: Operand, *, theta: float | None = None, width: int | None = None, factor: float | None = None,
    low: float | None = None, high: float | None = None, original: float | None = None, interleaved: bool = False,
) -> Expression:  # fmt: skip
    """Rotary positions of `x` `[b, s, *, e]`, half-split as in Llama; `theta` is 10000 if not given.

    `width`: only the first so many elements of a head are turned. `factor`: frequencies are divided by it; if
    `original` is given, only those that turn less than `low` (1) times in so many positions, and between `low` and
    `high` (4) in part, as in Llama 3.1. `interleaved`: neighbours are turned, as in GPT-J, not halves.
    """
    scaling = _options(factor=factor, low=low, high=high, original=original)
    flags = ["interleaved"] if interleaved else []
    return called("rope", x, *flags, **_options(theta=theta, width=width), **scaling)


def transpose(x: Operand) -> Expression:
    """A matrix `[n, k]` as `[k, n]`, to the right of `@` only."""
    return called("transpose", x)


def cross_entropy(
    logits: Operand, labels: Operand, weights: Operand | None = None, *, smoothing: float | None = None,
    z_loss: float | None = None,
) -> Expression:  # fmt: skip
    """Mean loss of `logits` `[*, v]` over the valid `labels` `[*]` (-100 is ignored): a scalar. `weights` `[*]` are
    factors of the loss of each label; `smoothing` is the share of each label that is spread over all v; `z_loss` the
    factor of the squared logarithm of the sum of exponentials, which is added."""
    more = () if weights is None else (weights,)
    return called("cross_entropy", logits, labels, *more, **_options(smoothing=smoothing, z_loss=z_loss))


def _options(**options: float | None) -> dict[str, Operand]:
    return {name: value for name, value in options.items() if value is not None}


def _given(*operands: Operand | None) -> tuple[Operand, ...]:
    return tuple(x for x in operands if x is not None)
