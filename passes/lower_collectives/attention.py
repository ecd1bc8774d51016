"""Lowering of attention: scores, masked softmax and weighted values, for each pair of runs of queries and keys.

Pairs that a causal mask hides altogether are not computed, once the results that they would have been added to exist.
Scores are made tile by tile where all at once are too large for the fast memory (T. Dao et al., "FlashAttention", 2022,
tiles keys as well, and so needs no whole rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from wscc.analysis.flops import takes_first_pass
from wscc.analysis.index_ranges import Run, visible
from wscc.ir.fabric import KernelAttr
from wscc.ir.op import Op, Value
from wscc.ir.per_die import Ints, flipped, plus, times_each
from wscc.ir.rule import Rule
from wscc.ir.types import DType
from wscc.ir.views import View, arranged, sliced
from wscc.passes.lower_collectives.gemm import gemm
from wscc.passes.lower_collectives.op_instance import Masked, OpInstance
from wscc.passes.lower_collectives.tiles import Scratch, Tile, tiles


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of an attention op by role: queries [b, q, h.., e], keys [b, k, .., e], scores [b, h.., q, k], and
    statistics of their rows [b, h.., q]."""

    q: tuple[str, ...]
    k: tuple[str, ...]
    scores: tuple[str, ...]
    stats: tuple[str, ...]

    @classmethod
    def of(cls, rule: Rule) -> _Terms:
        """The terms of the rule of an attention op."""
        q, k = rule.ins[0], rule.ins[1]
        heads = q[2:-1]
        return cls(q, k, (q[0], *heads, q[1], k[1]), (q[0], *heads, q[1]))


@dataclass(frozen=True, slots=True)
class _Pair:
    """One run of queries and one of keys. `heads`: the global coordinates of the first head of keys, and of the first
    query head of its group."""

    queries: Run
    keys: Run
    heads: tuple[Ints, Ints] = (0, 0)

    @classmethod
    def of(cls, s: OpInstance, t: _Terms, queries: Run, keys: Run) -> _Pair:
        """The pair of an instance, whose heads are one run."""
        starts = [s.start(f) for f in t.q[2:-1]] if dict(s.op.attrs).get("alibi") else []
        h, g, *_ = (*starts, 0, 0)
        return cls(queries, keys, (h, g))

    @property
    def starts(self) -> dict[str, KernelAttr]:
        """The attributes that tell a masking kernel its coordinates."""
        return {"q_start": self.queries.start, "k_start": self.keys.start}

    def at(self, tile: Tile, t: _Terms) -> _Pair:
        """The pair without the queries and heads of the run before those of a tile."""
        queries = replace(self.queries, start=plus(self.queries.start, tile.start(t.q[1])))
        first = [tile.start(f) for f in t.q[2:-1]]
        h, g = (plus(x, n) for x, n in zip(self.heads, [*first, 0][:2], strict=True))
        return replace(self, queries=queries, heads=(h, g))


def _run_view(view: View, run: Run) -> View:
    """The view at a run of dimension 1, where attention has its positions."""
    return view if view.shape[1] == run.size else sliced(view, 1, run.local, run.size)


def _visible_where(s: OpInstance, pair: _Pair) -> Ints:
    """A mask of the dies of the instance on which some query of the pair sees some key."""
    if not s.op.attr("causal"):
        return s.where
    window = int(dict(s.op.attrs).get("window", 0))
    return times_each(s.where, visible(pair.queries, pair.keys, s.build.mesh.count, window))


_TileLowering = Callable[[OpInstance, _Terms, _Pair, Scratch], None]


def attention(s: OpInstance) -> None:
    """Append attention, run by run; further runs or chunks of keys are merged by maximum and sum of exponentials."""
    _pair_by_pair(s, _attend_tile)


def _pair_by_pair(s: OpInstance, lower: _TileLowering) -> None:
    """Append what an op gives for each row, run by run; further runs or chunks of keys accumulate."""
    t = _Terms.of(s.rule)
    for queries in s.runs(t.q[1]):
        for n, keys in enumerate(s.runs(t.k[1])):
            pair = _Pair.of(s, t, queries, keys)
            accumulate = s.accumulate[0] or n > 0
            where = _visible_where(s, pair) if accumulate else s.where
            if where != 0:
                all_accumulate = (accumulate,) * len(s.writes)
                reads, writes = _reads_of(s, pair), tuple(_run_view(v, queries) for v in s.writes)
                instance = replace(s, reads=reads, writes=writes, accumulate=all_accumulate, where=where)
                _tile_by_tile(instance, t, pair, lower)


