"""The programs of `test_cases`: one small model with a knob for everything that a case varies."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from wscc.strategy import POLICIES

# Axes that the cases of the field need and that this version may not have yet; their rows switch on by themselves.
HAS_SP: Final = "sp" in POLICIES
HAS_PP: Final = "pp" in POLICIES
EQUAL, EITHER, REFUSED = "EQ", "EQ|REF", "REF"

# By degree product, a mesh that holds it.
MESHES: Final = {1: "1 x 1", 2: "1 x 2", 3: "1 x 3", 4: "2 x 2", 6: "2 x 3", 8: "2 x 4", 16: "4 x 4"}

MLP: Final = "x = x + gelu(rmsnorm(x, g) @ w1) @ w2"
ATTENTION: Final = """
    q = rope(project(rmsnorm(x, g), wq))
    k = rope(project(x, wk))
    v = project(x, wv)
    x = x + project(attention(q, k, v{causal}), wo)"""
BIASED: Final = """
    h = layernorm(x, g, b) @ w1 + c1
    x = x + gelu(h) @ w2 + c2"""
PARAMS: Final = {
    "g": "[d] init ones", "b": "[d] init zeros", "c1": "[f] init zeros", "c2": "[d] init zeros",
    "w1": "[d, f] init normal(0.3)", "w2": "[f, d] init normal(0.3)",
    "wq": "[d, kv, heads / kv, e] init normal(0.3)", "wk": "[d, kv, e] init normal(0.3)",
    "wv": "[d, kv, e] init normal(0.3)", "wo": "[kv, heads / kv, e, d] init normal(0.3)",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`layer` is the body of the `repeat`; what it uses of `PARAMS` is declared. `head` are the logits."""

    degrees: dict[str, int]
    layer: str = MLP
    layers: int = 2
    d: int = 8
    f: int = 16
    heads: int = 4
    kv: int = 2
    e: int = 4
    vocab: int = 16
    seq: int = 4
    batch: int = 4
    micro: int = 0  # 0: two calls
    head: str = "x @ transpose(wte)"
    more: str = ""  # declarations of what `head` uses
    optimizer: str = "adamw(lr = 1e-2, eps = 1e-6, weight_decay = 0.1)"
    clip: str = "clip 1.0"
    mesh: str = ""  # default: one with just enough dies
    tile: int = 128  # small ones make zigzag order pay

    @property
    def text(self) -> str:
        sizes = ("d", "f", "heads", "kv", "e", "vocab", "seq")
        params = "  ".join(f"param {n} : {s}" for n, s in PARAMS.items() if f"{n}" in _words(self.layer))
        dp = self.degrees.get("dp", 1)
        micro = self.micro or max(self.batch // (2 * dp), 1)
        parallel = ", ".join(f"{a} = {n}" for a, n in self.degrees.items()) or "dp = 1"
        return f"""wafer w {{
  mesh {self.mesh or MESHES[prod(self.degrees.values())]}
  die {{ peak 1 TFLOP/s, sram 80 MB, tile {self.tile} }}
  link {{ bandwidth 1 TB/s, latency 100 ns }}
}}
model m({", ".join(f"{n} = {getattr(self, n)}" for n in sizes)}) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.5)
  {self.more}
  x = embedding(tokens, wte)
  repeat {self.layers} as layer {{
    {params}
    {self.layer.format(causal="")}
  }}
  loss cross_entropy({self.head}, labels)
}}
train m on w {{
  batch {self.batch}  microbatch {micro}
  optimizer {self.optimizer}  {self.clip}
  dtype compute f64, params f64, grads f64
  parallel {parallel}
}}
"""


def _words(text: str) -> set[str]:
    """The names of a body."""
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
