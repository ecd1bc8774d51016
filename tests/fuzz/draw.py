"""Random programs as data: drawn, written as `.wsl`, and made smaller field by field."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, pairwise
from math import prod
from typing import Final

from tests.fuzz.pieces import BLOCK, LOSSES, PARAMS, PIECES, POOLS, Piece
from tests.support.verdict import MASKS

Coordinate = tuple[int, int]

# What is drawn from. A new axis of strategy needs its rule in `predicate`, then its name here.
AXES: Final = ("pp", "dp", "ep", "sp", "tp", "tatp")
ZERO: Final = (0, 0, 1, 3)
INTERLEAVE: Final = (0, 0, 0, 2)
DTYPES: Final = {
    "f64": "compute f64, params f64, grads f64",
    "f32": "compute f32, params f32, grads f32",
    "bf16": "compute bf16, params f32, grads f32",
    "all bf16": "compute bf16, params bf16, grads bf16",
    "coarse grads": "compute f32, params f32, grads bf16",
    "coarse params": "compute f64, params f32, grads bf16",
    "wide grads": "compute bf16, params bf16, grads f64",
}
OPTIMIZERS: Final = (
    "adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)",
    "adamw(lr = 1e-2)",
    'adamw(lr = 1e-2, weight_decay = 0.1)  decay matrices  group "wte" { lr x 0.5, decay 0.3 }  group "g*" { lr 0 }',
    "sgd(lr = 1e-2)",
)
ROOMY: Final = 80_000_000
# After the mesh of a wafer, and after the wafer.
MACHINES: Final = {
    "mesh": ("", ""),
    "torus": (" torus", ""),
    "wafers": (
        "",
        "system pod { wafers 1 x 2 of w joined edge to edge { bandwidth 2 TB/s, latency 500 ns } }",
    ),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One piece, with parameters of its own or the model's shared ones."""

    piece: str
    is_shared: bool = False

    @property
    def of(self) -> Piece:
        return PIECES[self.piece]


