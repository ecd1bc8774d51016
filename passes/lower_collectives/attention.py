"""Attention as instructions: scores, masked softmax, weighted values; run by run where a sequence lies in several.

What a causal mask hides altogether is not computed, once what it would have been added to exists. Scores are made
tile by tile where all at once are too large for the fast memory (T. Dao et al., "FlashAttention", 2022, keeps them
there as well, but needs no whole rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wscc.analysis.index_ranges import Run, visible
from wscc.ir.fabric import KernelAttr
from wscc.ir.per_die import Ints, flipped, plus, times_each
from wscc.ir.rule import Rule
from wscc.ir.types import DType
from wscc.ir.views import View, arranged, sliced
from wscc.passes.lower_collectives.gemm import gemm
from wscc.passes.lower_collectives.site import Masked, Site
from wscc.passes.lower_collectives.tiles import Scratch, Tile, tiles


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of one attention op, by role; scores are [b, h.., q, k]."""

    q: tuple[str, ...]
    k: tuple[str, ...]
    scores: tuple[str, ...]
    stats: tuple[str, ...]

    @classmethod
    def of(cls, rule: Rule) -> _Terms:
        q, k = rule.ins[0], rule.ins[1]
        heads = q[2:-1]
        return cls(q, k, (q[0], *heads, q[1], k[1]), (q[0], *heads, q[1]))


@dataclass(frozen=True, slots=True)
class _Pair:
    """One run of queries against one of keys."""

    queries: Run
    keys: Run

    @property
    def starts(self) -> dict[str, KernelAttr]:
        return {"q_start": self.queries.start, "k_start": self.keys.start}

    def at(self, start: int) -> _Pair:
        """The pair from a later query of the run on."""
        return replace(self, queries=replace(self.queries, start=plus(self.queries.start, start)))


def _cut(view: View, run: Run) -> View:
    """The view at a run of dimension 1, where attention has its positions."""
    return view if view.shape[1] == run.size else sliced(view, 1, run.local, run.size)


def _seen(s: Site, pair: _Pair) -> Ints:
    """Dies of the site on which the mask does not hide the pair altogether."""
    if not s.op.attr("causal"):
        return s.where
    return times_each(s.where, visible(pair.queries, pair.keys, s.build.mesh.count))


def attention(s: Site) -> None:
    """A further run or chunk of keys is merged by its log-sum-exp."""
    t = _Terms.of(s.rule)
    for queries in s.runs(t.q[1]):
        for n, keys in enumerate(s.runs(t.k[1])):
            pair = _Pair(queries, keys)
            more = s.more[0] or n > 0
            where = _seen(s, pair) if more else s.where
            if where != 0:
                reads = (_cut(s.reads[0], queries), *(_cut(v, keys) for v in s.reads[1:3]))
                writes = tuple(_cut(v, queries) for v in s.writes)
                _attend(replace(s, reads=reads, writes=writes, more=(more, more), where=where), t, pair)


def _attend(s: Site, t: _Terms, pair: _Pair) -> None:
    masked = Masked(s)
    made = Scratch(s.build)
    for tile in _tiles(s, t):
        _attend_tile(tile.of(s), t, pair.at(tile.start(t.q[1])), made)
    masked.close()


def _tiles(s: Site, t: _Terms) -> Iterator[Tile]:
    row = s.reads[1].shape[1] * _statistics(s).size
    return tiles(dict(zip(t.q, s.reads[0].shape, strict=True)), t.q, row, s.build.fast_bytes)


def _statistics(s: Site) -> DType:
    """The element type of scores."""
    return DType.F64 if s.reads[0].dtype is DType.F64 else DType.F32


def _attend_tile(s: Site, t: _Terms, pair: _Pair, made: Scratch) -> None:
    scores = _scores(s, t, made)
    out, lse = (
        made.like(w, f"{r.name}.part") if s.more[0] else w
        for w, r in zip(s.writes, s.op.results, strict=True)
    )
    attrs: dict[str, KernelAttr] = {"causal": s.op.attr("causal"), **pair.starts}
    s.build.kernel("softmax", [scores, _heads_first(lse, s.rule.outs[1], t)], [scores], attrs)
    gemm(s.build, scores, t.scores, s.reads[2], t.k, out, t.q)
    if s.more[0]:
        o, total = s.writes
        s.build.kernel("merge", [o, total], [o, total, out, lse])


