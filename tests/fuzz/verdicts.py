"""Programs of all strategies and element types that `wscc run --check` must pass, and mistakes that it must see.

python -m tests.fuzz.verdicts [PROGRAMS] [SEED]     draws programs, makes each mistake in each; exit status 1 if a
                                                    right one fails or a mistake is not seen
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from tests.fuzz import kinds
from tests.fuzz.narrowings import named, narrowings, written
from tests.support.compile_once import artifact_of_file
from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter import binding
from wscc.backends.interpreter.kernels.table import kernel
from wscc.diagnostics import CompileError
from wscc.driver.train import RunOptions, Trainer
from wscc.host.verdict import Check
from wscc.ir.array import Kind
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Instruction
from wscc.ir.types import DType

_HEAD: Final = """
  input tokens : i32[batch, seq]  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
"""
FAMILIES: Final = {
    "gpt": _HEAD + """
  param wpe : [seq, d] init normal(0.3)
  x = embedding(tokens, wte) + wpe
  repeat layers as block {
    param g1 : [d] init ones            param b1 : [d] init normal(0.3)
    param wqkv : [d, 3, kv, e] init normal(0.3)    param bqkv : [3, kv, e] init normal(0.3)
    param wo : [kv, e, d] init normal(0.3)
    q, k, v = split(project(layernorm(x, g1, b1), wqkv) + bqkv)
    x = x + project(attention(q, k, v, causal), wo)
    param wup : [d, ffn] init normal(0.3)          param bup : [ffn] init normal(0.3)
    param wdown : [ffn, d] init normal(0.3)
    x = x + gelu(x @ wup + bup) @ wdown
  }
  param gf : [d] init ones              param bf : [d] init normal(0.3)
  loss cross_entropy(layernorm(x, gf, bf) @ transpose(wte), labels)
""",
    "llama": _HEAD + """
  x = embedding(tokens, wte)
  repeat layers as block {
    param g1 : [d] init ones
    param wq : [d, kv, 2, e] init normal(0.3)      param wk : [d, kv, e] init normal(0.3)
    param wv : [d, kv, e] init normal(0.3)         param wo : [kv, 2, e, d] init normal(0.3)
    h = rmsnorm(x, g1)
    x = x + project(attention(rope(project(h, wq)), rope(project(h, wk)), project(h, wv), causal), wo)
    param g2 : [d] init ones
    param wgate : [d, ffn] init normal(0.3)        param wup : [d, ffn] init normal(0.3)
    param wdown : [ffn, d] init normal(0.3)
    h = rmsnorm(x, g2)
    x = x + swiglu(h @ wgate, h @ wup) @ wdown
  }
  param gf : [d] init ones              param head : [d, vocab] init normal(0.3)
  loss cross_entropy(rmsnorm(x, gf) @ head, labels)