@dataclass(frozen=True, slots=True)
class Part:
    """A `repeat` of some layers, or straight code (0)."""

    layers: int
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    rows: int = 1
    cols: int = 1
    dead_dies: frozenset[Coordinate] = frozenset()
    dead_links: frozenset[tuple[Coordinate, Coordinate]] = frozenset()
    sram: int = ROOMY
    is_slow: bool = False
    d: int = 8
    f: int = 8
    kv: int = 2
    group: int = 1
    e: int = 4
    vocab: int = 8
    seq: int = 4
    experts: int = 2
    is_tied: bool = True
    loss: str = LOSSES[0]
    parts: tuple[Part, ...] = ()
    degrees: tuple[tuple[str, int], ...] = ()
    micro: int = 1
    calls: int = 1
    extra: int = 0  # sequences beyond a whole number of calls; below 0, fewer than replicas take
    optimizer: str = OPTIMIZERS[-1]
    clip: str = ""
    lr_schedule: str = ""
    dtype: str = "f64"
    recompute: str = "none"
    zero: int = 0
    interleave: int = 0
    stages: tuple[int, ...] = ()  # layers by hand
    tile: int = 128  # small ones make zigzag order pay
    level: int = 2
    mask: str = "none"
    pool: str = ""
    machine: str = "mesh"

    @property
    def _memory(self) -> str:
        """As much in all; or little SRAM before a slow HBM, between which copies pay."""
        if self.sram == ROOMY and self.is_slow:
            return f"sram 6000 B, hbm {ROOMY} B at 1 GB/s"
        return f"sram {self.sram} B"

    @property
    def sizes(self) -> dict[str, int]:
        names = ("d", "f", "kv", "group", "e", "vocab", "seq", "experts")
        more = {"heads": self.kv * self.group, "2 * seq + 1": 2 * self.seq + 1, "3": 3, "1": 1}
        return {n: getattr(self, n) for n in names} | more

    @property
    def batch(self) -> int:
        return dict(self.degrees).get("dp", 1) * self.micro * self.calls + self.extra or 1

    @property
    def dies(self) -> int:
        return prod(n for _, n in self.degrees)

    def params(
        self, sizes: Mapping[str, int] | None = None
    ) -> Iterator[tuple[str, tuple[int, ...], bool, int]]:
        """(name, shape, whether it is multiplied, copies) of every parameter; `sizes` may be others than its own."""
        found = {"wte": ("table", 1), "gf": ("g", 1)} | ({} if self.is_tied else {"head": ("table", 1)})
        for part, line, n in self._lines():
            for key in line.of.params:
                name = f"{key}_all" if line.is_shared else f"{key}{n}"
                found[name] = (key, 1 if line.is_shared else max(part.layers, 1))
            found.update({f"mlp{n}.{key}": (key, max(part.layers, 1)) for key in line.of.hidden})
        found.update({f"pool_{key}": (key, 1) for key in self._pool.params})
        found.update({"z0": ("w", 1)} if self._uses("z") else {})
        found.update({"t0": ("sum", 1)} if self._uses("t") else {})
        for name, (key, copies) in found.items():
            shape = tuple((sizes or self.sizes)[d] for d in PARAMS[key].dims)
            yield name, shape, PARAMS[key].is_multiplied, copies

    @property
    def _pool(self) -> Piece:
        return Piece(POOLS[self.pool][0])

    def _lines(self) -> Iterator[tuple[Part, Line, int]]:
        n = count()
        for part in self.parts:
            for line in part.lines:
                yield part, line, next(n)

    @property
    def _more_inputs(self) -> str:
        texts = " ".join(line.of.text for _, line, _ in self._lines())
        kinds = "input kinds : i32[batch, seq]" if "kinds" in texts else ""
        kinds += "  input pairs : edges[2 * seq + 1]" if "pairs" in texts else ""
        return kinds + ("  input images : f32[batch, seq, f]" if "images" in texts else "")

    def _uses(self, name: str) -> bool:
        return any(line.of.uses(name) for _, line, _ in self._lines())

    # -- as a file --------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        dead = [f"dead die {at}" for at in sorted(self.dead_dies)]
        dead += [f"dead link {a} - {b}" for a, b in sorted(self.dead_links)]
        sizes = ", ".join(f"{n} = {size}" for n, size in self.sizes.items() if n.isidentifier())
        body = [*self._declared(), "x = embedding(tokens, wte)", "y = x * 0.5"]
        body += ["z = x @ z0"] if self._uses("z") else []
        body += ["t = t0 / 2"] if self._uses("t") else []
        n = count()
        for i, part in enumerate(self.parts):
            lines = [text for line in part.lines for text in _written(line, next(n), part.layers)]
            body += (
                [f"repeat {part.layers} as part{i} {{", *(f"  {s}" for s in lines), "}"]
                if part.layers
                else lines
            )
        names = {key: f"pool_{key}" for key in self._pool.params}
        body += [*(_declaration(key, name) for key, name in names.items()), self._pool.text.format(**names)]
        head = "transpose(wte)" if self.is_tied else "transpose(head)"
        pooled = {n: f"{POOLS[self.pool][1]}({n})" if self.pool else n for n in ("x", "y")}
        logits = {n: f"rmsnorm({pooled[n]}, gf) @ {head}" for n in pooled}
        options = [f"zero {self.zero}"] * (self.zero > 0) + [f"interleave {self.interleave}"] * (
            self.interleave > 0
        )
        options += [f"stages {' '.join(map(str, self.stages))}"] * (self.stages != ())
        block = BLOCK if any(line.of.hidden for _, line, _ in self._lines()) else ""
        torus, system = MACHINES[self.machine]
        return f"""wafer w {{
  mesh {self.rows} x {self.cols}{torus}
  die {{ peak 1 TFLOP/s, {self._memory}, tile {self.tile} }}
  link {{ bandwidth 1 TB/s, latency 100 ns }}
  {"  ".join(dead)}
}}
{system}
{block}model m({sizes}) {{
  input tokens : i32[batch, seq]
  input labels : i32[{"batch" if self.pool else "batch, seq"}]
  {self._more_inputs}
  {chr(10).join(f"  {s}" for s in body).lstrip()}
  loss {self.loss.format(**logits)}
}}
train m on {"pod" if system else "w"} {{
  batch {self.batch}  microbatch {self.micro}
  optimizer {self.optimizer}  {self.clip}  {self.lr_schedule}
  dtype {DTYPES[self.dtype]}
  recompute {self.recompute}  {" ".join(options)}
  parallel {", ".join(f"{a} = {n}" for a, n in self.degrees) or "dp = 1"}
}}
"""

    def _declared(self) -> Iterator[str]:
        """Parameters of the model itself: those of the ends, and those that statements share."""
        yield "param wte : [vocab, d] init normal(0.3)"
        yield "param gf : [d] init ones"
        if not self.is_tied:
            yield "param head : [vocab, d] init normal(0.3)"
        if self._uses("z"):
            yield _declaration("w", "z0")
        if self._uses("t"):
            yield _declaration("sum", "t0")
        for key in {k: None for _, line, _ in self._lines() if line.is_shared for k in line.of.params}:
            yield _declaration(key, f"{key}_all")


