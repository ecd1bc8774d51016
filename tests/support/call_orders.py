"""Programs with their usual order of calls, and other orders of them, for tests of tables of calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

from tests.oracles.symbols import Symbols
from tests.support.models import Shape, gpt, llama
from wscc.diagnostics import CompileError, Diagnostic, Source
from wscc.frontend.elaborate import elaborate
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.module import Module
from wscc.ir.text.call_order import One, one_by_one
from wscc.machine.wafer import Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.passes.stages.default_order import call_order

Order = list[list[One]]

SKIPS = """
wafer w { mesh 2 x 2  die { peak 1 TFLOP/s, sram 1 MB, hbm 1 GB at 1 TB/s, tile 8, efficiency 1 TFLOP/s/W }
  link { bandwidth 1 TB/s, latency 1 ns, flit 64 B, energy 1 pJ/bit, channels 2 } }
model m() {
  input tokens : i32[batch, 4]
  input labels : i32[batch, 4]
  param wte : [16, 8] init normal(0.1)
  m = embedding(tokens, wte)
  x = m
  repeat 4 as block { param w : [8, 8] init normal(0.1)  x = x + gelu(m @ w) }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w { batch 6  microbatch 1  optimizer adamw(lr = 1e-3)  clip 1.0
  dtype compute f64, params f64, grads f64  parallel pp = 3 }
"""


def small(degrees: dict[str, int], micro: int, layers: int = 4, each: int = 1) -> Module:
    shape = Shape(
        batch=micro * degrees.get("dp", 1), calls=micro, layers=layers, seq=4, d=8, ffn=16, vocab=16
    )
    return gpt(degrees, shape, wafer=Wafer("w", 2, 4), interleave=each)


MODELS: dict[str, Callable[[], Module]] = {
    "dp": lambda: small({"dp": 2}, 3),
    "tp": lambda: llama({"tp": 2}, Shape(batch=2, calls=2)),
    "tatp": lambda: gpt({"tatp": 2}, Shape(batch=4, calls=2)),
    "pp": lambda: small({"pp": 2, "dp": 2}, 5),
    "pp interleaved": lambda: small({"pp": 2}, 4, each=2),
    "pp of 3": lambda: small({"pp": 3}, 6, layers=5),
    "skips": lambda: elaborate(resolve(parse(Source("skips.wsl", SKIPS)))),
}


@cache
def sharded(name: str) -> Module:
    return Partition().run(Differentiate().run(MODELS[name]()))


@cache
def usual(name: str) -> Order:
    return [[one for one, _ in stage] for stage in one_by_one(call_order(sharded(name)))]


@cache
def symbols(name: str) -> dict[object, object]:
    return dict(Symbols(Stages().run(sharded(name))).run())


def text_of(order: Order) -> str:
    """One line per call."""
    out = []
    for stage, ones in enumerate(order):
        out.append(f"stage {stage}")
        for o in ones:
            out.append(
                " ".join(["  " + o.call, *("-" if n is None else str(n) for n in (o.layer, o.microbatch))])
            )
    return "\n".join(out)


def ordered(name: str, text: str) -> Module:
    return Stages(Source("t.txt", text)).run(sharded(name))


def refusal(name: str, text: str) -> Diagnostic:
    with pytest.raises(CompileError) as refused:
        ordered(name, text)
    return refused.value.diagnostics[0]


def gpipe(module: Module) -> Order:
    """All forward work of a stage before all backward work."""
    out: Order = []
    for stage in one_by_one(call_order(module)):
        ones = [one for one, _ in stage]
        work = [o for o in ones if o.call.endswith((".fwd", ".bwd"))]
        at = [i for i, o in enumerate(ones) if o in work]
        work.sort(key=lambda o: o.call.endswith(".bwd"))
        out.append([*ones[: at[0]], *work, *ones[at[-1] + 1 :]])
    return out


def drawn(name: str, rng: random.Random) -> Order:
    """A random order of the tasks that works by construction, with updates of layers in any order."""
    order = usual(name)
    homes: dict[tuple[int | None, bool], list[tuple[int, One]]] = {}
    for stage, ones in enumerate(order):
        for o in ones:
            if o.call.endswith((".fwd", ".bwd")):
                homes.setdefault((o.microbatch, o.call.endswith(".bwd")), []).append((stage, o))
    done: Order = [[] for _ in order]
    # By micro-batch, what is left of its way through the stages and back.
    ways = {m: chain(homes, m) for m, back in homes if not back}
    while ways:
        m = rng.choice(sorted(ways))
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            if ways[m]:
                stage, one = ways[m].pop(0)
                done[stage].append(one)
        if not ways[m]:
            del ways[m]
    out: Order = []
    for stage, ones in enumerate(order):
        at = [i for i, o in enumerate(ones) if o.call.endswith((".fwd", ".bwd"))]
        after = ones[at[-1] + 1 :]
        for i in range(len(after) - 1, 0, -1):
            if after[i].call == after[i - 1].call and after[i].layer is not None and rng.random() < 0.5:
                after[i - 1 : i + 1] = after[i - 1 : i + 1][::-1]
        out.append([*ones[: at[0]], *done[stage], *after])
    return out


def chain(
    homes: dict[tuple[int | None, bool], list[tuple[int, One]]], m: int | None
) -> list[tuple[int, One]]:
    """The calls of a micro-batch as one device would make them."""
    forward = [c for c in homes[m, False] if not c[1].call.startswith(("epilogue", "head"))]
    last = [c for c in homes[m, False] if c[1].call.startswith(("epilogue", "head"))]
    forward.sort(key=lambda c: (c[1].layer is not None, c[1].layer))
    backward = [c for c in homes[m, True] if c[1].call.startswith(("epilogue", "head"))]
    middle = [c for c in homes[m, True] if c[1].layer is not None]
    end = [c for c in homes[m, True] if c[1].layer is None and not c[1].call.startswith(("epilogue", "head"))]
    middle.sort(key=lambda c: -(c[1].layer or 0))
    return [*forward, *last, *backward, *middle, *end]
