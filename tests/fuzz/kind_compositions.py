"""Every composition of the axes on up to 16 dies for the kinds of model beside dense decoders, against one device.

    python -m tests.fuzz.kind_compositions KIND [EVERY [FIRST]]

prints a line for each that differs or is refused, and counts at the end; exit status 1 if one differs. `KIND` is
`experts`, `images`, `encoder` or `graphs`. Degrees are powers of two, `ep` among them where there are experts; sizes
are such that each divides, but for the class token of images and the heads of graph attention.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from tests.support.paths import SAMPLES
from tests.support.verdict import DIFFERENT, Verdict, verdict
from wscc.frontend.overrides import Overrides
from wscc.strategy import POLICIES, holds_replicas, mesh_axes, splits_experts

_ATTENTION: Final = ("model.d=32", "model.heads=16", "model.ffn=16")
# With the sample: what makes it tiny.
KINDS: Final = {
    "experts": (
        "moe-tiny",
        (*_ATTENTION, "model.kv=16", "model.experts=16", "model.vocab=32", "model.seq=16"),
    ),
    "images": ("vit-tiny", (*_ATTENTION, "model.patches=16", "model.classes=16")),
    "encoder": ("bert-base", (*_ATTENTION, "model.vocab=32", "model.seq=16")),
    "graphs": ("", ()),
}
_GRAPH: Final = """
wafer w {{ mesh 4 x 4  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model graphs(layers = 2, nodes = 16, count = 56, d = 16, heads = 4) {{
  input adjacency : edges[count]
  input x : f32[batch, nodes, d]
  input labels : i32[batch, nodes]
  param w0 : [d, d] init normal(0.3)
  h = x @ w0
  repeat layers as layer {{
    param w : [d, d] init normal(0.3)
    param u : [d, d] init normal(0.3)
    param on : [count] init normal(0.3)
    param wv : [d, heads, d / heads] init normal(0.3)
    param to : [d, heads] init normal(0.3)
    param src : [d, heads] init normal(0.3)
    param wo : [heads, d / heads, d] init normal(0.3)
    h = h + gelu(spmm(adjacency, h @ w, symmetric)) + edge_max(adjacency, relu(h @ u))
    h = h + edge_sum(adjacency, h @ u, on)
    h = h + project(edge_attention(adjacency, h @ to, h @ src, project(h, wv)), wo)
  }}
  param head : [d, d] init normal(0.3)
  loss cross_entropy(h @ head, labels)
}}
train graphs on w {{
  data "graph.npz"
  optimizer adamw(lr = 1e-2, eps = 1e-5)
  dtype compute f64, params f64, grads f64
  batch 1  microbatch 1  parallel dp = 1
}}
"""


@dataclass(frozen=True)
class Composition:
    kind: str
    degrees: tuple[tuple[str, int], ...]
    zero: int

    def __str__(self) -> str:
        words = " ".join(f"{a}={n}" for a, n in self.degrees) or "one die"
        return f"{self.kind} {words} zero {self.zero}"

    @property
    def sets(self) -> tuple[str, ...]:
        """The settings of the program: two calls, each with a sequence for every place of `ep`; a layer a stage."""
        degrees = dict(self.degrees)
        micro = max(degrees.get("ep", 1), 1)
        parallel = ", ".join(f"{a} = {n}" for a, n in self.degrees) or "dp = 1"
        return (
            *KINDS[self.kind][1], f"model.layers={max(2, degrees.get('pp', 1))}", "wafer.mesh=4x4",
            f"train.batch={2 * micro * degrees.get('dp', 1)}", f"train.microbatch={micro}",
            "train.dtype=compute f64, params f64, grads f64", f"train.parallel={parallel}", f"train.zero={self.zero}",
        )  # fmt: skip

    def outcome(self, folder: Path) -> Verdict:
        """Loss, gradients and weights of two steps against one device, in checked mode."""
        return verdict(_text(self.kind), folder, Overrides(sets=self.sets), mask="uneven", reported=False)


def compositions(kind: str) -> Iterator[Composition]:
    """All degrees that are powers of two with a product of at most 16, and one `zero` after the other where there are
    replicas."""
    axes = [a for a in POLICIES if kind == "experts" or not splits_experts(a)]
    sharded = 0
    for degrees in product((1, 2, 4, 8, 16), repeat=len(axes)):
        if prod(degrees) <= 16:
            strategy = mesh_axes(dict(zip(axes, degrees, strict=True)))
            has_replicas = any(holds_replicas(a) for a, _ in strategy)
            sharded += has_replicas
            yield Composition(kind, strategy, (0, 1, 3)[sharded % 3] if has_replicas else 0)


def _text(kind: str) -> str:
    """The sample without its file of data."""
    if kind == "graphs":
        return _GRAPH.format()
    text = (SAMPLES / f"{KINDS[kind][0]}.wsl").read_text(encoding="utf-8")
    return re.sub(r'^ *data ".*\n', "", text, flags=re.MULTILINE)


def _write_graph(folder: Path) -> None:
    """Edges near each other on a ring, and some at random: one twice, none to the last node."""
    rng = np.random.default_rng(3)
    near = [(n, (n + i) % 16) for n in range(15) for i in (0, 1, 5)]
    edges = np.concatenate([near, rng.integers(0, 15, (10, 2)), near[:1]])
    labels = rng.integers(0, 16, (32, 16))
    x = rng.standard_normal((32, 16, 16)).astype(np.float32)
    np.savez(folder / "graph.npz", adjacency=edges, x=x, labels=labels)


def main(kind: str, every: int = 1, first: int = 0) -> int:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_graph(folder)
        for c in list(compositions(kind))[first::every]:
            found = c.outcome(folder)
            counts[found.what] += 1
            if found.why:
                print(f"{c}: {found.what} {found.why}", flush=True)
    print(f"{kind}: {counts.total()} compositions: {', '.join(f'{n} {what}' for what, n in counts.items())}")
    return int(counts[DIFFERENT] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