def _reads_of(s: OpInstance, pair: _Pair) -> tuple[View, ...]:
    """The operands at a pair: queries, keys, values, and what there is for each row."""
    q, k, v, *rows = s.reads
    keys = _run_view(k, pair.keys), _run_view(v, pair.keys)
    return (_run_view(q, pair.queries), *keys, *(_run_view(x, pair.queries) for x in rows))


def _tile_by_tile(s: OpInstance, t: _Terms, pair: _Pair, lower: _TileLowering) -> None:
    masked = Masked(s)
    scratch = Scratch(s.build)
    for tile in _tiles(s, t):
        lower(tile.of(s), t, pair.at(tile, t), scratch)
    masked.close()


def _tiles(s: OpInstance, t: _Terms) -> Iterator[Tile]:
    row = s.reads[1].shape[1] * _score_dtype(s).size
    return tiles(dict(zip(t.q, s.reads[0].shape, strict=True)), t.q, row, s.build.fast_bytes)


def _score_dtype(s: OpInstance) -> DType:
    """The element type of scores and their statistics."""
    return DType.F64 if s.reads[0].dtype is DType.F64 else DType.F32


def _attend_tile(s: OpInstance, t: _Terms, pair: _Pair, scratch: Scratch) -> None:
    scores = _biased(s, t, pair, _capped(s, _scores(s, t, scratch), scratch))
    out, *stats = (
        scratch.like(w, f"{r.name}.part") if s.accumulate[0] else w
        for w, r in zip(s.writes, s.op.results, strict=True)
    )
    attrs = _mask(s.op, pair)
    s.build.kernel("softmax", [scores, *_heads_first(stats, s.rule.outs[1:], t)], [scores], attrs)
    gemm(s.build, scores, t.scores, s.reads[2], t.k, out, t.q)
    if s.accumulate[0]:
        s.build.kernel("merge", s.writes, [*s.writes, out, *stats])


def attention_bwd(s: OpInstance) -> None:
    """Append the gradients of attention, with probabilities P recomputed from maximum and sum of each row.

    dS = P (dP - rowsum(P dP)) scale.
    """
    s = _with_row_sums(s)
    t = _Terms.of(s.rule)
    queries_started: set[int] = set()
    for keys in s.runs(t.k[1]):
        keys_started = False
        # The latest queries come first: they see most keys, and a visible pair starts the sums.
        for queries in reversed(s.runs(t.q[1])):
            pair = _Pair.of(s, t, queries, keys)
            accumulate_q = s.accumulate[0] or queries.local in queries_started
            accumulate_k = s.accumulate[1] or keys_started
            where = _visible_where(s, pair) if accumulate_q else s.where
            if where == 0 and accumulate_k:
                continue
            pair_instance = replace(
                s,
                reads=_reads_of(s, pair),
                writes=(
                    _run_view(s.writes[0], queries),
                    _run_view(s.writes[1], keys),
                    _run_view(s.writes[2], keys),
                ),
                accumulate=(accumulate_q, accumulate_k, accumulate_k),
                where=where,
            )
            if where != s.where and not accumulate_k:
                _clear(s, pair_instance, where)
            if where != 0:
                _attend_bwd(pair_instance, t, pair)
            queries_started.add(queries.local)
            keys_started = True


def _clear(s: OpInstance, pair_instance: OpInstance, where: Ints) -> None:
    """Set the gradients of keys and values to zero on dies where no query sees any of the keys."""
    hidden = times_each(s.where, flipped(where))
    for view in pair_instance.writes[1:]:
        s.build.kernel("fill", [view], [], {"value": 0.0}, hidden)


def _attend_bwd(s: OpInstance, t: _Terms, pair: _Pair) -> None:
    masked = Masked(s)
    scratch = Scratch(s.build)
    for tile in _tiles(s, t):
        adds = any(tile.start(f) > 0 for f in t.q if f not in t.k)
        accumulate = s.accumulate[0], s.accumulate[1] or adds, s.accumulate[2] or adds
        tile_instance = replace(tile.of(s), accumulate=accumulate)
        _attend_bwd_tile(tile_instance, t, pair.at(tile, t), scratch)
    masked.close()