def attention_bwd(s: Site) -> None:
    """Probabilities again from the log-sum-exp; dS = P (dP - rowsum(dO O)) scale."""
    t = _Terms.of(s.rule)
    started_q: set[int] = set()
    for keys in s.runs(t.k[1]):
        started_k = False
        # The latest queries first: they see most, and what is seen starts the sums.
        for queries in reversed(s.runs(t.q[1])):
            pair = _Pair(queries, keys)
            adds_q = s.more[0] or queries.local in started_q
            adds_k = s.more[1] or started_k
            where = _seen(s, pair) if adds_q else s.where
            if where == 0 and adds_k:
                continue
            site = replace(
                s,
                reads=(
                    _cut(s.reads[0], queries), _cut(s.reads[1], keys), _cut(s.reads[2], keys),
                    *(_cut(v, queries) for v in s.reads[3:]),
                ),
                writes=(_cut(s.writes[0], queries), _cut(s.writes[1], keys), _cut(s.writes[2], keys)),
                more=(adds_q, adds_k, adds_k),
                where=where,
            )  # fmt: skip
            if where != s.where and not adds_k:
                _clear(s, site, where)
            if where != 0:
                _attend_bwd(site, t, pair)
            started_q.add(queries.local)
            started_k = True


def _clear(s: Site, site: Site, where: Ints) -> None:
    """Where nothing of the keys is seen, their gradients are zero."""
    hidden = times_each(s.where, flipped(where))
    for view in site.writes[1:]:
        s.build.kernel("fill", [view], [], {"value": 0.0}, hidden)


def _attend_bwd(s: Site, t: _Terms, pair: _Pair) -> None:
    masked = Masked(s)
    made = Scratch(s.build)
    for tile in _tiles(s, t):
        adds = any(tile.start(f) > 0 for f in t.q if f not in t.k)
        site = replace(tile.of(s), more=(s.more[0], s.more[1] or adds, s.more[2] or adds))
        _attend_bwd_tile(site, t, pair.at(tile.start(t.q[1])), made)
    masked.close()


def _attend_bwd_tile(s: Site, t: _Terms, pair: _Pair, made: Scratch) -> None:
    q, k, v, out, lse, do = s.reads
    dq, dk, dv = s.writes
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    probs = _scores(s, t, made)
    attrs: dict[str, KernelAttr] = {"causal": s.op.attr("causal"), **pair.starts}
    s.build.kernel("probs", [probs], [probs, _heads_first(lse, s.rule.ins[4], t)], attrs)
    gemm(s.build, probs, t.scores, do, t.q, dv, t.k, accumulate=s.more[2])
    grad = made.like(probs, f"{s.op.results[0].name}.dscores")
    gemm(s.build, do, t.q, v, t.k, grad, t.scores)
    delta = made.like(lse, f"{s.op.results[0].name}.delta")
    s.build.kernel("rowdot", [delta], [do, out])
    s.build.kernel(
        "softmax_bwd", [grad], [probs, grad, _heads_first(delta, s.rule.ins[4], t)], {"scale": scale}
    )
    gemm(s.build, grad, t.scores, k, t.k, dq, t.q, accumulate=s.more[0])
    gemm(s.build, grad, t.scores, q, t.q, dk, t.k, accumulate=s.more[1])


def _scores(s: Site, t: _Terms, made: Scratch) -> View:
    sizes = dict(zip(t.q, s.reads[0].shape, strict=True)) | {t.k[1]: s.reads[1].shape[1]}
    out = made.buffer(f"{s.op.results[0].name}.scores", tuple(sizes[f] for f in t.scores), _statistics(s))
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    gemm(s.build, s.reads[0], t.q, s.reads[1], t.k, out, t.scores, scale=scale)
    return out


def _heads_first(view: View, term: tuple[str, ...], t: _Terms) -> View:
    """Statistics `b q h..` read as `b h.. q`, like rows of the scores."""
    return arranged(view, [term.index(f) for f in t.stats])


def rope(s: Site) -> None:
    """Each run of positions turned by its own angles."""
    for run in s.runs(s.rule.ins[0][1]):
        s.kernel("rope", [_cut(s.writes[0], run)], [_cut(s.reads[0], run)], **s.attrs(), start=run.start)
