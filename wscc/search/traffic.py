"""The bytes that statements of a sharded procedure move through the port of the HBM, where SRAM does not hold all.

As `promote` and `plan_memory` do it after lowering, here by whole statements: locals, and copies of arguments in HBM,
compete for room, by the seconds that a place saves. A local without room lies in HBM, and every kernel that reads it
passes over it again: a turn of a stream over what has no part of the streamed factor, a slice over what it does not
cut, a gradient of attention over queries in each of its products. A copy is brought in once and written back once.
Slices of streams are those of `lower_collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wscc.analysis.cost import DieRates
from wscc.ir.module import Mode, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Value
from wscc.search.slicing import Slicing

# Of the SRAM, the part that locals and copies may fill: slots have the rest.
_FILLED: Final = 0.9
# The least part of the time of an access that counts, though work hides it.
_HIDDEN: Final = 0.25
# Uses of an argument get a copy each if the work between them is that of bytes that fill so much of the SRAM.
_APART: Final = 0.7
# Passes over what stays in a turn of a gradient of attention: its row sums, and the products with both sides.
_PRODUCTS: Final = 3
# Passes over the parts of a sum that come from others, where slots are in SRAM, and where they are not; and how much of
# the SRAM the sum then takes at most.
_ADDED: Final = 3
_ARRIVED: Final = 7
_BESIDE: Final = 2


@dataclass(frozen=True, slots=True)
class Access:
    """An access of statement `at` to `bytes` of a value, passed over so many times; `writes`: it is a result."""

    at: int
    bytes: float
    passes: float
    writes: bool

    @property
    def amount(self) -> float:
        """The bytes of all passes."""
        return self.bytes * self.passes


@dataclass(slots=True)
class Traffic:
    """Bytes of a statement through the port: `direct` by its kernels, `brought` by copies that it waits for, `taken` by
    copies of its results."""

    direct: float = 0.0
    brought: float = 0.0
    taken: float = 0.0


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in SRAM that a value may have from its first access to its last one, of so many `bytes`. `gain` is the
    seconds that it saves, `share` what of the value lies in HBM without it; bytes `brought` and `taken` are those of
    the copies that it then needs."""

    bytes: float
    accesses: tuple[Access, ...]
    gain: float
    comes: bool
    share: float = 1.0
    brought: float = 0.0
    taken: float = 0.0

    @property
    def span(self) -> slice:
        """The statements in which it is taken: what comes does so while the statement before is at work."""
        return slice(max(0, self.accesses[0].at - self.comes), self.accesses[-1].at + 1)


@dataclass(frozen=True, slots=True)
class Room:
    """What a procedure has: `bytes` of SRAM, and of each argument the share that lies in HBM, where there is any."""

    bytes: float
    far: Mapping[str, float]


def traffic(
    p: Procedure, work: Sequence[float], room: Room, die: DieRates[float], slicing: Slicing
) -> list[Traffic]:
    """The traffic of each statement of a procedure, whose work takes so many seconds each."""
    statements = p.statements
    found = [Traffic() for _ in statements]
    by_value = _accesses(p, slicing)
    exposed = _exposed(statements, by_value.values(), work, die)
    places = [*_places(p, by_value, work, room, die, exposed, slicing)]
    held_by = [slicing.of(s).bytes if isinstance(s, Op) else 0.0 for s in statements]
    free = [min(_FILLED * room.bytes, room.bytes - n) for n in held_by]
    held = _held(places, free)
    for place in places:
        if place in held:
            found[place.accesses[0].at].brought += place.brought
            found[place.accesses[-1].at].taken += place.taken
            continue
        for a in place.accesses:
            found[a.at].direct += a.amount * place.share
    return found


def _exposed(
    statements: Sequence[GraphStmt],
    accesses: Iterable[Sequence[Access]],
    work: Sequence[float],
    die: DieRates[float],
) -> list[float]:
    """Of each statement, the part of its time at the port that work does not hide, if all lies in HBM: its own, or for
    messages that of others."""
    amounts = [0.0] * len(work)
    for of in accesses:
        for a in of:
            amounts[a.at] += a.amount
    seconds = map(die.hbm, amounts)
    return [
        max(_HIDDEN, 1 - w / n) if n and isinstance(s, Op) else _HIDDEN
        for s, w, n in zip(statements, work, seconds, strict=True)
    ]


def _places(
    p: Procedure, by_value: Mapping[str, Sequence[Access]], work: Sequence[float], room: Room,
    die: DieRates[float], exposed: Sequence[float], slicing: Slicing,
) -> Iterator[_Place]:  # fmt: skip
    """The places that values may have: one for each local, and for each cluster of uses of an argument in HBM."""
    inputs, modes = {v.name for v in p.inputs}, {o.value.name: o.mode for o in p.outputs}

    def seconds(accesses: Sequence[Access]) -> float:
        return sum(exposed[a.at] * die.hbm(a.amount) for a in accesses)

    arguments = inputs | set(modes)
    copied = sum(of[0].bytes for name, of in by_value.items() if name in arguments and room.far.get(name))
    part = max(_HIDDEN, 1 - sum(work) / die.hbm(copied)) if die.has_hbm and copied else _HIDDEN
    for name, of in by_value.items():
        size = max(a.bytes for a in of)
        if name not in arguments:
            comes = isinstance(p.statements[of[0].at], Reshard)
            yield _Place(size, tuple(of), seconds(of), comes)
            continue
        share = room.far.get(name, 0.0)
        if not share:
            continue
        mode = modes.get(name)
        for cluster in _clusters(of, work, die.hbm(_APART * room.bytes)) if mode is None else [of]:
            brought, taken = (share * size * way for way in (mode is not Mode.WRITE, mode is not None))
            gain = share * seconds(cluster) - part * die.hbm(brought + taken)
            at = cluster[0].at
            # Parts come in turn where each is needed once; what is passed over again has to stay.
            once = at == cluster[-1].at and max(a.passes for a in cluster) <= (2 if mode is Mode.ADD else 1)
            needed = _part(p.statements[at], size, slicing) if once else size
            yield _Place(needed, tuple(cluster), gain, brought > 0, share, brought, taken)