def _attend_bwd_tile(s: OpInstance, t: _Terms, pair: _Pair, scratch: Scratch) -> None:
    q, k, _, _, _, _, do, *_ = s.reads
    dq, dk, dv = s.writes
    products = _scores(s, t, scratch)
    probs = _probs(s, t, pair, products, scratch)
    gemm(s.build, probs, t.scores, do, t.q, dv, t.k, accumulate=s.accumulate[2])
    grad = _grad_of_probs(s, t, probs, scratch)
    delta = _delta(s, t, probs, grad, scratch)
    s.build.kernel("softmax_bwd", [grad], [probs, grad, delta], {"scale": _scale(s.op)})
    if cap := _cap(s.op):
        s.build.kernel("soft_cap_bwd", [grad], [products, grad], {"cap": cap})
    gemm(s.build, grad, t.scores, k, t.k, dq, t.q, accumulate=s.accumulate[0])
    gemm(s.build, grad, t.scores, q, t.q, dk, t.k, accumulate=s.accumulate[1])


def _probs(s: OpInstance, t: _Terms, pair: _Pair, products: View, scratch: Scratch) -> View:
    """Probabilities P of a tile, [b, h.., q, k], recomputed from its scaled products; in their place if no cap needs
    them again."""
    probs = _capped(s, products, scratch)
    _biased(s, t, pair, probs)
    attrs = _mask(s.op, pair)
    s.build.kernel("probs", [probs], [probs, *_heads_first(s.reads[4:6], s.rule.ins[4:6], t)], attrs)
    return probs


def _grad_of_probs(s: OpInstance, t: _Terms, probs: View, scratch: Scratch) -> View:
    """The gradient dP of the probabilities of a tile."""
    grad = scratch.like(probs, f"{s.op.results[0].name}.dscores")
    gemm(s.build, s.reads[6], t.q, s.reads[2], t.k, grad, t.scores)
    return grad


# ------------------------------------------------------------------------------------- sums of P dP of each row


def _delta(s: OpInstance, t: _Terms, probs: View, grad: View, scratch: Scratch) -> View:
    """The sum of P dP over all keys of each row, [b, h.., q].

    It equals rowsum(dO O), whose rounding is another: where one key has all the weight, dP less its own P dP is 0, and
    less rowsum(dO O) a rounding of dP, which large keys make larger than the gradient. So rows sum P dP where all keys
    are at hand, or in a pass of its own; in bf16, whose roundings are larger, only where one chunk has all weight.
    """
    terms, sums = s.rule.ins[4:5], s.reads[7:]
    if sums and takes_first_pass(s.op):
        return _heads_first(sums, terms, t)[0]
    (rows,) = _heads_first([scratch.like(s.reads[4], f"{s.op.results[0].name}.delta")], terms, t)
    if sums:
        s.build.kernel("rowmean", [rows], [probs, grad, *_heads_first(sums, terms, t)])
    else:
        s.build.kernel("rowdot", [rows], [probs, grad])
    return rows


@dataclass(frozen=True, slots=True)
class RowSums:
    """A gradient of attention whose keys come in chunks: `first` gives the sums of P dP of all rows, `then` takes them,
    too. `passes` says whether `first` passes over the keys itself; else it takes rowsum(dO O)."""

    first: Op
    then: Op
    passes: bool


def with_row_sums(op: Op) -> RowSums | None:
    """A gradient of attention with the sums of its rows as an operand; None for one that has them, and other ops."""
    if op.kind != "attention_bwd" or _has_row_sums(op):
        return None
    maximum, term = op.operands[4], op.rule.ins[4]
    sums = Value(f"{op.results[0].name}.rowsums", maximum.type)
    first = replace(op, results=(sums,), rule=replace(op.rule, outs=(term,)))
    then = replace(op, operands=(*op.operands, sums), rule=replace(op.rule, ins=(*op.rule.ins, term)))
    return RowSums(first, then, takes_first_pass(op))


def _has_row_sums(op: Op) -> bool:
    return len(op.operands) == 8


