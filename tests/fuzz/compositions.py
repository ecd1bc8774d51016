"""Every composition of the five axes on up to 16 dies, with each `zero`, judged as in section 8 of the design, with
the closed forms that hold for all of them.

    python -m tests.fuzz.compositions [EVERY]      all of them, or each EVERY-th; exit status 1 if one fails
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from tests.fuzz.strategies import compared
from tests.oracles.live_buffers import violations
from tests.support.models import Shape, gpt, llama
from wscc.driver.compile import Compiled, compile_graph
from wscc.driver.train import RunOptions, Trainer, initial_parameters
from wscc.host.compare import Run
from wscc.host.data import Batches
from wscc.host.inputs import inputs_of
from wscc.ir.array import Kind
from wscc.ir.fabric import Kernel
from wscc.ir.module import Module
from wscc.ir.per_die import at
from wscc.ir.step import calls
from wscc.ir.types import DType
from wscc.machine.wafer import Die, Wafer
from wscc.reference.training import History, train

AXES = ("pp", "dp", "sp", "tp", "tatp")
FAMILIES: dict[str, Callable[..., Module]] = {"gpt": gpt, "llama": llama}
WAFERS = {tile: Wafer("w", 4, 4, die=Die(tile=tile)) for tile in (1, 128)}


@dataclass(frozen=True)
class Composition:
    family: str
    degrees: tuple[int, ...]  # in the order of AXES
    zero: int
    interleave: int

    @property
    def strategy(self) -> dict[str, int]:
        return {a: n for a, n in zip(AXES, self.degrees, strict=True) if n > 1}

    def degree(self, axis: str) -> int:
        return self.degrees[AXES.index(axis)]

    @property
    def wafer(self) -> Wafer:
        """With small tiles zigzag pays, with large ones it does not."""
        return WAFERS[1 if self.degree("sp") in (2, 8) else 128]

    @property
    def shape(self) -> Shape:
        """Sizes that every degree divides, in as many calls as interleaving needs."""
        rows = self.degree("tatp") if self.degree("sp") * self.degree("tatp") > 16 else 1
        micro = 2 * self.degree("pp") if self.interleave > 1 else 3
        return Shape(
            batch=micro * self.degree("dp") * rows, calls=micro, seq=16, d=16, ffn=32, vocab=32,
            layers=max(2, self.degree("pp") * self.interleave + (self.interleave == 1 < self.degree("pp") < 8)),
        )  # fmt: skip

    def __str__(self) -> str:
        words = " ".join(f"{a}={n}" for a, n in self.strategy.items()) or "one die"
        more = f" zero {self.zero}" if self.zero else ""
        return f"{self.family} {words}{more}" + (
            f" interleave {self.interleave}" if self.interleave > 1 else ""
        )


def compositions() -> Iterator[Composition]:
    """All degrees that are powers of two with a product of at most 16; each `zero` where there are replicas, two
    chunks a stage where there are stages."""
    for family, degrees in product(FAMILIES, product((1, 2, 4, 8, 16), repeat=len(AXES))):
        if prod(degrees) > 16:
            continue
        for zero in (0, 1, 3) if degrees[AXES.index("dp")] > 1 or degrees[AXES.index("sp")] > 1 else (0,):
            yield Composition(family, degrees, zero, 1)
        if 1 < degrees[0] < 8:
            yield Composition(family, degrees, 0, 2)


def graph(c: Composition) -> Module:
    return FAMILIES[c.family](
        c.strategy, c.shape, wafer=c.wafer, optimizer="adamw", zero=c.zero, interleave=c.interleave
    )


@lru_cache(maxsize=64)
def reference(family: str, shape: Shape) -> History:
    module = FAMILIES[family]({}, shape, optimizer="adamw")
    batches = Batches(inputs_of(module), 0)
    return train(module, initial_parameters(module, 0), batches.batch, 2, DType.F64)


def failures(c: Composition) -> Iterator[str]:
    """What is wrong with the composition; nothing, if all is well."""
    module = graph(c)
    compiled = compile_graph(module)
    trainer = Trainer(compiled.artifact, RunOptions(steps=2, checked=True, threads=1))
    yield from _unequal(c, module, trainer)
    yield from _open_forms(c, compiled, trainer)


def _unequal(c: Composition, module: Module, trainer: Trainer) -> Iterator[str]:
    losses, grads = [], {}
    for i, loss in enumerate(trainer.steps()):
        losses.append(loss)
        if i == 0:
            grads = trainer.gradients()
    got = Run(losses, grads, trainer.arrays(Kind.PARAM))
    check = compared(module, got, reference(c.family, c.shape))
    if not check.ok:
        yield f"not equal: {check}"
    trainer.arrays(Kind.STATE)  # reading compares replicas bit for bit


def _open_forms(c: Composition, compiled: Compiled, trainer: Trainer) -> Iterator[str]:
    report, planned = compiled.report, compiled.modules["plan_memory"]
    executed = [gemm_flops(planned, i) for i in range(planned.dies_used)]
    stated, hidden = sum(report["replicated_flops"].values()), report["hidden_flops"]
    heads = c.shape.heads if c.family == "gpt" else c.shape.kv
    if hidden != hidden_flops(c) and heads % c.degree("tp") == 0:
        yield f"{hidden} FLOPs stated as hidden by the mask, {hidden_flops(c)} by the formula"
    again = report["repeated_flops"]
    if again != repeated_flops(c) and heads % c.degree("tp") == 0:
        yield f"{again} FLOPs stated as done twice, {repeated_flops(c)} by the formula"
    if sum(executed) != step_flops(c) - hidden + stated + again:
        yield f"{sum(executed)} FLOPs executed, {step_flops(c)} - {hidden} + {stated} + {again} stated"
    for die, (highest, peak) in enumerate(
        zip(trainer.machine.peak_bytes(), report["memory"]["peak_bytes_per_die"], strict=True)
    ):
        if not 0 <= peak - highest < 64:
            yield f"die {die} wrote up to {highest} and should reach {peak}"
    yield from violations(planned)
    moved = sum(trainer.machine.traffic().values())
    if moved != 2 * report["traffic_bytes"]:
        yield f"{moved} bytes x links in two steps, {report['traffic_bytes']} stated for one"
    for kind in (Kind.PARAM, Kind.GRAD, Kind.STATE):
        held, formed = matrix_bytes(planned, kind), matrix_bytes_formula(c, kind)
        if held != formed:
            yield f"{held} bytes of {kind} of matrices by stage, {formed} by the formula"


def gemm_flops(module: Module, die: int) -> int:
    """FLOPs of all products that one die executes in a step."""
    each = module.dies_used // module.stages
    total = 0
    for call, times in calls(module.steps()[die // each]):
        for k in module.procedure(call.procedure).body:
            if isinstance(k, Kernel) and k.opcode == "gemm" and at(k.where, die):
                total += 2 * times * k.writes[0].elements * k.reads[0].shape[-1]
    return total


def layer_elements(c: Composition) -> int:
    """Elements of a layer's matrices: attention's four (grouped keys and values for llama), and the MLP's."""
    s = c.shape
    if c.family == "gpt":
        return 4 * s.d * s.d + 2 * s.d * s.ffn
    return 2 * s.d * s.d + 2 * s.d * s.kv * (s.d // s.heads) + 3 * s.d * s.ffn


def step_flops(c: Composition) -> int:
    """6 per token and weight, 14 per pair of tokens and channel in attention (two products forward, five
    backward), for the whole machine."""
    s = c.shape
    tokens = s.batch * s.seq
    weights = s.layers * layer_elements(c) + s.vocab * s.d
    return 6 * tokens * weights + attention_flops(c)


def attention_flops(c: Composition) -> int:
    s = c.shape
    return 14 * s.layers * s.batch * s.seq * s.seq * s.d


def hidden_flops(c: Composition) -> int:
    """What a causal mask hides of attention, shard by shard, where keys stream: of T shards of keys the last
    queries see all and the first see one; in zigzag (pieces of half a shard, one early and one late) each die sees
    2 T + 1 of 4 T pairs. tatp splits the sequence where a call has too few rows for it."""
    s, sp, tatp = c.shape, c.degree("sp"), c.degree("tatp")
    inner = tatp if s.batch // s.calls // c.degree("dp") % tatp else 1
    if sp > 1 and c.wafer.die.tile == 1 and s.seq % (2 * sp * inner) == 0:
        return attention_flops(c) * (2 * sp - 1) // (4 * sp)
    shards = sp if sp > 1 else inner
    return attention_flops(c) * (shards - 1) // (2 * shards)


def repeated_flops(c: Composition) -> int:
    """Two of the seven products of attention, done twice where keys come in chunks."""
    s = c.shape
    chunks = c.degree("sp") > 1 or s.batch // s.calls // c.degree("dp") % c.degree("tatp") > 0
    return (attention_flops(c) - hidden_flops(c)) * 2 // 7 if chunks else 0


def matrix_bytes(module: Module, kind: Kind) -> list[int]:
    """By stage, the bytes of weight matrices, their gradients or optimizer state that one die holds."""
    totals = [0] * module.stages
    for a in module.arrays:
        if a.kind is kind and not a.storage and is_matrix(a.of or a.name):
            own = prod(a.type.local_shape(module.sizes)) * a.type.dtype.size * a.count
            for stage in range(module.stages) if a.stage < 0 else [a.stage]:
                totals[stage] += own
    return totals


def is_matrix(name: str) -> bool:
    return name.split(".")[0] in ("wte", "head") or name.startswith("block.w")


def matrix_bytes_formula(c: Composition, kind: Kind) -> list[int]:
    """Layers spread evenly over chunks, chunk i on stage i mod pp, and one more where neither embedding nor head is
    (with two stages, on the first); the word table on the first and last stage, but of a tied one gradient and state
    only on the first; everything over tp x tatp. Over dp x sp too for `zero 3`, and for `zero 1` the two of the
    optimizer and the gradient that it reads, beside the sums of each replica."""
    s, pp, replicas = c.shape, c.degree("pp"), c.degree("dp") * c.degree("sp")
    share = c.degree("tp") * c.degree("tatp") * (replicas if c.zero == 3 else 1)
    chunks = pp * c.interleave
    layers = [0] * pp
    for i in range(chunks):
        layers[i % pp] += s.layers // chunks + (s.layers % chunks > 0 and i == (pp > 2))
    homes = (0,) if kind is not Kind.PARAM and c.family == "gpt" else (0, pp - 1)
    tables = [s.vocab * s.d if i in homes else 0 for i in range(pp)]
    if pp == 1 and c.family == "llama":
        tables = [2 * s.vocab * s.d]
    elements = [(n * layer_elements(c) + t) // share * 8 for n, t in zip(layers, tables, strict=True)]
    if kind is Kind.STATE:
        return [2 * n // (replicas if c.zero == 1 else 1) for n in elements]
    if kind is Kind.GRAD and c.zero == 1:
        return [n + n // replicas for n in elements]
    return elements


def main(every: int) -> int:
    wrong = 0
    chosen = list(compositions())[::every]
    for i, c in enumerate(chosen, 1):
        found = list(failures(c))
        wrong += bool(found)
        for line in found:
            print(f"{c}: {line}", flush=True)
        if i % 20 == 0:
            print(f"{i} of {len(chosen)}, {wrong} wrong", flush=True)
    print(f"{len(chosen)} compositions, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