def _written(line: Line, n: int, layers: int) -> Iterator[str]:
    """The statement after the declarations of its own parameters; straight code (0 layers) adds to no loss."""
    names = {key: f"{key}_all" if line.is_shared else f"{key}{n}" for key in line.of.params}
    if not line.is_shared:
        yield from (_declaration(key, name) for key, name in names.items())
    statements = line.of.text.format(**names).split("\n")
    yield "\n".join(s for s in statements if layers or not s.lstrip().startswith("loss "))


def _declaration(key: str, name: str) -> str:
    return f"param {name} : [{', '.join(PARAMS[key].dims)}] init {PARAMS[key].init}"


# ---- drawing


def drawn(rng: random.Random) -> Draw:
    """Any program, most of sizes that some strategy divides."""
    rows, cols = rng.choice([(1, 1), (1, 4), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4), (4, 4)])
    e = rng.choice([2, 4, 4, 3])
    even = rng.random() < 0.7
    dead_dies = frozenset(
        (rng.randrange(rows), rng.randrange(cols)) for _ in range(rng.choice([0, 0, 0, 1, 2]))
    )
    parts = _parts(rng, e)
    loss = rng.choice([LOSSES[0], *LOSSES])
    texts = [line.of.text for part in parts for line in part.lines]
    # In few bits a sum near zero takes either sign, and relu then has either slope; and two losses that nearly
    # cancel leave little but their rounding: no error of rounding bounds either.
    # So does a choice between two experts that are nearly as likely.
    is_smooth = not any("relu" in text or "route(" in text for text in texts) and "-(" not in loss
    has_attention = any("attention" in text for text in texts)
    links = [((r, c), (r + i, c + 1 - i)) for r in range(rows) for c in range(cols) for i in (0, 1)]
    links = [k for k in links if k[1][0] < rows and k[1][1] < cols]
    dead_links = frozenset(rng.choice(links) for _ in range(rng.choice([0, 0, 1, 2])) if links)
    draw = Draw(
        rows=rows, cols=cols, dead_dies=dead_dies, dead_links=dead_links,
        sram=rng.choice([4_000, 30_000, 100_000]) if rng.random() < 0.06 else ROOMY,
        d=rng.choice([8, 16] if even else [6, 8, 10, 12]), f=rng.choice([8, 16] if even else [5, 6, 12, 20]),
        kv=rng.choice([1, 2, 2, 4] if even else [1, 2, 3]), group=rng.choice([1, 2, 2, 4] if even else [1, 2, 3]),
        e=e, vocab=rng.choice([8, 16, 15, 17] if even else [5, 12, 17, 41, 67]),
        experts=rng.choice([2, 4, 4] if even else [2, 3, 6]),
        seq=(seq := rng.choice([1, 4, 8, 8] if even else [1, 3, 5, 6, 7, 11, 13])),
        is_tied=rng.random() < 0.5, loss=loss,
        parts=parts, degrees=_degrees(rng, rows * cols, any("route(" in text for text in texts)),
        micro=rng.choice([1, 1, 2, 4]), calls=(calls := rng.choice([1, 2, 3])),
        extra=-calls if (odd := rng.random()) > 0.8 else int(odd < 0.02),
        optimizer=rng.choice(OPTIMIZERS), clip=rng.choice(["", "clip 0.5", "clip 100"]),
        lr_schedule=rng.choice(["", "lr_schedule warmup(2)", "lr_schedule warmup(1), cosine(9, 0.1)"]),
        # A key that is alone has a gradient of zero, a difference of equal terms: what is left is their rounding.
        dtype=rng.choice(["f64"] * 12 + list(DTYPES)[1:] * (is_smooth and (seq > 1 or not has_attention))),
        recompute=rng.choice(["none", "none", "selective", "full"]),
        zero=rng.choice(ZERO), interleave=rng.choice(INTERLEAVE), tile=rng.choice([1, 128]),
        level=rng.choice([0, 1, 2, 2]),
        mask=rng.choice([*MASKS, "none", "none"]),
        is_slow=rng.random() < 0.4,
        pool=rng.choice(["", "", "", "mean", "token"]),
    )  # fmt: skip
    draw = replace(draw, stages=_stages(rng, draw)) if rng.random() < 0.5 else draw
    # Most axes of experts divide these and the sequences of a call.
    shares = dict(draw.degrees).get("ep", 1) if rng.random() < 0.8 else 1
    return replace(
        draw, experts=draw.experts * shares, micro=max(draw.micro, shares),
        machine=rng.choice(["mesh", "mesh", *MACHINES]),
    )  # fmt: skip