""",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """A model of two layers, in three element types; `micro` 0: as many sequences as the strategy needs."""

    family: str
    parallel: str
    compute: str
    params: str
    grads: str
    optimizer: str = "adamw(lr = 1e-2)"
    calls: int = 1
    recompute: str = "none"
    more: str = ""
    d: int = 8
    seq: int = 8
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.family} {self.parallel} {self.compute}-{self.params}-{self.grads}"

    @property
    def text(self) -> str:
        degrees = {a.split()[0]: int(a.split()[2]) for a in self.parallel.split(", ")}
        micro = degrees.get("tatp", 1)
        return (
            "wafer w {\n mesh 2 x 4\n die { peak 1 TFLOP/s, sram 80 MB }\n"
            " link { bandwidth 1 TB/s, latency 100 ns }\n}\n"
            f"model m(layers = 2, d = {self.d}, kv = 2, e = 4, ffn = 16, vocab = 16, seq = {self.seq})"
            f" {{{FAMILIES[self.family]}}}\n"
            f"train m on w {{\n batch {degrees.get('dp', 1) * micro * self.calls}  microbatch {micro}\n"
            f" optimizer {self.optimizer}\n dtype compute {self.compute}, params {self.params}, grads {self.grads}\n"
            f" recompute {self.recompute}\n parallel {self.parallel}\n seed {self.seed}\n {self.more}\n}}\n"
        )


def artifact(program: Program, folder: Path) -> Artifact:
    """The program compiled, without a report."""
    path = folder / "m.wsl"
    path.write_text(program.text)
    return artifact_of_file(path)


def check(made: Artifact, steps: int, seed: int | None = None, *, checked: bool = False) -> Check:
    """The verdict of `wscc run --check`, which is in checked mode."""
    trainer = Trainer(made, RunOptions(steps=steps, threads=1, seed=seed, checked=checked))
    checker = trainer.checker()
    for i, loss in enumerate(trainer.steps()):
        checker.step(trainer.batches.batch(i), trainer.result(loss))
    return checker.check()


# ------------------------------------------------------------------------------------------------- mistakes

# Which results of an instruction to round, and to which type; nothing where it stays as it is.
Rounding = Callable[[str, Sequence[DType]], tuple[Sequence[int], DType] | None]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in a program: `rounding` of results as they are stored, or another `instruction`."""

    name: str
    rounding: Rounding | None = None
    instruction: Callable[[Instruction, int], Instruction] | None = None
    needs: tuple[str, ...] = ("", "", "")  # types of compute, params, grads, "" for any
    hides: bool = False  # in the noise of bf16, if what it takes is small
    inside: bool = False  # a step: checked mode tells it, the comparison with one device need not

    def __str__(self) -> str:
        return self.name

    def applies(self, *types: str) -> bool:
        """Whether it is one in these types of compute, params and grads."""
        return all(need in ("", t) for need, t in zip(self.needs, types, strict=True))

    @contextmanager
    def made(self, right: Artifact) -> Iterator[Artifact]:
        """The program with the mistake in it, while this is entered."""
        if self.instruction is not None:
            yield _with_instructions(right, self.instruction)
            return
        binding.kernel = self._kernel
        try:
            # Not the same object: its routines are remembered, with the kernels that they have.
            yield replace(right, streams=replace(right.streams))
        finally:
            binding.kernel = kernel

    def _kernel(
        self, opcode: str, dtypes: Sequence[Any], writes: int, accumulate: bool
    ) -> Callable[..., None]:
        run = kernel(opcode, dtypes, writes, accumulate)
        assert self.rounding is not None
        found = self.rounding(opcode, [DType.of(d) for d in dtypes])
        if found is None:
            return run
        results, narrow = found

        def rounded(*args: Any) -> None:
            run(*args)
            for i in results:
                args[i][...] = args[i].astype(narrow.numpy).astype(args[i].dtype)

        return rounded


def _with_instructions(right: Artifact, change: Callable[[Instruction, int], Instruction]) -> Artifact:
    seen: Counter[str] = Counter()

    def changed(x: Instruction) -> Instruction:
        seen[x.opcode] += 1
        return change(x, seen[x.opcode] - 1)

    programs = tuple(
        replace(p, procedures=tuple(replace(c, body=tuple(map(changed, c.body))) for c in p.procedures))
        for p in right.streams.programs
    )
    return replace(right, streams=replace(right.streams, programs=programs))


def _stored(result: int) -> Rounding:
    def rounding(opcode: str, dtypes: Sequence[DType]) -> tuple[Sequence[int], DType] | None:
        stores = opcode == "adamw" or (opcode == "sgd" and result == 0)
        return ((result,), DType.BF16) if stores and dtypes[result] is DType.F32 else None

    return rounding


# Which results of these instructions are gradients of weights.
_OF_WEIGHTS: Final = {
    "gemm": (0,), "sum": (0,), "scatter_add": (0,), "layernorm_bwd": (1, 2), "rmsnorm_bwd": (1,),
}  # fmt: skip


