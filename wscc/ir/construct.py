"""Constructors of layers as ops with index rules, one for each function of the language.

Leading dimensions are batch, sequence, and more. Every constructor appends to a `Builder`, returns its results and
may raise `ShapeMismatch`; the front end adds the span and the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.builder import Builder, ShapeMismatch, WrongOption
from wscc.ir.op import Attr, Value
from wscc.ir.types import DType

_NAMES = "bstuw"


def leading(rank: int) -> list[str]:
    """Factor names for leading dimensions: b, s, then spares."""
    return list(_NAMES[:rank]) if rank <= len(_NAMES) else [f"i{n}" for n in range(rank)]


def rank_of(value: Value) -> int:
    """Number of dimensions."""
    return len(value.type.shape)


def elementwise(
    b: Builder, kind: str, *xs: Value, attrs: Mapping[str, Attr] | None = None, rows: bool = False, hint: str = "",
    span: Span = NO_SPAN,
) -> Value:  # fmt: skip
    """An op on operands of one shape, `*, * -> *`, or on whole rows of them, `* d!, * d! -> * d!`."""
    names = leading(rank_of(xs[0]))
    if rows and not names:
        raise ShapeMismatch(f"`{kind}` works on rows, and a scalar has none")
    term = " ".join([*names[:-1], f"{names[-1]}!"] if rows else names)
    rule = f"{', '.join([term] * len(xs))} -> {term}"
    return b.one(kind, xs, rule, attrs=dict(attrs or {}), hints=[hint or kind], span=span)


def number(b: Builder, value: float, dtype: DType, *, span: Span = NO_SPAN) -> Value:
    """A scalar."""
    return b.one("fill", [], " -> ", dtypes=[dtype], attrs={"value": value}, hints=["number"], span=span)


def binary(b: Builder, kind: str, x: Value, y: Value, *, hint: str = "", span: Span = NO_SPAN) -> Value:
    """`add`, `sub`, `mul` or `div`; the smaller operand repeats along the leading dimensions that it lacks."""
    big, small = (x, y) if rank_of(x) >= rank_of(y) else (y, x)
    names = leading(rank_of(big))
    skip = rank_of(big) - rank_of(small)
    if big.type.shape[skip:] != small.type.shape:
        raise ShapeMismatch(
            f"`{kind}` of {list(x.type.shape)} and {list(y.type.shape)}: "
            "one must end with the dimensions of the other"
        )
    terms = [" ".join(names if v is big else names[skip:]) for v in (x, y)]
    return b.one(
        kind, [x, y], f"{terms[0]}, {terms[1]} -> {' '.join(names)}", hints=[hint or kind], span=span
    )


def scale(b: Builder, x: Value, factor: float, *, span: Span = NO_SPAN) -> Value:
    """`x * factor`, of the shape of `x`."""
    term = " ".join(leading(rank_of(x)))
    return b.one("scale", [x], f"{term} -> {term}", attrs={"factor": factor}, span=span)


def cast(b: Builder, x: Value, dtype: DType, *, span: Span = NO_SPAN) -> Value:
    """`x` in another element type; `x` itself if it has that already."""
    if x.type.dtype is dtype:
        return x
    term = " ".join(leading(rank_of(x)))
    return b.one("cast", [x], f"{term} -> {term}", dtypes=[dtype], hints=[f"{x.name}.{dtype}"], span=span)


def project(b: Builder, x: Value, w: Value, *, hint: str = "project", span: Span = NO_SPAN) -> Value:
    """A contraction of the longest run of trailing dimensions of `x`, behind batch and sequence, with which `w`
    begins: `b s k, k c h e -> b s c h e`, `b s h e, h e n -> b s n`. By a vector, one number for each position."""
    xs, ws = x.type.shape, w.type.shape
    if (
        len(ws) == 1 and xs[-1:] == ws and len(xs) > 1
    ):  # no matrix: a product of one column is no work to split
        names = leading(len(xs))
        rule = f"{' '.join(names)} -> {' '.join(names[:-1])}"
        return b.one("sum", [binary(b, "mul", x, w, span=span)], rule, hints=[hint], span=span)
    depth = next(
        (n for n in range(min(max(len(xs) - 2, 1), len(ws)), 0, -1) if xs[len(xs) - n :] == ws[:n]), 0
    )
    if depth == 0:
        raise ShapeMismatch(f"`project`: {list(xs)} does not end as {list(ws)} begins")
    rows = leading(len(xs) - depth)
    inner = ["k"] if depth == 1 else [f"k{n}" for n in range(depth)]
    outer = _output_names(len(ws) - depth)
    rule = f"{' '.join(rows + inner)}, {' '.join(inner + outer)} -> {' '.join(rows + outer)}"
    return b.one("matmul", [x, w], rule, hints=[hint], span=span)


def matmul(
    b: Builder, x: Value, w: Value, *, transposed: bool = False, hint: str = "matmul", span: Span = NO_SPAN
) -> Value:
    """`x @ w`, or `x @ transpose(w)`: the transpose is a view and folds into the rule."""
    if rank_of(w) != 2:
        raise ShapeMismatch(f"`@` needs a matrix on its right, not {list(w.type.shape)}")
    rows = " ".join(leading(rank_of(x) - 1))
    return b.one(
        "matmul", [x, w], f"{rows} k, {'n k' if transposed else 'k n'} -> {rows} n", hints=[hint], span=span
    )


def split(
    b: Builder, x: Value, parts: int, *, hints: Sequence[str] = (), span: Span = NO_SPAN
) -> tuple[Value, ...]:
    """The `parts` parts of `x` along an inner dimension of that size, the first such: `b s c! h e -> b s h e, ...`."""
    shape = x.type.shape
    dim = next((d for d in range(1, len(shape) - 1) if shape[d] == parts), None)
    if dim is None:
        raise ShapeMismatch(f"`split` into {parts}: no inner dimension of {list(shape)} is {parts}")
    rows = leading(dim)
    rest = [f"h{n}" for n in range(len(shape) - dim - 1)]
    out = " ".join(rows + rest)
    rule = f"{' '.join([*rows, 'c!', *rest])} -> {', '.join([out] * parts)}"
    return b.emit(
        "split", [x], rule, dtypes=[x.type.dtype] * parts, attrs={"dim": dim}, hints=hints, span=span
    )


def mean(b: Builder, x: Value, *, span: Span = NO_SPAN) -> Value:
    """The mean over the positions, dimension 1: `b s d -> b d`."""
    if rank_of(x) < 2:
        raise ShapeMismatch(f"`mean` is over dimension 1, the positions, and {list(x.type.shape)} has none")
    term = leading(rank_of(x))
    rest = " ".join([term[0], *term[2:]])
    total = b.one("sum", [x], f"{' '.join(term)} -> {rest}", hints=["mean.sum"], span=span)
    return scale(b, total, 1 / x.type.shape[1], span=span)


def concat(b: Builder, *parts: Value, span: Span = NO_SPAN) -> Value:
    """Positions of one part behind those of another, in dimension 1: `t! d, b s! d -> b u! d`. A part without the
    batch is the same for each of its sequences."""
    rank = max(map(rank_of, parts))
    if rank < 3 or any(rank_of(x) < rank - 1 for x in parts) or all(rank_of(x) < rank for x in parts):
        shapes = " and ".join(str(list(x.type.shape)) for x in parts)
        raise ShapeMismatch(f"`concat` joins [batch, s, d], or [s, d] for all of the batch, not {shapes}")
    rest = [f"d{n}" for n in range(rank - 2)]
    batch = [[] if rank_of(x) < rank else ["b"] for x in parts]
    terms = [" ".join([*lead, f"s{n}!", *rest]) for n, lead in enumerate(batch)]
    size = sum(x.type.shape[len(lead)] for x, lead in zip(parts, batch, strict=True))
    rule = f"{', '.join(terms)} -> {' '.join(['b', 'u!', *rest])}"
    return b.one("concat", parts, rule, sizes={"u": size}, attrs={"dim": 1}, hints=["concat"], span=span)


def first(b: Builder, x: Value, *, span: Span = NO_SPAN) -> Value:
    """What stands at the first position, index 0 of dimension 1: `b s d -> b d`."""
    if rank_of(x) < 2:
        raise ShapeMismatch(f"`first` is of dimension 1, the positions, and {list(x.type.shape)} has none")
    rest = [f"d{n}" for n in range(rank_of(x) - 2)]
    term, part = (" ".join(["b", f"{s}!", *rest]) for s in "ut")
    cut = b.one(
        "cut", [x], f"{term} -> {part}", sizes={"t": 1}, attrs={"dim": 1}, hints=["first.cut"], span=span
    )
    return b.one("sum", [cut], f"{part} -> {' '.join(['b', *rest])}", hints=["first"], span=span)


def embedding(b: Builder, ids: Value, table: Value, *, span: Span = NO_SPAN) -> Value:
    """Rows of `table` [v, d] by number: `b s, v@ d -> b s d`."""
    rows = " ".join(leading(rank_of(ids)))
    return b.one("embedding", [ids, table], f"{rows}, v@ d -> {rows} d", hints=["embedding"], span=span)


def weigh(b: Builder, x: Value, w: Value, *, span: Span = NO_SPAN) -> Value:
    """`x` [b, s, *] times a number for each position, `w` [b, s]: `b s d, b s -> b s d`."""
    lead = rank_of(w)
    if x.type.shape[:lead] != w.type.shape:
        raise ShapeMismatch(f"`weigh`: {list(x.type.shape)} does not begin as {list(w.type.shape)}")
    names = leading(rank_of(x))
    return b.one(
        "mul",
        [x, w],
        f"{' '.join(names)}, {' '.join(names[:lead])} -> {' '.join(names)}",
        hints=["weigh"],
        span=span,
    )


def norm(b: Builder, kind: str, x: Value, *params: Value, eps: float = 1e-5, span: Span = NO_SPAN) -> Value:
    """`layernorm(x, gain, bias)` or `rmsnorm(x, gain)` over the last dimension; over all of the gain's dimensions, the
    last ones of x, if it has several. Gains that are left out are ones, and biases zeros."""
    inner = rank_of(params[0]) if params else 1
    if kind == "rmsnorm" and 1 < inner <= rank_of(x) - 2 and x.type.shape[-inner:] == params[0].type.shape:
        return _norm_of_several(b, x, params[0], eps=eps, span=span)
    for value in (1.0, 0.0)[len(params) : 2 if kind == "layernorm" else 1]:
        sizes, dtypes = {"d": x.type.shape[-1]}, [x.type.dtype]
        left_out = b.one(
            "fill", [], " -> d", sizes=sizes, dtypes=dtypes, attrs={"value": value}, hints=[kind], span=span
        )
        params = (*params, left_out)
    rows = " ".join(leading(rank_of(x) - 1))
    rule = f"{rows} d!{', d' * len(params)} -> {rows} d"
    return b.one(kind, [x, *params], rule, attrs={"eps": eps}, hints=[kind], span=span)


def _norm_of_several(b: Builder, x: Value, gain: Value, *, eps: float, span: Span) -> Value:
    """`rmsnorm` over the dimensions of the gain, as sums that axes may split: one number crosses for each row."""
    inner = rank_of(gain)
    names = leading(rank_of(x))
    whole, rows = " ".join(names), " ".join(names[:-inner])
    wide = cast(b, x, DType.F64 if x.type.dtype is DType.F64 else DType.F32, span=span)
    squares = binary(b, "mul", wide, wide, span=span)
    squares = b.one("sum", [squares], f"{whole} -> {rows}", hints=["squares"], span=span)
    mean_square = scale(b, squares, 1 / prod(gain.type.shape), span=span)
    root = b.one("rsqrt", [mean_square], f"{rows} -> {rows}", attrs={"eps": eps}, hints=["rsqrt"], span=span)
    return binary(
        b, "mul", cast(b, weigh(b, wide, root, span=span), x.type.dtype, span=span), gain, span=span
    )


# Options of `rope` that scale frequencies, with the values that leave them alone (the bands are those of Llama 3.1).
_ROPE_SCALING: Final = {"factor": 1.0, "low": 1.0, "high": 4.0, "original": 0.0}
# No sequence is longer.
_LONGEST: Final = 2**31 - 1


def rope(
    b: Builder,
    x: Value,
    *,
    theta: float = 10000.0,
    width: float | None = None,
    interleaved: bool = False,
    span: Span = NO_SPAN,
    **scaling: float,
) -> Value:
    """Rotary position embedding of `b s heads.. e`, by the positions of dimension 1 (Su et al., arXiv 2104.09864).

    `width`: how many elements of a head are turned, the first; all if it is not given. `factor`: frequencies are
    divided by it; with `original`, only those that turn less than `low` times in so many positions, those that turn
    more than `high` times not at all, and those between in part (Llama 3.1, `rope_type` `llama3` of `transformers`).
    `interleaved`: neighbours are turned, (2i, 2i + 1), as the paper and GPT-J have it, not halves, (i, i + e/2).
    """
    if rank_of(x) < 3:
        raise ShapeMismatch(f"`rope` needs [batch, seq, ..., e], not {list(x.type.shape)}")
    if x.type.shape[-1] % 2:
        raise ShapeMismatch(f"`rope` turns the last dimension in pairs, and {x.type.shape[-1]} is odd")
    attrs: dict[str, Attr] = {"theta": theta, "sign": 1.0}
    if width is not None or scaling or interleaved:
        attrs |= _rope_options(x.type.shape[-1], width, {**_ROPE_SCALING, **scaling}, interleaved)
    heads = [f"h{n}" for n in range(rank_of(x) - 3)]
    term = " ".join(["b", "s@", *heads, "e!"])
    return b.one("rope", [x], f"{term} -> {term}", attrs=attrs, hints=["rope"], span=span)


def _rope_options(
    size: int, width: float | None, scaling: Mapping[str, float], interleaved: bool
) -> dict[str, Attr]:
    """The optional attributes of a `rope` of heads of `size`, none if they are neutral."""
    turned = size if width is None else width
    if turned != int(turned) or not 0 < turned <= size or turned % 2:
        raise WrongOption(
            f"`rope` turns pairs: its `width` is an even number up to the {size} elements of a head, not {turned:g}",
            "width", min(max(turned // 2 * 2, 2), size),
        )  # fmt: skip
    if scaling["factor"] <= 0 or scaling["original"] < 0 or not 0 <= scaling["low"] < scaling["high"]:
        raise ShapeMismatch(
            "`rope` needs a `factor` above 0 and 0 <= `low` < `high`, and no negative `original`"
        )
    neutral = turned == size and scaling["factor"] == 1 and not interleaved
    return {} if neutral else {"width": int(turned), **scaling, "interleaved": int(interleaved)}


def dropout(b: Builder, x: Value, keys: Value, *, rate: float, salt: int, span: Span = NO_SPAN) -> Value:
    """Elements of `x` [b, s, *] are 0 with probability `rate`, and the others divided by what is left of 1 (Srivastava
    et al. 2014): by the key [b] of their sequence, the number `salt` of the op and their place in the sequence."""
    if rank_of(x) < 2 or x.type.shape[:1] != keys.type.shape:
        raise ShapeMismatch(f"`dropout` takes [batch, ...], not {list(x.type.shape)}")
    if not 0 <= rate <= 1 - 2**-20:
        raise WrongOption(f"`dropout` needs 0 <= `rate` < 1, not {rate:g}", "rate", 0.1)
    term = " ".join(f"{f}@" * (i > 0) or f for i, f in enumerate(leading(rank_of(x))))
    attrs: dict[str, Attr] = {"rate": rate, "salt": salt}
    return b.one(
        "dropout",
        [x, keys],
        f"{term}, {term.split()[0]} -> {term}",
        attrs=attrs,
        hints=["dropout"],
        span=span,
    )


def soft_cap(b: Builder, x: Value, *, cap: float, span: Span = NO_SPAN) -> Value:
    """`x` as cap tanh(x / cap), element by element."""
    if cap <= 0:
        raise WrongOption(f"`soft_cap` needs a `cap` above 0, not {cap:g}", "cap", -cap or 30)
    return elementwise(b, "soft_cap", x, attrs={"cap": cap}, span=span)


def attention(
    b: Builder, q: Value, k: Value, v: Value, *, causal: bool = False, window: float = 0, cap: float = 0.0,
    alibi: bool = False, span: Span = NO_SPAN,
) -> Value:  # fmt: skip
    """Softmax attention, scaled by 1 / sqrt(e). `q` is `b q h e`, or `b q h g e` where each of the h heads of
    `k` and `v` (`b k h e`) serves g query heads.

    `window`: a position sees so many positions, itself and those before it (Beltagy et al., arXiv 2004.05150; 0: all).
    `cap`: scores s are cap tanh(s / cap) (Gemma 2, arXiv 2408.00118; 0: as they are). `alibi`: each head adds the
    distance to a key times a slope of its own (Press et al., arXiv 2108.12409). The first and the last need `causal`.
    """
    group = " g" if rank_of(q) == 5 else ""
    if rank_of(q) not in (4, 5) or rank_of(k) != 4 or rank_of(v) != 4:
        raise ShapeMismatch(
            "`attention` takes q [b, s, heads, e] (or [b, s, kv, group, e]), k and v [b, s, kv, e]"
        )
    if not (0 <= window <= _LONGEST and window == int(window)):
        near = min(max(round(window), 1), _LONGEST)
        raise WrongOption(
            f"`window` of `attention` is a whole number up to {_LONGEST} (0: all positions), not {window:g}",
            "window", near,
        )  # fmt: skip
    if cap < 0:
        raise WrongOption(f"`attention` needs a `cap` of 0 (none) or more, not {cap:g}", "cap", -cap)
    if not causal and (window or alibi):
        raise ShapeMismatch(f"`{'window' if window else 'alibi'}` of `attention` needs `causal`")
    heads = f"h@{group}@" if alibi and group else "h@" if alibi else f"h{group}"
    head = f"b q@ {heads}"
    kv = "b k~@ h e!"
    rule = f"{head} e!, {kv}, {kv} -> {head} e!, {head}, {head}"
    stats = DType.F64 if q.type.dtype is DType.F64 else DType.F32
    attrs: dict[str, Attr] = {"causal": causal, "scale": float(q.type.shape[-1]) ** -0.5}
    if window or cap or alibi:
        count = prod(q.type.shape[2:-1]) if alibi else 0
        attrs |= {"limit": 0, "window": int(window), "cap": float(cap), "alibi": count}
    out, _, _ = b.emit(
        "attention",
        [q, k, v],
        rule,
        dtypes=[q.type.dtype, stats, stats],
        attrs=attrs,
        hints=["attention", "rowmax", "sumexp"],
        span=span,
    )
    return out


def cross_entropy(
    b: Builder, logits: Value, labels: Value, count: Value, *, weights: Value | None = None, limit: int = 0,
    smoothing: float = 0.0, z_loss: float = 0.0, span: Span = NO_SPAN,
) -> Value:  # fmt: skip
    """Mean over the `count` valid labels of the whole batch; label -100 is ignored. Statistics are never bf16.

    `smoothing`: that share of each label is spread over all classes (Szegedy et al., arXiv 1512.00567). `z_loss`: the
    factor of the squared logarithm of the sum of exponentials, which is added (Chowdhery et al., arXiv 2204.02311).
    `weights`: a factor for the loss of each label.
    """
    if not 0 <= smoothing < 1:
        raise WrongOption(f"`cross_entropy` needs 0 <= `smoothing` < 1, not {smoothing:g}", "smoothing", 0.1)
    if z_loss < 0:
        raise WrongOption(f"`cross_entropy` needs a `z_loss` of 0 or more, not {z_loss:g}", "z_loss", -z_loss)
    stats, rows = count.type.dtype, " ".join(leading(rank_of(labels)))
    columns = {"dtypes": [stats], "attrs": {"limit": limit}, "span": span}
    m = b.one("rowmax", [logits], f"{rows} v@ -> {rows}", **columns)
    z = b.one("sumexp", [logits, m], f"{rows} v@, {rows} -> {rows}", **columns)
    p = b.one("pick", [logits, labels], f"{rows} v@, {rows} -> {rows}", dtypes=[stats], span=span)
    if smoothing:
        total = b.one("rowsum", [logits], f"{rows} v@ -> {rows}", **columns)
        share = scale(b, total, smoothing / (limit or logits.type.shape[-1]), span=span)
        p = binary(b, "add", scale(b, p, 1 - smoothing, span=span), share, span=span)
    loss = b.one("nll", [m, z, p, labels], f"{rows}, {rows}, {rows}, {rows} -> {rows}", span=span)
    if z_loss:
        large = b.one(
            "zloss", [m, z, labels], f"{rows}, {rows}, {rows} -> {rows}", attrs={"factor": z_loss}, span=span
        )
        loss = binary(b, "add", loss, large, span=span)
    if weights is not None:
        loss = binary(b, "mul", loss, cast(b, weights, stats, span=span), span=span)
    return b.one("mean", [loss, count], f"{rows}, ->", hints=["loss"], span=span)


def _output_names(count: int) -> list[str]:
    return ["n"] if count == 1 else [f"n{i}" for i in range(count)]