def _stages(rng: random.Random, draw: Draw) -> tuple[int, ...]:
    """The layers of each chunk, those between dividers: nearly always a cut of the model, which may be empty at its
    ends alone."""
    chunks = dict(draw.degrees).get("pp", 1) * max(draw.interleave, 1)
    layers = sum(p.layers for p in draw.parts)
    if chunks == 1 or chunks > layers + 2:
        return ()
    some = rng.choices if rng.random() < 0.05 else rng.sample
    dividers = sorted(some(range(layers + 1), k=chunks - 1))
    return tuple(b - a for a, b in pairwise((0, *dividers, layers)))


def _parts(rng: random.Random, e: int) -> tuple[Part, ...]:
    odd = e % 2 == 1 and rng.random() < 0.9
    pieces = [p for p, piece in PIECES.items() if not (odd and piece.uses_rope)]
    parts = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        lines = tuple(Line(rng.choice(pieces), rng.random() < 0.15) for _ in range(rng.choice([1, 1, 2, 3])))
        parts.append(Part(rng.choice([0, 1, 2, 2, 3]), lines))
    return tuple(parts)


def _degrees(rng: random.Random, dies: int, has_experts: bool) -> tuple[tuple[str, int], ...]:
    """Mostly of no more dies than the mesh has; an axis of experts seldom where there are none."""
    left = dies if rng.random() < 0.93 else 2 * dies
    degrees = []
    axes = AXES if has_experts or rng.random() < 0.03 else [a for a in AXES if a != "ep"]
    for axis in rng.sample(axes, len(axes)):
        fitting = [n for n in (1, 2, 2, 3, 4, 4, 8) if n <= left]
        degrees.append((axis, rng.choice(fitting)))
        left //= degrees[-1][1]
    return tuple(sorted((a, n) for a, n in degrees if n > 1))