def _gradients(opcode: str, dtypes: Sequence[DType]) -> tuple[Sequence[int], DType] | None:
    """Each contribution that bf16 operands make to a gradient in f32."""
    results = _OF_WEIGHTS.get(opcode, ())
    is_one = results and dtypes[results[0]] is DType.F32 and dtypes[-1] is DType.BF16
    return (results, DType.BF16) if is_one else None


def _loss(opcode: str, dtypes: Sequence[DType]) -> tuple[Sequence[int], DType] | None:
    """The loss, as its parts are added up."""
    is_one = opcode in ("mean", "add") and dtypes[0] is DType.F32 and opcode != "add"
    return ((0,), DType.BF16) if is_one else None


def _products(opcode: str, dtypes: Sequence[DType]) -> tuple[Sequence[int], DType] | None:
    return ((0,), DType.BF16) if opcode == "gemm" and dtypes[0] is DType.F32 else None


def roundings_in(made: Artifact) -> tuple[Mistake, ...]:
    """One rounding to bf16 more of what an instruction writes in f32, for each opcode and operand."""
    places = written(made, lambda x, o: o.dtype is DType.F32)
    return tuple(Mistake(f"{named(p)} is rounded to bf16", _rounded_in(*p), inside=True) for p in places)


def _rounded_in(opcode: str, i: int) -> Rounding:
    return lambda op, types: ((i,), DType.BF16) if op == opcode and types[i] is DType.F32 else None


def _scaled(name: str, factor: float) -> Callable[[Instruction, int], Instruction]:
    def change(x: Instruction, number: int) -> Instruction:
        if not INSTRUCTIONS[x.opcode].updates:
            return x
        return replace(x, attrs=tuple((n, v * factor if n == name else v) for n, v in x.attrs))

    return change


def _forgotten(n: int) -> Callable[[Instruction, int], Instruction]:
    """The n-th addition copies its first operand: a partial sum, or a skip connection, is lost."""
    return lambda x, number: (
        replace(x, opcode="copy", reads=x.reads[:1]) if x.opcode == "add" and number == n else x
    )


MISTAKES: Final = (
    Mistake("weights in f32 are stored in bf16", _stored(0), needs=("", "f32", "")),
    Mistake("first moments in f32 are stored in bf16", _stored(1), needs=("", "", "f32")),
    Mistake("second moments in f32 are stored in bf16", _stored(2), needs=("", "", "f32")),
    Mistake("contributions to gradients in f32 are in bf16", _gradients, needs=("bf16", "", "f32")),
    Mistake("the learning rate is 2^-7 too large", instruction=_scaled("lr", 1 + 2**-7)),
    Mistake("beta2 is 1.001 times too large", instruction=_scaled("beta2", 1.001)),
    Mistake("an addition is forgotten", instruction=_forgotten(3), hides=True),
    Mistake("another addition is forgotten", instruction=_forgotten(8), hides=True),
)
# These need f32 to be the type of computation: in bf16, their results are rounded soon after.
IN_F32: Final = (Mistake("products in f32 are in bf16", _products, needs=("f32", "", "")),)


# ---------------------------------------------------------------------------------------------------- draws


def drawn(rng: random.Random) -> Program:
    """A program on at most eight dies."""
    degrees = {axis: rng.choice((1, 1, 2, 2, 4)) for axis in ("pp", "dp", "sp", "tp", "tatp")}
    degrees["pp"], degrees["tp"] = min(degrees["pp"], 2), min(degrees["tp"], 2)
    while prod(degrees.values()) > 8:
        degrees[rng.choice(list(degrees))] = 1
    parallel = ", ".join(f"{a} = {n}" for a, n in degrees.items() if n > 1) or "dp = 1"
    zero = f"zero {rng.choice((0, 1, 3))}" if degrees["dp"] > 1 or degrees["sp"] > 1 else ""
    more = rng.choice(
        ("", "clip 0.5", "lr_schedule warmup(3)", "clip 1.0 lr_schedule warmup(2), cosine(9, 0.1)")
    )
    optimizer = rng.choice(("adamw(lr = 1e-2)", "adamw(lr = 1e-3, weight_decay = 0.1)", "sgd(lr = 1e-2)"))
    return Program(
        rng.choice(list(FAMILIES)), parallel, *(rng.choice(("f64", "f32", "bf16")) for _ in range(3)), optimizer,
        rng.choice((1, 2, 4)), rng.choice(("none", "selective", "full")), f"{zero} {more}",
        rng.choice((8, 16, 32)), rng.choice((8, 16)), rng.randrange(1000),
    )  # fmt: skip


