"""Lowering of attention: scores, masked softmax and weighted values, for each pair of runs of queries and keys.

Pairs that a causal mask hides altogether are not computed, once the results that they would have been added to exist.
Scores are made tile by tile where all at once are too large for the fast memory (T. Dao et al., "FlashAttention", 2022,
tiles keys as well, and so needs no whole rows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wscc.analysis.index_ranges import Run, visible
from wscc.ir.fabric import KernelAttr
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
    """One run of queries and one of keys."""

    queries: Run
    keys: Run

    @property
    def starts(self) -> dict[str, KernelAttr]:
        """The attributes that tell a masking kernel its coordinates."""
        return {"q_start": self.queries.start, "k_start": self.keys.start}

    def from_query(self, start: int) -> _Pair:
        """The pair without the first `start` queries of the run."""
        return replace(self, queries=replace(self.queries, start=plus(self.queries.start, start)))


def _run_view(view: View, run: Run) -> View:
    """The view at a run of dimension 1, where attention has its positions."""
    return view if view.shape[1] == run.size else sliced(view, 1, run.local, run.size)


def _visible_where(s: OpInstance, pair: _Pair) -> Ints:
    """A mask of the dies of the instance on which some query of the pair sees some key."""
    if not s.op.attr("causal"):
        return s.where
    return times_each(s.where, visible(pair.queries, pair.keys, s.build.mesh.count))


def attention(s: OpInstance) -> None:
    """Append attention, run by run; further runs or chunks of keys are merged by maximum and sum of exponentials."""
    t = _Terms.of(s.rule)
    for queries in s.runs(t.q[1]):
        for n, keys in enumerate(s.runs(t.k[1])):
            pair = _Pair(queries, keys)
            accumulate = s.accumulate[0] or n > 0
            where = _visible_where(s, pair) if accumulate else s.where
            if where != 0:
                reads = (_run_view(s.reads[0], queries), *(_run_view(v, keys) for v in s.reads[1:3]))
                writes = tuple(_run_view(v, queries) for v in s.writes)
                both = accumulate, accumulate
                instance = replace(s, reads=reads, writes=writes, accumulate=both, where=where)
                _attend(instance, t, pair)


def _attend(s: OpInstance, t: _Terms, pair: _Pair) -> None:
    masked = Masked(s)
    scratch = Scratch(s.build)
    for tile in _tiles(s, t):
        _attend_tile(tile.of(s), t, pair.from_query(tile.start(t.q[1])), scratch)
    masked.close()


def _tiles(s: OpInstance, t: _Terms) -> Iterator[Tile]:
    row = s.reads[1].shape[1] * _score_dtype(s).size
    return tiles(dict(zip(t.q, s.reads[0].shape, strict=True)), t.q, row, s.build.fast_bytes)


def _score_dtype(s: OpInstance) -> DType:
    """The element type of scores and their statistics."""
    return DType.F64 if s.reads[0].dtype is DType.F64 else DType.F32


def _attend_tile(s: OpInstance, t: _Terms, pair: _Pair, scratch: Scratch) -> None:
    scores = _scores(s, t, scratch)
    out, *stats = (
        scratch.like(w, f"{r.name}.part") if s.accumulate[0] else w
        for w, r in zip(s.writes, s.op.results, strict=True)
    )
    attrs: dict[str, KernelAttr] = {"causal": s.op.attr("causal"), **pair.starts}
    s.build.kernel("softmax", [scores, *_heads_first(stats, s.rule.outs[1:], t)], [scores], attrs)
    gemm(s.build, scores, t.scores, s.reads[2], t.k, out, t.q)
    if s.accumulate[0]:
        s.build.kernel("merge", s.writes, [*s.writes, out, *stats])


def attention_bwd(s: OpInstance) -> None:
    """Append the gradients of attention, with probabilities P recomputed from maximum and sum of each row.

    dS = P (dP - rowsum(P dP)) scale.
    """
    t = _Terms.of(s.rule)
    queries_started: set[int] = set()
    for keys in s.runs(t.k[1]):
        keys_started = False
        # The latest queries come first: they see most keys, and a visible pair starts the sums.
        for queries in reversed(s.runs(t.q[1])):
            pair = _Pair(queries, keys)
            accumulate_q = s.accumulate[0] or queries.local in queries_started
            accumulate_k = s.accumulate[1] or keys_started
            where = _visible_where(s, pair) if accumulate_q else s.where
            if where == 0 and accumulate_k:
                continue
            pair_instance = replace(
                s,
                reads=(
                    _run_view(s.reads[0], queries), _run_view(s.reads[1], keys), _run_view(s.reads[2], keys),
                    *(_run_view(v, queries) for v in s.reads[3:]),
                ),
                writes=(_run_view(s.writes[0], queries), _run_view(s.writes[1], keys), _run_view(s.writes[2], keys)),
                accumulate=(accumulate_q, accumulate_k, accumulate_k),
                where=where,
            )  # fmt: skip
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
        _attend_bwd_tile(tile_instance, t, pair.from_query(tile.start(t.q[1])), scratch)
    masked.close()


def _attend_bwd_tile(s: OpInstance, t: _Terms, pair: _Pair, scratch: Scratch) -> None:
    q, k, v, _, *stats, do = s.reads
    dq, dk, dv = s.writes
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    probs = _scores(s, t, scratch)
    attrs: dict[str, KernelAttr] = {"causal": s.op.attr("causal"), **pair.starts}
    s.build.kernel("probs", [probs], [probs, *_heads_first(stats, s.rule.ins[4:6], t)], attrs)
    gemm(s.build, probs, t.scores, do, t.q, dv, t.k, accumulate=s.accumulate[2])
    grad = scratch.like(probs, f"{s.op.results[0].name}.dscores")
    gemm(s.build, do, t.q, v, t.k, grad, t.scores)
    delta = _delta(s, t, probs, grad, scratch)
    s.build.kernel("softmax_bwd", [grad], [probs, grad, delta], {"scale": scale})
    gemm(s.build, grad, t.scores, k, t.k, dq, t.q, accumulate=s.accumulate[0])
    gemm(s.build, grad, t.scores, q, t.q, dk, t.k, accumulate=s.accumulate[1])


def _delta(s: OpInstance, t: _Terms, probs: View, grad: View, scratch: Scratch) -> View:
    """The sum of P dP over all keys of each row, [b, h.., q].

    It equals rowsum(dO O), whose rounding is another: where one key has all the weight, dP less its own P dP is 0, and
    less rowsum(dO O) a rounding of dP, which large keys make larger than the gradient. So rows take their own sum if
    they have all keys at hand, or all keys that count.
    """
    *_, out, _, _, do = s.reads
    delta = scratch.like(s.reads[4], f"{s.op.results[0].name}.delta")
    (rows,) = _heads_first([delta], s.rule.ins[4:5], t)
    if s.op.stream is None and len(s.runs(t.k[1])) == 1:
        s.build.kernel("rowdot", [rows], [probs, grad])
        return rows
    s.build.kernel("rowdot", [delta], [do, out])
    s.build.kernel("rowmean", [rows], [probs, grad, rows])
    return rows


def _scores(s: OpInstance, t: _Terms, scratch: Scratch) -> View:
    sizes = dict(zip(t.q, s.reads[0].shape, strict=True)) | {t.k[1]: s.reads[1].shape[1]}
    out = scratch.buffer(f"{s.op.results[0].name}.scores", tuple(sizes[f] for f in t.scores), _score_dtype(s))
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    gemm(s.build, s.reads[0], t.q, s.reads[1], t.k, out, t.scores, scale=scale)
    return out


def _heads_first(stats: Sequence[View], terms: Sequence[tuple[str, ...]], t: _Terms) -> list[View]:
    """Views of statistics [b, q, h..] as [b, h.., q], like rows of the scores."""
    return [arranged(v, [term.index(f) for f in t.stats]) for v, term in zip(stats, terms, strict=True)]


def rope(s: OpInstance) -> None:
    """Append the rotation of each run of positions by the angles of its coordinates."""
    for run in s.runs(s.rule.ins[0][1]):
        s.kernel(
            "rope", [_run_view(s.writes[0], run)], [_run_view(s.reads[0], run)], **s.attrs(), start=run.start
        )
