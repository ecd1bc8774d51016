"""`python -m tests.fuzz SECONDS [SEED]`: random models, wafers and strategies; equal to one device, or refused.

Prints each failure with the `.wsl` text that shows it, and a count by outcome; exit status 1 if any failed.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from wscc.compiler import compile_file
from wscc.diagnostics import CompileError
from wscc.trainer import RunOptions, run

PIECES = (
    "x = x + gelu(x @ {w}) @ {v}",
    "x = x - relu(x @ {w}) @ {v} / 3",
    "x = x + swiglu(x @ {w}, x @ {u}) @ {v}",
    "x = layernorm(x, {g}, {b}) * 0.5 + x",
    "x = rmsnorm(x, {g}) + x",
    "q, k, v = split(project(layernorm(x, {g}, {b}), {qkv}))\n  x = x + project(attention(q, k, v, causal), {o})",
    "q = rope(project(x, {q}))\n  k = rope(project(x, {k}))\n  v = project(x, {k2})\n"
    "  x = x + project(attention(q, k, v, causal), {o5})",
    "x = x + y * (x @ {s})",
    "y = y / 2 + x",
)  # fmt: skip
SHAPES = {
    "w": "[d, f] init normal(0.3)",
    "u": "[d, f] init normal(0.3)",
    "v": "[f, d] init normal(0.3)",
    "g": "[d] init ones",
    "b": "[d] init zeros",
    "s": "[d, d] init normal(0.3)",
    "qkv": "[d, 3, h, d / h] init normal(0.3)",
    "o": "[h, d / h, d] init normal(0.3)",
    "q": "[d, 2, h / 2, d / h] init normal(0.3)",
    "k": "[d, 2, d / h] init normal(0.3)",
    "k2": "[d, 2, d / h] init normal(0.3)",
    "o5": "[2, h / 2, d / h, d] init normal(0.3)",
}


def piece(rng: random.Random, names: list[str]) -> str:
    """One statement with parameters of its own, declared before it."""
    text = rng.choice(PIECES)
    lines = []
    for key, shape in SHAPES.items():
        if f"{{{key}}}" in text:
            name = f"{key}{len(names)}"
            names.append(name)
            text = text.replace(f"{{{key}}}", name)
            lines.append(f"param {name} : {shape}")
    return "\n  ".join([*lines, text])


def drawn(rng: random.Random) -> str:
    """A whole file."""
    names: list[str] = []
    parts = []
    for n in range(rng.randint(1, 3)):
        body = "\n  ".join(piece(rng, names) for _ in range(rng.randint(1, 3)))
        loop = rng.random() < 0.7
        parts.append(f"repeat {rng.randint(1, 3)} as r{n} {{\n  {body}\n  }}" if loop else body)
    rows, cols = rng.choice([(1, 4), (2, 2), (2, 4), (3, 3), (4, 4)])
    dead = {(rng.randrange(rows), rng.randrange(cols)) for _ in range(rng.choice([0, 0, 1, 2]))}
    degrees = {a: rng.choice([1, 1, 2, 2, 3, 4]) for a in ("dp", "tp", "tatp")}
    micro, calls = rng.choice([1, 2, 4]), rng.choice([1, 2])
    head = "x @ transpose(wte)" if rng.random() < 0.5 else "rmsnorm(x, gf) @ head"
    ends = "" if "wte" in head else "param gf : [d] init ones\n  param head : [d, vocab] init normal(0.3)"
    seq = rng.choice([1, 5, 8])
    optimizer = rng.choice(["adamw(lr = 1e-2, weight_decay = 0.1)", "sgd(lr = 1e-2)"])
    if seq == 1:
        # One position attends to itself alone: queries and keys have exactly zero gradients, of which AdamW would
        # divide the rounding noise by itself (section 8).
        optimizer = "sgd(lr = 1e-2)"
    body = "\n  ".join(parts)
    return f"""wafer w {{
  mesh {rows} x {cols}
  die {{ peak 1 TFLOP/s, sram 80 MB }}
  link {{ bandwidth 1 TB/s, latency 100 ns }}
  {" ".join(f"dead die ({r}, {c})" for r, c in sorted(dead))}
}}
model m(d = {rng.choice([8, 16])}, f = {rng.choice([12, 16])}, h = {rng.choice([2, 4])}, vocab = {rng.choice([15, 16])},
    seq = {seq}) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  x = embedding(tokens, wte)
  y = x * 0.5
  {body}
  x = x + y
  {ends}
  loss cross_entropy({head}, labels)
}}
train m on w {{
  batch {degrees["dp"] * micro * calls}
  microbatch {micro}
  optimizer {optimizer}
  clip {rng.choice([0.5, 100])}
  schedule warmup(2)
  dtype compute f64, params f64, grads f64
  recompute {rng.choice(["none", "selective", "full"])}
  parallel {", ".join(f"{a} = {n}" for a, n in degrees.items())}
}}
"""


def outcome(text: str, folder: Path, level: int) -> str:
    """`equal`, `different`, or the code of the refusal."""
    path = folder / "m.wsl"
    path.write_text(text)
    try:
        check = run(compile_file(str(path), level=level).artifact, RunOptions(steps=2), check=True).check
    except CompileError as refused:
        return str(refused.diagnostics[0].code)
    assert check is not None
    return "equal" if check.ok else "different"


# What a user may be told; anything else (a broken pass, a failed check, a deadlock) is a fault of wscc.
REFUSALS = frozenset({"W201", "W202", "W301", "W302", "W303", "W401"})


def hunt(seconds: float, seed: int, draws: int = sys.maxsize) -> tuple[Counter[str], list[str]]:
    """Outcomes of draws until the time is over, and the texts of those that are neither equal nor refused."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while sum(counts.values()) < draws and time.monotonic() < until:
            rng = random.Random(seed)
            text, level = drawn(rng), rng.choice([0, 1, 2])
            found = outcome(text, Path(folder), level)
            counts[found] += 1
            if found != "equal" and found not in REFUSALS:
                failures.append(f"# seed {seed}, -O{level}: {found}\n{text}")
            seed += 1
    return counts, failures


if __name__ == "__main__":
    counted, failed = hunt(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()))
    for text in failed:
        print(text)
    print(", ".join(f"{n} {what}" for what, n in counted.most_common()))
    sys.exit(bool(failed))
