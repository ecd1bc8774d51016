"""Chains of ops that are computed block by block along a factor that they share, so that what lies between them never
is in memory as a whole: the hidden units of a feed-forward layer, the heads of attention.

Fusion of a chain of products over the index that joins them, as in FlashAttention (T. Dao et al., arXiv 2205.14135)
for keys, here for any index that the rules of the ops leave free.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Final

from wscc.analysis.memory.access_cost import cumulative_work
from wscc.analysis.memory.likely_ranges import lost_to_hbm
from wscc.disjoint_sets import DisjointSets
from wscc.ir.module import Mode, Procedure
from wscc.ir.op import GraphStmt, Op, Value
from wscc.machine.wafer import Die
from wscc.passes.lower_collectives.slices import SHARDS, even_spans, whole_tile
from wscc.passes.lower_collectives.stream_instance import Span

# Chains are looked at where more than this part of the time of the work is lost to HBM without them.
_LITTLE: Final = 0.2
# A dimension of a value, by name and number.
_Dim = tuple[str, int]


@dataclass(frozen=True)
class Chain:
    """Ops in order, each with the factor along which all are cut. `inside`: values that only they read, which are there
    by block. `sums`: the total that each result which lacks the factor is a part of, by name. `shards`: parts of the
    factor that streams take one by one; each block has the span of it of each."""

    members: tuple[tuple[Op, str], ...]
    inside: frozenset[str]
    sums: Mapping[str, Value]
    shards: int
    blocks: tuple[Span, ...]

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """What the chain gives to others."""
        own = [
            v for op, _ in self.members for v in op.results if v.name not in self.inside | self.sums.keys()
        ]
        return (*own, *dict.fromkeys(self.sums.values()))

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """What the chain takes from others."""
        made = {v.name for op, _ in self.members for v in op.results}
        return tuple(v for op, _ in self.members for v in op.operands if v.name not in made)


Item = GraphStmt | Chain


@dataclass(frozen=True, slots=True)
class Fast:
    """The fast memory: `bytes` that temporaries of an op may take, and the side of a `tile` of a product."""

    bytes: int
    tile: int


def chains_of(procedure: Procedure, sizes: dict[str, int], fast: Fast) -> list[tuple[Chain, ...]]:
    """Choices of chains in a procedure: those that also add up what lacks their factor, and those that do not.

    `sizes`: of the axes. Chains of a choice share no op. Choices that leave all statements where they are, or have them
    as an earlier one has, are left out.
    """
    classes = list(_classes(procedure).values())
    no_sums = [[(op, f) for op, f in ops if not _without(op, f)] for ops in classes]
    choices = [_disjoint(_worthwhile(procedure, ops, sizes, fast)) for ops in (classes, no_sums)]
    items = [list[Item](procedure.statements), *(with_chains(procedure, choice) for choice in choices)]
    return [choice for i, choice in enumerate(choices, 1) if items[i] not in items[:i]]


def _worthwhile(
    procedure: Procedure, classes: list[list[tuple[Op, str]]], sizes: dict[str, int], fast: Fast
) -> Iterator[Chain]:
    """The chains of some ops that keep values of more than a temporary's bytes from memory, those of most first."""
    found = []
    for ops in classes:
        chain = _chain(procedure, ops, sizes)
        kept = sum(
            _local_bytes(v, sizes) for op, _ in chain.members for v in op.results if v.name in chain.inside
        )
        if kept > fast.bytes:
            found.append((kept, replace(chain, blocks=_blocks(chain, kept, sizes, fast))))
    for _, chain in sorted(found, key=lambda each: -each[0]):
        if len(chain.blocks) > 1:
            yield chain