def _part(s: GraphStmt, size: float, slicing: Slicing) -> float:
    """The bytes of a value that a statement needs at once, beside those that come: a stream takes it in slices, and an
    op that is no product in pieces."""
    if isinstance(s, Reshard) or (s.stream is None and s.definition.heavy):
        return size
    return min(size, slicing.temporaries, 2 * size / slicing.of(s).count)


def _clusters(of: Sequence[Access], work: Sequence[float], apart: float) -> list[Sequence[Access]]:
    """Runs of accesses with no more than so many seconds of work between one and the next."""
    edges = [i for i in range(1, len(of)) if sum(work[of[i - 1].at : of[i].at]) > apart]
    return [of[a:b] for a, b in zip([0, *edges], [*edges, len(of)], strict=True)]


_ORDERS: Final[tuple[Callable[[_Place], float], ...]] = (
    lambda x: -x.gain / max(1.0, x.bytes),
    lambda x: -x.gain,
    lambda x: -x.gain / (max(1.0, x.bytes) * (x.span.stop - x.span.start)),
)


def _held(places: Sequence[_Place], free: Sequence[float]) -> set[_Place]:
    """The places that find room, in the order of those by which most time is saved."""
    wanted = [x for x in places if x.gain > 0]
    return max(
        (_filled(sorted(wanted, key=order), free) for order in _ORDERS),
        key=lambda held: sum(x.gain for x in held),
    )


def _filled(places: Sequence[_Place], free: Sequence[float]) -> set[_Place]:
    left, held = list(free), set[_Place]()
    for x in places:
        if x.bytes <= min(left[x.span]):
            left[x.span] = [n - x.bytes for n in left[x.span]]
            held.add(x)
    return held


# ------------------------------------------------------------------------------------------------ accesses


def _accesses(p: Procedure, slicing: Slicing) -> dict[str, list[Access]]:
    """The accesses to each value in order; a view is part of what it is a view of, a part of a stack of the stack."""
    whole, added = _wholes(p), {o.value.name for o in p.outputs if o.mode is Mode.ADD}
    found: dict[str, list[Access]] = {}
    for at, s in enumerate(p.statements):
        if _is_free(s):
            continue
        for v, passes, writes in _passes(s, slicing):
            name, size = whole.get(v.name, v.name), slicing.local(v)
            if name in added:
                passes *= 2
            found.setdefault(name, []).append(Access(at, size, passes, writes))
    return found


def _is_free(s: GraphStmt) -> bool:
    return s.kind in ("slice", "stack") if isinstance(s, Reshard) else s.definition.view or s.kind == "stack"


def _wholes(p: Procedure) -> dict[str, str]:
    """Of values that are parts of others, those that they lie in."""
    inside: dict[str, str] = {}
    for s in p.statements:
        if isinstance(s, Op) and s.kind == "stack":
            inside |= {v.name: s.results[0].name for v in s.operands if v.name not in inside}
        elif _is_free(s):
            inside |= {v.name: s.operands[0].name for v in s.results}
    return {name: _root(name, inside) for name in inside}


def _root(name: str, inside: Mapping[str, str]) -> str:
    while name in inside:
        name = inside[name]
    return name


def _passes(s: GraphStmt, slicing: Slicing) -> Iterator[tuple[Value, float, bool]]:
    """The values that a statement accesses, with how often it passes over each, and whether it is a result."""
    if isinstance(s, Reshard):
        yield from _resharded(s, slicing)
        return
    table, results = s.definition.table, {v.name for v in s.results}
    for i, (v, term) in enumerate(s.terms()):
        if i != table:
            yield v, _times(s, i, term, slicing), v.name in results


def _resharded(s: Reshard, slicing: Slicing) -> Iterator[tuple[Value, float, bool]]:
    """What arrives is passed on to the next die. Of what is added up, a die reads its part to send it, and reads and
    writes it to add to it; where slots do not fit beside it, what arrives passes through the HBM as well."""
    n = slicing.module.sizes[s.axis]
    others = (n - 1) / n
    adding = _ADDED if slicing.local(s.operand) * _BESIDE <= slicing.module.die.sram else _ARRIVED
    yield s.operand, adding * others if s.kind == "reduce_scatter" else 1.0, False
    yield s.result, 1 + others * (n > 2) if s.kind == "all_gather" else 1.0, True


def _times(op: Op, i: int, term: tuple[str, ...], slicing: Slicing) -> float:
    """How often an op passes over its operand or result number `i` (results behind operands)."""
    stream, cut, n = op.stream, slicing.of(op), slicing.turns(op)
    products = _PRODUCTS if op.kind == "attention_bwd" else 1
    if stream is None:
        return float(products * (cut.count if cut.factor and cut.factor not in term else 1))
    j = i - len(op.operands)
    if i in stream.moving_in or j in stream.moving_out:
        return 1.0
    again = cut.count if cut.factor not in term else 1
    turns = 1 if stream.factor in term else n
    sums = 2 if j >= 0 and turns > 1 else 1
    return float(turns * again * (sums if j >= 0 else products))
