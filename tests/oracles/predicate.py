"""Prediction of the outcome of random programs: accepted, or refused with which codes. Shares no code with the
compiler.

A program fits if each axis divides what it splits, if the wafer has enough dies that reach each other and walks of
neighbours for streaming groups, and if memory is ample. Every rule is exact but that of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tests.fuzz.draw import Coordinate, Draw

# Axes by what they split: dimensions of the tokens in turn, or one dimension of each multiplied weight.
SEEDS = {"dp": ("rows",), "ep": ("rows",), "sp": ("seq",), "tatp": ("rows", "seq")}
SPLIT_WEIGHTS = ("tp",)
SHARDED = ("tatp",)  # stored weights are also split along these
EXPERTS = "ep"  # splits the first dimension of weights of experts
REPLICAS = ("dp", "ep", "sp")  # and along these if the program asks for it
# Dimensions that may have pads, and how much of them: in all, and for axes that split stored weights alone.
PADDED = ("f", "vocab", "heads", "kv")
PADS, STORED_PADS = 1 / 4, 1 / 64
# Of the narrowest of parameters and gradients.
BYTES = {
    "f64": 8, "f32": 4, "bf16": 4, "all bf16": 2, "coarse grads": 2, "coarse params": 2, "wide grads": 2,
}  # fmt: skip


# The neighbours of each die.
Wafer = frozenset[tuple[Coordinate, frozenset[Coordinate]]]


@dataclass(frozen=True, slots=True)
class Expected:
    """`codes`: those that a refusal may have; empty if the program must be accepted. `is_open`: it may also be
    accepted."""

    codes: frozenset[str] = frozenset()
    is_open: bool = False

    def allows(self, outcome: str) -> bool:
        """Whether an outcome, `equal` or the code of a refusal, is right."""
        if outcome == "equal":
            return self.is_open or not self.codes
        return outcome in self.codes


def expected(draw: Draw) -> Expected:
    """The outcomes that are right for a program; one with several faults may be refused for any of them."""
    exact = frozenset(
        (*_shapes(draw), *_batch(draw), *_stages(draw), *_tokens(draw), *_experts(draw), *_wafer(draw))
    )
    weights = frozenset(_weights(draw, _padded(draw)))
    # A width that a norm counts or an input has gets no pads, nor one that is the same through a shared parameter.
    unpadded = frozenset(_weights(draw, draw.sizes)) if _has_a_fixed_width(draw) else weights
    lower, upper = _memory(draw)
    memory = frozenset({"W401"} if draw.sram < upper else ())
    exact |= weights & unpadded
    return Expected(exact | weights | unpadded | memory, is_open=not exact and draw.sram >= lower)


def _has_a_fixed_width(draw: Draw) -> bool:
    return any(line.piece in ("normed_weight", "float_input") for part in draw.parts for line in part.lines)


def _padded(draw: Draw) -> dict[str, int]:
    """The sizes of the dimensions with pads, where a degree does not divide them."""
    degrees = dict(draw.degrees)
    due = [(degrees.get(a, 1), PADS) for a in SPLIT_WEIGHTS]
    due += [(degrees[a], STORED_PADS) for a, _ in draw.degrees if a in _sharding(draw)]
    sizes = draw.sizes
    for dim in PADDED:
        step = 1
        for degree, most in due:
            pads = -draw.sizes[dim] % (step * degree)
            if pads <= most * draw.sizes[dim]:
                sizes[dim], step = draw.sizes[dim] + pads, step * degree
    return sizes


def _shapes(draw: Draw) -> Iterator[str]:
    """Rotary positions rotate pairs of numbers, so heads have even sizes."""
    if draw.e % 2 and any(line.of.uses_rope for part in draw.parts for line in part.lines):
        yield "W101"


def _batch(draw: Draw) -> Iterator[str]:
    """Calls take equal numbers of sequences, which replicas share with few pads and none to spare."""
    dp = dict(draw.degrees).get("dp", 1)
    rows = draw.batch / _calls(draw)
    shares = -(-rows // dp)
    if rows % 1 or shares != draw.micro or shares * dp > rows * (1 + PADS):
        yield "W201"


def _calls(draw: Draw) -> int:
    return -(-draw.batch // (dict(draw.degrees).get("dp", 1) * draw.micro))


def _stages(draw: Draw) -> Iterator[str]:
    """Every chunk of every stage has a layer; interleaved chunks take micro-batches in groups of a stage each."""
    stages, chunks = dict(draw.degrees).get("pp", 1), max(draw.interleave, 1)
    layers = sum(p.layers for p in draw.parts)
    # The first chunk may be the embedding alone, the last one the head.
    if stages * chunks > (layers + 2 if layers else 1):
        yield "W201"
    if chunks > 1 and (stages == 1 or _calls(draw) % stages):
        yield "W201"
    if not draw.stages:
        return
    if (
        stages == 1
        or len(draw.stages) != stages * chunks
        or sum(draw.stages) != layers
        or 0 in draw.stages[1:-1]
    ):
        yield "W201"


def _tokens(draw: Draw) -> Iterator[str]:
    """Axes in turn split the sequences of a call, or the positions of a sequence: evenly if they can, or with pads."""
    degrees = dict(draw.degrees)
    real = {"rows": draw.batch / _calls(draw), "seq": draw.seq}
    padded, steps = dict(real), dict.fromkeys(real, 1)
    for axis, dims in SEEDS.items():
        n = degrees.get(axis, 1)
        even = [d for d in dims if padded[d] % (steps[d] * n) == 0]
        sizes = {d: -(-padded[d] // (steps[d] * n)) * steps[d] * n for d in dims}
        for d in [*even, *(d for d in dims if sizes[d] <= real[d] * (1 + PADS))][:1]:
            padded[d], steps[d] = sizes[d], steps[d] * n
            break
        else:
            yield "W201"
            return


def _experts(draw: Draw) -> Iterator[str]:
    degree = dict(draw.degrees).get(EXPERTS, 1)
    has_experts = any(line.of.has_experts for part in draw.parts for line in part.lines)
    if degree > 1 and (not has_experts or draw.experts % degree):
        yield "W201"


def _is_of_experts(name: str) -> bool:
    return name.startswith(("up", "gate", "down"))


def _weights(draw: Draw, sizes: dict[str, int]) -> Iterator[str]:
    degrees = dict(draw.degrees)
    for name, shape, is_multiplied, _ in draw.params(sizes):
        if not is_multiplied:
            continue
        sharding = _sharding(draw)
        if _is_of_experts(name):
            shape = (shape[0] // degrees.get(EXPERTS, 1), *shape[1:])
            sharding = tuple(a for a in sharding if a != EXPERTS)
        splits = [degrees[a] for a in SPLIT_WEIGHTS if degrees.get(a, 1) > 1]
        if not _can_split(shape, splits):
            yield "W201"
        elif not _can_split(shape, splits + [degrees[a] for a in sharding if degrees.get(a, 1) > 1]):
            yield "W202"


def _sharding(draw: Draw) -> tuple[str, ...]:
    return (*SHARDED, *REPLICAS) if draw.zero == 3 else SHARDED


def _can_split(shape: tuple[int, ...], degrees: list[int]) -> bool:
    """Whether every degree can split a dimension; several may share one if their product divides it."""
    if not degrees:
        return True
    return any(
        shape[i] % degrees[0] == 0
        and _can_split((*shape[:i], shape[i] // degrees[0], *shape[i + 1 :]), degrees[1:])
        for i in range(len(shape))
    )


# ---- the wafer


def _wafer(draw: Draw) -> Iterator[str]:
    wafer = _machine(draw)
    if draw.dies > len(wafer):
        yield "W301"
        return
    islands = [part for part in _islands(wafer) if len(part) >= draw.dies]
    if not islands:
        yield "W302"
        return


def _machine(draw: Draw) -> Wafer:
    """The live neighbours of each live die: of two wafers side by side, as of one of twice the columns."""
    copies = 2 if draw.machine == "wafers" else 1
    rows, cols = draw.rows, draw.cols * copies
    dead = {(r, c + k * draw.cols) for r, c in draw.dead_dies for k in range(copies)}
    cut = {
        frozenset(((r, c + k * draw.cols), (r2, c2 + k * draw.cols)))
        for (r, c), (r2, c2) in draw.dead_links
        for k in range(copies)
    }
    live = {(r, c) for r in range(rows) for c in range(cols)} - dead

    def near(r: int, c: int) -> frozenset[Coordinate]:
        found = [(r, c + 1), (r + 1, c), (r, c - 1), (r - 1, c)]
        if draw.machine == "torus":
            found = [(r % rows, c % cols) for r, c in found]
        return frozenset(to for to in found if to in live and frozenset(((r, c), to)) not in cut) - {(r, c)}

    return frozenset(((r, c), near(r, c)) for r, c in live)


def _islands(wafer: Wafer) -> Iterator[Wafer]:
    unvisited = dict(wafer)
    while unvisited:
        island, frontier = set[Coordinate](), {min(unvisited)}
        while frontier:
            island |= frontier
            frontier = {to for die in frontier for to in unvisited[die]} - island
        yield frozenset((die, unvisited.pop(die)) for die in island)


# ---- memory


def _memory(draw: Draw) -> tuple[int, int]:
    """Lower and upper bounds of the bytes that a die needs.

    The lower one is the shares of weights, gradients and the optimizer's state. The upper one is all of these on one
    die, eight times over for copies in flight, and for each layer thirty values as wide as the widest.
    """
    degrees, unit = dict(draw.degrees), BYTES[draw.dtype]
    weights = unit * sum(prod(shape) * copies for _, shape, _, copies in draw.params())
    copies_kept = 4 if draw.optimizer.startswith("adamw") else 2
    shares = prod(n for a, n in degrees.items() if a in (*SPLIT_WEIGHTS, *SHARDED, EXPERTS, "pp"))
    if draw.zero:
        shares *= prod(degrees.get(a, 1) for a in REPLICAS)
    tokens = degrees.get("dp", 1) * draw.micro * draw.seq
    experts = draw.experts * max(draw.d, draw.f)
    widest = max(experts, 3 * draw.d, draw.f, draw.vocab, 3 * draw.kv * draw.group * max(draw.e, draw.seq))
    in_flight = degrees.get("pp", 1) * max(draw.interleave, 1)
    layers = 2 + sum(max(p.layers, 1) * len(p.lines) for p in draw.parts)
    padded = unit * sum(prod(shape) * copies for _, shape, _, copies in draw.params(_padded(draw)))
    return (
        copies_kept * weights // shares,
        8 * copies_kept * padded + 8 * tokens * widest * 30 * layers * in_flight + 100_000,
    )