def _disjoint(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    """Those of the chains that share no op with an earlier one."""
    chosen: list[Chain] = []
    for chain in chains:
        if not any(op is other for op, _ in chain.members for c in chosen for other, _ in c.members):
            chosen.append(chain)
    return tuple(chosen)


def losing_least(choices: Sequence[Callable[[], Procedure]], die: Die, sizes: dict[str, int]) -> Procedure:
    """The choice that loses least to HBM, by estimate; the first one if it loses little beside its work. `sizes`: of
    the axes."""
    procedure = choices[0]()
    if len(choices) == 1:
        return procedure
    lost = lost_to_hbm(procedure, die, sizes)
    if lost <= _LITTLE * float(cumulative_work(procedure, die).seconds[-1]):
        return procedure
    others = [p for p in (choice() for choice in choices[1:]) if p != procedure]
    return min(
        ((lost, procedure), *((lost_to_hbm(p, die, sizes), p) for p in others)), key=lambda each: each[0]
    )[1]


def with_chains(procedure: Procedure, chains: Iterable[Chain]) -> list[Item]:
    """The statements of a procedure, those of chains together.

    A statement between the ops of a chain comes before it if the chain needs it, else after it.
    """
    items: list[Item] = list(procedure.statements)
    for chain in chains:
        items = _joined(items, chain)
    return items


def _blocks(chain: Chain, kept: int, sizes: dict[str, int], fast: Fast) -> tuple[Span, ...]:
    """The blocks: as few as keep what is inside, and shards that come in, small."""
    coming = [
        _local_bytes(op.operands[i], sizes)
        for op, f in chain.members
        if op.stream is not None and op.stream.factor == f
        for i in op.stream.moving_in
    ]
    needed = max(-(-kept // fast.bytes), *(-(-SHARDS * n // fast.bytes) for n in coming), 1)
    tile = max(
        (whole_tile(op, v.type.local_shape(sizes), term, f, fast.tile) if op.kind == "matmul" else 1)
        for op, f in chain.members
        for v, term in op.terms()
        if f in term
    )
    op, factor = chain.members[0]
    return tuple(even_spans(_local_size(op, factor, sizes) // chain.shards, needed, tile))


def _local_bytes(value: Value, sizes: dict[str, int]) -> int:
    return prod(value.type.local_shape(sizes)) * value.type.dtype.size


def _classes(procedure: Procedure) -> dict[_Dim, list[tuple[Op, str]]]:
    """The ops that have one and the same index, each with its factor, by a dimension that stands for the index.

    An op joins the dimensions that its rule gives one factor. Those that have the index twice are left out.
    """
    same = DisjointSets[_Dim]()
    factors: list[tuple[Op, str, _Dim]] = []
    for op in procedure.ops:
        first: dict[str, _Dim] = {}
        for value, term in op.terms():
            for dim, factor in enumerate(term):
                same.union((value.name, dim), first.setdefault(factor, (value.name, dim)))
        factors += [(op, f, d) for f, d in first.items()]
    classes: dict[_Dim, list[tuple[Op, str]]] = defaultdict(list)
    for op, factor, d in factors:
        classes[same[d]].append((op, factor))
    for d, ops in classes.items():
        times = Counter(id(op) for op, _ in ops)
        classes[d] = [(op, f) for op, f in ops if times[id(op)] == 1]
    return classes


def _chain(procedure: Procedure, ops: Sequence[tuple[Op, str]], sizes: dict[str, int]) -> Chain:
    """The chain of ops; empty if streams take unlike parts of their factor."""
    reads = Counter(v.name for s in procedure.statements for v in s.operands)
    reads.update(out.value.name for out in procedure.outputs)
    axes = _axes(ops)
    members = [(op, f) for op, f in ops if _may_be_cut(op, f, whole=not axes)]
    size = max((_local_size(op, f, sizes) for op, f in members), default=0)
    members = [(op, f) for op, f in members if _local_size(op, f, sizes) == size] if len(axes) < 2 else []
    moved = {v.name for op, _ in members for v in _moving(op)}
    members = [(op, f) for op, f in members if not moved & _results_read(op, members)]
    added = {o.value.name for o in procedure.outputs if o.mode is Mode.ADD}
    members = [(op, f) for op, f in members if all(_adds_up(op, v, added) for v in _without(op, f))]
    while True:
        used = Counter(v.name for op, _ in members for v in op.operands)
        fit = [(op, f) for op, f in members if not any(used[v.name] for v in _without(op, f))]
        if len(fit) == len(members):
            break
        members = fit
    made = {
        v.name for op, f in members for v, term in zip(op.results, op.rule.outs, strict=True) if f in term
    }
    inside = frozenset(n for n in made - moved if 0 < reads[n] == used[n])
    parts = {v.name: v for op, f in members for v in _without(op, f)}
    shards = prod(sizes[axis] for axis in _axes(members))
    return Chain(tuple(members), inside, _totals(procedure, parts, reads), shards, ())


def _axes(ops: Iterable[tuple[Op, str]]) -> set[str]:
    """The axes along which ops stream their factor."""
    return {op.stream.axis for op, f in ops if op.stream is not None and op.stream.factor == f}


def _may_be_cut(op: Op, factor: str, *, whole: bool) -> bool:
    """Whether an op on blocks of a factor gives blocks of its results, or parts of sums. `whole`: blocks are runs of
    indices, for no op streams the factor."""
    rule, stream = op.rule, op.stream
    # The parts of a stack lie in it.
    if op.definition.view or op.kind == "stack" or factor in rule.whole | rule.streamed | rule.indexed:
        return False
    if op.kind != "matmul" and not all(factor in t for t in rule.outs):
        return False
    if stream is None:
        return True
    if stream.moving_in and stream.moving_out:
        return False
    # What moves would move once for each block.
    moving = [*(rule.ins[i] for i in stream.moving_in), *(rule.outs[j] for j in stream.moving_out)]
    return all(factor in t for t in moving) and (stream.factor == factor or whole)


def _moving(op: Op) -> list[Value]:
    """The operands and results of an op that move."""
    if op.stream is None:
        return []
    return [*(op.operands[i] for i in op.stream.moving_in), *(op.results[j] for j in op.stream.moving_out)]


def _results_read(op: Op, members: Sequence[tuple[Op, str]]) -> set[str]:
    """The names of the operands of an op that members make."""
    return {v.name for v in op.operands} & {v.name for other, _ in members for v in other.results}


def _without(op: Op, factor: str) -> list[Value]:
    """The results of an op that lack a factor."""
    return [v for v, term in zip(op.results, op.rule.outs, strict=True) if factor not in term]


def _local_size(op: Op, factor: str, sizes: dict[str, int]) -> int:
    """The size of a factor of an op on a die, in what does not move."""
    parts = sizes[op.stream.axis] if op.stream is not None and op.stream.factor == factor else 1
    moving = _moving(op)
    return max(
        v.type.local_shape(sizes)[term.index(factor)] * (parts if v in moving else 1)
        for v, term in op.terms()
        if factor in term
    )


def _adds_up(op: Op, result: Value, added: set[str]) -> bool:
    """Whether a result may be a sum over blocks, which is rounded once, to the type of its factors: at the end, where
    it is not `added` to what is there."""
    dtype, factors = result.type.dtype, {x.type.dtype for x in op.operands}
    if dtype is dtype.accumulator:
        return {t.accumulator for t in factors} == {dtype}
    return factors == {dtype} and result.name not in added


def _totals(procedure: Procedure, parts: Mapping[str, Value], reads: Mapping[str, int]) -> dict[str, Value]:
    """The total of each part: what sums parts alone, each of which nothing else reads, or the part itself."""
    totals = dict(parts)
    for op in procedure.ops:
        names = [v.name for v in op.operands]
        if op.kind == "partial_sum" and all(n in parts and reads[n] == 1 for n in names):
            totals.update(dict.fromkeys(names, op.results[0]))
    return totals


def _joined(items: list[Item], chain: Chain) -> list[Item]:
    """The items with the members of a chain as one of them; unchanged if one between them needs one and is needed."""
    members = {id(op) for op, _ in chain.members}
    totals = {v.name for v in chain.sums.values()} - chain.sums.keys()
    at = [i for i, item in enumerate(items) if id(item) in members]
    if not at:
        return items
    between = [
        s
        for s in items[at[0] : at[-1] + 1]
        if id(s) not in members and not totals & {v.name for v in s.results}
    ]
    needed = {v.name for v in chain.operands}
    before: list[Item] = []
    for s in reversed(between):
        if needed & {v.name for v in s.results}:
            before.insert(0, s)
            needed |= {v.name for v in s.operands}
    made = {v.name for op, _ in chain.members for v in op.results} | totals
    if made & {v.name for s in before for v in s.operands}:
        return items
    after = [s for s in between if not any(s is b for b in before)]
    rest = [s for s in items[at[-1] + 1 :] if not totals & {v.name for v in s.results}]
    return [*items[: at[0]], *before, chain, *after, *rest]
