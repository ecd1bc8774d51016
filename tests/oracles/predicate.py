"""Which random programs must be accepted, and which refused with which codes: shares no code with the compiler.

A program fits where each axis divides what it splits, where the wafer has enough dies that reach each other and
walks of neighbours for streaming groups, and where memory is ample. Every rule is exact but that of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tests.fuzz.draw import Coordinate, Draw

# Axes by what they split: the dimensions of the tokens in turn, or one dimension of each multiplied weight.
SEEDS = {"dp": ("rows",), "sp": ("seq",), "tatp": ("rows", "seq")}
SPLIT_WEIGHTS = ("tp",)
SHARDED = ("tatp",)  # weights at rest are also cut along these
WALKS = ("tatp",)  # groups of these are walks of neighbours
BYTES = {"f64": 8, "f32": 4, "bf16": 4, "all bf16": 2}


@dataclass(frozen=True, slots=True)
class Expected:
    """`codes` of which a refusal must be; empty: the program must be accepted. `is_open`: it may also fit."""

    codes: frozenset[str] = frozenset()
    is_open: bool = False

    def allows(self, what: str) -> bool:
        """Whether `equal` or the code of a refusal may be the outcome."""
        if what == "equal":
            return self.is_open or not self.codes
        return what in self.codes


def expected(draw: Draw) -> Expected:
    """A program with several faults may be refused for any of them."""
    exact = frozenset(
        (*_shapes(draw), *_batch(draw), *_stages(draw), *_tokens(draw), *_weights(draw), *_wafer(draw))
    )
    least, most = _memory(draw)
    memory = frozenset({"W401"} if draw.sram < most else ())
    return Expected(exact | memory, is_open=not exact and draw.sram >= least)


def _shapes(draw: Draw) -> Iterator[str]:
    """Rotary positions turn pairs of numbers."""
    if draw.e % 2 and any(line.of.uses_rope for part in draw.parts for line in part.lines):
        yield "W101"


def _batch(draw: Draw) -> Iterator[str]:
    if draw.batch % (dict(draw.degrees).get("dp", 1) * draw.micro):
        yield "W201"


def _stages(draw: Draw) -> Iterator[str]:
    """Every chunk of every stage has a layer; interleaved chunks take micro-batches in groups of a stage each."""
    stages, each = dict(draw.degrees).get("pp", 1), max(draw.interleave, 1)
    if stages * each > max(sum(p.layers for p in draw.parts), 1):
        yield "W201"
    if each > 1 and (stages == 1 or draw.calls % stages):
        yield "W201"


def _tokens(draw: Draw) -> Iterator[str]:
    """Axes take what is left of the sequences of a call, or of the positions of a sequence."""
    degrees = dict(draw.degrees)
    left = {"rows": degrees.get("dp", 1) * draw.micro, "seq": draw.seq}
    for axis, dims in SEEDS.items():
        n = degrees.get(axis, 1)
        fits = [d for d in dims if left[d] % n == 0]
        if not fits:
            yield "W201"
            return
        left[fits[0]] //= n


def _weights(draw: Draw) -> Iterator[str]:
    degrees = dict(draw.degrees)
    for _, shape, is_multiplied, _ in draw.params():
        if not is_multiplied:
            continue
        splits = [degrees[a] for a in SPLIT_WEIGHTS if degrees.get(a, 1) > 1]
        if not _can_split(shape, splits):
            yield "W201"
        elif not _can_split(shape, splits + [degrees[a] for a in _sharding(draw) if degrees.get(a, 1) > 1]):
            yield "W202"


def _sharding(draw: Draw) -> tuple[str, ...]:
    return (*SHARDED, "dp") if draw.zero == 3 else SHARDED


def _can_split(shape: tuple[int, ...], degrees: list[int]) -> bool:
    """Whether every degree can have a dimension, several sharing one if their product divides it."""
    if not degrees:
        return True
    return any(
        shape[i] % degrees[0] == 0
        and _can_split((*shape[:i], shape[i] // degrees[0], *shape[i + 1 :]), degrees[1:])
        for i in range(len(shape))
    )


# ---- the wafer


def _wafer(draw: Draw) -> Iterator[str]:
    live = {(r, c) for r in range(draw.rows) for c in range(draw.cols)} - draw.dead_dies
    if draw.dies > len(live):
        yield "W301"
        return
    islands = [part for part in _islands(live, draw.dead_links) if len(part) >= draw.dies]
    if not islands:
        yield "W302"
        return
    walk = prod(n for a, n in draw.degrees if a in WALKS)
    if walk > 1 and not any(_packs(part, draw.dead_links, walk, draw.dies // walk) for part in islands):
        yield "W303"


def _beside(at: Coordinate, dead: frozenset[tuple[Coordinate, Coordinate]]) -> Iterator[Coordinate]:
    r, c = at
    for to in ((r, c + 1), (r + 1, c), (r, c - 1), (r - 1, c)):
        if (at, to) not in dead and (to, at) not in dead:
            yield to


def _islands(
    live: set[Coordinate], dead: frozenset[tuple[Coordinate, Coordinate]]
) -> Iterator[frozenset[Coordinate]]:
    left = set(live)
    while left:
        found, new = set[Coordinate](), {min(left)}
        while new:
            found |= new
            new = {to for at in new for to in _beside(at, dead) if to in live} - found
        left -= found
        yield frozenset(found)


@lru_cache(maxsize=512)
def _packs(
    dies: frozenset[Coordinate], dead: frozenset[tuple[Coordinate, Coordinate]], length: int, count: int
) -> bool:
    """Whether `count` walks of `length` neighbouring dies fit side by side: by trying all."""
    walks = sorted(_walks(dies, dead, length), key=sorted)
    seen: set[tuple[frozenset[Coordinate], int]] = set()

    def fit(free: frozenset[Coordinate], wanted: int) -> bool:
        if wanted == 0:
            return True
        if len(free) < wanted * length or (free, wanted) in seen:
            return False
        seen.add((free, wanted))
        first = min(free)
        # The lowest free die is in one of the walks, or in none.
        return any(first in w and w <= free and fit(free - w, wanted - 1) for w in walks) or fit(
            free - {first}, wanted
        )

    return fit(dies, count)


def _walks(
    dies: frozenset[Coordinate], dead: frozenset[tuple[Coordinate, Coordinate]], length: int
) -> set[frozenset[Coordinate]]:
    """All sets of dies that some walk visits."""
    ends = {(frozenset([at]), at) for at in dies}
    for _ in range(length - 1):
        ends = {(s | {to}, to) for s, at in ends for to in _beside(at, dead) if to in dies and to not in s}
    return {s for s, _ in ends}


# ---- memory


def _memory(draw: Draw) -> tuple[int, int]:
    """Bytes of a die that no program of the draw goes below, and that none of it exceeds.

    At least: a share of weights, gradients and the optimizer's state. At most: all of them on one die and eight
    times over for copies on the move, and for each layer thirty values as wide as the widest.
    """
    degrees, unit = dict(draw.degrees), BYTES[draw.dtype]
    weights = unit * sum(prod(shape) * copies for _, shape, _, copies in draw.params())
    kept = 4 if draw.optimizer.startswith("adamw") else 2
    shares = prod(n for a, n in degrees.items() if a in (*SPLIT_WEIGHTS, *SHARDED, "pp"))
    if draw.zero:
        shares *= degrees.get("dp", 1)
    tokens = degrees.get("dp", 1) * draw.micro * draw.seq
    widest = max(3 * draw.d, draw.f, draw.vocab, 3 * draw.kv * draw.group * max(draw.e, draw.seq))
    in_flight = degrees.get("pp", 1) * max(draw.interleave, 1)
    layers = 2 + sum(max(p.layers, 1) * len(p.lines) for p in draw.parts)
    return (
        kept * weights // shares,
        8 * kept * weights + 8 * tokens * widest * 30 * layers * in_flight + 100_000,
    )