def _bits(made: Artifact) -> tuple[bytes, ...]:
    """All that two steps of a program compute."""
    trainer = Trainer(made, RunOptions(steps=2, threads=1))
    losses = np.array(list(trainer.steps()))
    kinds = (Kind.PARAM, Kind.STATE, Kind.GRAD)
    return (losses.tobytes(), *(x.tobytes() for kind in kinds for x in trainer.arrays(kind).values()))


def judged(program: Program, folder: Path, counts: Counter[str]) -> Iterator[str]:
    """What the verdict says wrong of the program and of each mistake in it that changes a bit."""
    try:
        made = artifact(program, folder)
    except CompileError:
        counts["refused"] += 1
        return
    yield from (f"{program}: {wrong}\n{program.text}" for wrong in _of_right(made, counts))
    right = _bits(made)
    for mistake in (*MISTAKES, *IN_F32, *roundings_in(made)):
        if mistake.applies(program.compute, program.params, program.grads):
            with mistake.made(made) as wrong:
                if not passes(wrong, steps=2, checked=mistake.inside):
                    counts[f"seen: {mistake}"] += 1
                elif _differs(wrong, right):
                    counts[f"not seen: {mistake}"] += 1
                    if not (mistake.hides and "bf16" in (program.compute, program.grads)):
                        yield f"{program}: {mistake}, and that is not seen\n{program.text}"


def narrowed(
    program: kinds.Drawn, rng: random.Random, counts: Counter[str], *, steps: int = 2, most: int = 60
) -> Iterator[str]:
    """What the verdict says wrong of the program, and of at most so many of the ways in which it may be narrower."""
    made = program.artifact()
    yield from (f"{program}: {wrong}" for wrong in _of_right(made, counts, steps))
    mistakes = narrowings(made)
    for name, narrow in rng.sample(mistakes, min(most, len(mistakes))):
        seen = not passes(narrow(made), steps=1, checked=True)
        counts["seen: narrower" if seen else f"not seen: {name}"] += 1
        if not seen:
            yield f"{program}: {name}, and that is not seen"


def _of_right(made: Artifact, counts: Counter[str], steps: int = 2) -> Iterator[str]:
    counts["right programs"] += 1
    try:
        verdict = check(made, steps, checked=True)
        if not verdict.ok:
            yield str(verdict)
    except CompileError as error:
        yield str(error)


def _differs(wrong: Artifact, right: tuple[bytes, ...]) -> bool:
    try:
        return _bits(wrong) != right
    except CompileError:  # replicas differ
        return True


def passes(made: Artifact, steps: int, *, checked: bool) -> bool:
    """Whether `wscc run --check` says nothing of a program."""
    try:
        return check(made, steps, checked=checked).ok
    except CompileError:  # replicas differ, or checked mode ends the run
        return False


def main(count: int, seed: int) -> int:
    counts: Counter[str] = Counter()
    failures = 0
    with TemporaryDirectory() as folder:
        for i in range(seed, seed + count):
            rng = random.Random(i)
            of_kind = kinds.drawn(random.Random(i), kinds.NAMES[i % len(kinds.NAMES)])
            for failure in (*judged(drawn(rng), Path(folder), counts), *narrowed(of_kind, rng, counts)):
                failures += 1
                print(f"draw {i}: {failure}", flush=True)
    for name, number in sorted(counts.items()):
        print(f"{number:>6}  {name}")
    print(f"{failures} wrong verdicts")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:2] or ["100"])[0]), int((sys.argv[2:3] or ["0"])[0])))