def _with_row_sums(s: OpInstance) -> OpInstance:
    """The gradient of attention as it is, or with its row sums where it has several runs of keys at hand."""
    ops = with_row_sums(s.op)
    if ops is None or len(s.runs(s.rule.ins[1][1])) == 1:
        return s
    sums = s.build.buffer(ops.first.results[0].name, s.reads[4].shape, s.reads[4].dtype)
    attention_row_sums(replace(s, op=ops.first, writes=(sums,), accumulate=(False,)))
    return replace(s, op=ops.then, reads=(*s.reads, sums))


def attention_row_sums(s: OpInstance) -> None:
    """Append the sums of P dP of each row, [b, q, h..], over the keys at hand, or rowsum(dO O) where that will do.

    Roundings of dP cancel only against the same ones: its products are those of the gradient, chunk by chunk and tile
    by tile.
    """
    if takes_first_pass(s.op):
        _pair_by_pair(s, _sum_rows_of_tile)
    else:
        s.kernel("rowdot", s.writes, [s.reads[6], s.reads[3]])


def _sum_rows_of_tile(s: OpInstance, t: _Terms, pair: _Pair, scratch: Scratch) -> None:
    (sums,) = s.writes
    probs = _probs(s, t, pair, _scores(s, t, scratch), scratch)
    grad = _grad_of_probs(s, t, probs, scratch)
    part = scratch.like(sums, f"{s.op.results[0].name}.part") if s.accumulate[0] else sums
    s.build.kernel("rowdot", _heads_first([part], s.rule.outs, t), [probs, grad])
    if s.accumulate[0]:
        s.build.kernel("add", [sums], [sums, part])


def _scores(s: OpInstance, t: _Terms, scratch: Scratch) -> View:
    sizes = dict(zip(t.q, s.reads[0].shape, strict=True)) | {t.k[1]: s.reads[1].shape[1]}
    out = scratch.buffer(f"{s.op.results[0].name}.scores", tuple(sizes[f] for f in t.scores), _score_dtype(s))
    gemm(s.build, s.reads[0], t.q, s.reads[1], t.k, out, t.scores, scale=_scale(s.op))
    return out


def _cap(op: Op) -> float:
    return float(dict(op.attrs).get("cap", 0.0))


def _capped(s: OpInstance, products: View, scratch: Scratch) -> View:
    """Scores that are capped, in a place of their own; the products themselves where nothing is."""
    if not (cap := _cap(s.op)):
        return products
    out = scratch.like(products, f"{s.op.results[0].name}.capped")
    s.build.kernel("soft_cap", [out], [products], {"cap": cap})
    return out


def _biased(s: OpInstance, t: _Terms, pair: _Pair, scores: View) -> View:
    """The scores, to which each head has added its slope times the distance (ALiBi)."""
    if heads := int(dict(s.op.attrs).get("alibi", 0)):
        group = s.op.sizes[t.q[3]] if len(t.q) == 5 else 1
        starts: dict[str, KernelAttr] = {"h_start": pair.heads[0], "g_start": pair.heads[1], **pair.starts}
        s.build.kernel("alibi", [scores], [scores], {"heads": heads, "group": group, **starts})
    return scores


def _mask(op: Op, pair: _Pair) -> dict[str, KernelAttr]:
    """The attributes of a kernel that hides keys: from queries before them, and those from `limit` on from all."""
    given = dict(op.attrs)
    hidden: dict[str, KernelAttr] = {name: given[name] for name in ("limit", "window") if name in given}
    return {"causal": given["causal"], **pair.starts, **hidden}


def _scale(op: Op) -> float:
    scale = op.attr("scale")
    assert isinstance(scale, float)
    return scale


def _heads_first(stats: Sequence[View], terms: Sequence[tuple[str, ...]], t: _Terms) -> list[View]:
    """Views of statistics [b, q, h..] as [b, h.., q], like rows of the scores."""
    return [arranged(v, [term.index(f) for f in t.stats]) for v, term in zip(stats, terms, strict=True)]


def rope(s: OpInstance) -> None:
    """Append the rotation of each run of positions by the angles of its coordinates."""
    options = s.attrs()
    first = {name: options.pop(name) for name in s.op.definition.attrs}
    for run in s.runs(s.rule.ins[0][1]):
        attrs = {**first, "start": run.start, **options}
        s.kernel("rope", [_run_view(s.writes[0], run)], [_run_view(s.reads[0], run)], **attrs)
