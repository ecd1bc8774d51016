"""What `roof` measures: models on wafers, with a goal for the MFU, and the strategies that compete there.

A strategy is written as the options that make it, `tp=2,tatp=16 microbatch=4 recompute=selective zero=1`. `ours` is the
best that was found by hand among all axes. The others keep to what a published system has: `megatron` dp, tp and pp
(Narayanan et al., arXiv 2104.04473), with the sequence split in norms; `mesp` sp and tp; `fsdp` dp with zero 3. `seed`
is a configuration as it was published, with its goal, or the optimum that was published, beside ours. `RIVALS` says
the same by pins, for the best that a search finds of each. `mesp` has zero 1 at most, the distributed optimizer of
Megatron-LM: under zero 3, weights that `sp` shares out would travel in streams as with `tatp`, which is not theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from wscc.strategy import POLICIES

GPT, LLAMA_7B, LLAMA_70B = (f"samples/{name}.wsl" for name in ("gpt3-175b", "llama2-7b", "llama2-70b"))
OURS, MEGATRON, MESP, FSDP, SEED = "ours", "megatron", "mesp", "fsdp", "seed"
# What the search does not vary, by who competes.
RIVALS: Final = {
    OURS: (),
    MEGATRON: ("sp=1", "tatp=1"),
    MESP: ("pp=1", "dp=1", "tatp=1", "zero=1"),
    FSDP: ("pp=1", "sp=1", "tp=1", "tatp=1", "zero=3"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A model and a wafer, as a sample and what `--set` changes of it; `batch` is in sequences of a step. `strategies`
    are by name, those that were the fastest first."""

    name: str
    sample: str
    sets: tuple[str, ...]
    batch: int
    goal: float
    strategies: dict[str, tuple[str, ...]] = field(hash=False)


def pins_of_degrees(strategy: str) -> tuple[str, ...]:
    """The degrees of a strategy of this table as pins; of its axes that are not named, 1."""
    degrees = dict(pair.split("=") for pair in strategy.split()[0].split(","))
    return tuple(f"{axis}={degrees.get(axis, 1)}" for axis in POLICIES)


def _gpt_6b7(seq: int, mesh: str) -> tuple[str, ...]:
    """GPT-3 6.7B (Brown et al., arXiv 2005.14165, table 2.1), with another sequence length."""
    return ("model.layers=32", "model.d=4096", "model.heads=32", f"model.seq={seq}", f"wafer.mesh={mesh}")


_13B: Final = (
    "model.layers=40", "model.d=5120", "model.heads=40", "model.kv=40", "model.ffn=13824", "wafer.die.sram=40 MB",
)  # fmt: skip

CASES: Final = (
    Case("gpt3-175b 6x8", GPT, (), 1536, 0.55, {
        OURS: ("tp=3,tatp=16 microbatch=3 recompute=selective", "tp=3,tatp=16 microbatch=4 recompute=selective"),
        MEGATRON: ("pp=6,tp=8 microbatch=2 recompute=full", "pp=6,tp=8 microbatch=1 recompute=full"),
        MESP: ("sp=2,tp=24 microbatch=1 recompute=full",),
        FSDP: ("dp=48 microbatch=1 recompute=full zero=3",),
    }),
    Case("gpt3-175b 12x12", GPT, ("wafer.mesh=12x12",), 1440, 0.60, {
        OURS: (
            "dp=3,tp=3,tatp=16 microbatch=4 recompute=selective", "dp=3,pp=6,tp=8 microbatch=2 recompute=full",
            "pp=3,tp=3,tatp=16 microbatch=2 recompute=full",
        ),
        MEGATRON: (
            "dp=3,pp=6,tp=8 microbatch=2 recompute=full", "pp=18,tp=8 microbatch=1 recompute=full",
            "pp=12,tp=12 microbatch=1 recompute=full",
        ),
        MESP: ("sp=2,tp=48 microbatch=1 recompute=full",),
        FSDP: ("dp=144 microbatch=1 recompute=full zero=3",),
    }),
    Case("gpt3-175b 8x16", GPT, ("wafer.mesh=8x16",), 1536, 0.60, {
        OURS: (
            "dp=2,tp=4,tatp=16 microbatch=4 recompute=selective",
            "pp=2,tp=4,tatp=16 microbatch=4 recompute=selective",
        ),
        SEED: (
            "sp=2,tp=4,tatp=16 microbatch=4 recompute=selective",
            "sp=2,tp=4,tatp=16 microbatch=8 recompute=selective",
        ),
    }),
    Case("llama2-7b 4x8", LLAMA_7B, (), 256, 0.82, {
        OURS: (
            "dp=2,tp=2,tatp=8 microbatch=2 recompute=selective zero=1",
            "tp=2,tatp=16 microbatch=4 recompute=selective",
        ),
        MEGATRON: (
            "dp=4,tp=8 microbatch=1 recompute=selective", "dp=8,tp=4 microbatch=1 recompute=selective",
            "dp=4,pp=4,tp=2 microbatch=1 recompute=selective",
        ),
        MESP: ("sp=4,tp=8 microbatch=1 recompute=selective", "sp=8,tp=4 microbatch=1 recompute=selective"),
        FSDP: ("dp=32 microbatch=1 recompute=selective zero=3",),
    }),
    Case("llama2-70b 4x8", LLAMA_70B, (), 256, 0.82, {
        OURS: ("tp=2,tatp=16 microbatch=2 recompute=selective",),
        MEGATRON: (
            "pp=4,tp=8 microbatch=1 recompute=full", "tp=32 microbatch=1 recompute=full",
            "dp=2,tp=16 microbatch=1 recompute=full zero=1",
        ),
        MESP: ("sp=2,tp=16 microbatch=1 recompute=full",),
        FSDP: ("dp=32 microbatch=1 recompute=full zero=3",),
    }),
    Case("gpt3-6.7b 2k 4x8", GPT, _gpt_6b7(2048, "4x8"), 1024, 0.75, {
        OURS: (
            "dp=2,tatp=16 microbatch=4 recompute=selective zero=1",
            "tp=2,tatp=16 microbatch=4 recompute=selective",
        ),
        MEGATRON: (
            "dp=4,tp=8 microbatch=1 recompute=selective", "dp=8,tp=4 microbatch=1 recompute=selective",
            "dp=4,pp=4,tp=2 microbatch=1 recompute=selective",
        ),
        MESP: ("sp=4,tp=8 microbatch=1 recompute=selective", "sp=8,tp=4 microbatch=1 recompute=selective"),
        SEED: (
            "dp=2,tp=2,tatp=8 microbatch=4 recompute=selective", "dp=2,tp=2,tatp=8 microbatch=2 recompute=selective",
        ),
        FSDP: ("dp=32 microbatch=1 recompute=selective zero=3",),
    }),
    Case("gpt3-6.7b 8k 4x8", GPT, _gpt_6b7(8192, "4x8"), 256, 0.75, {
        OURS: ("tp=2,tatp=16 microbatch=1 recompute=selective", "tatp=32 microbatch=1 recompute=selective"),
        MEGATRON: ("dp=4,tp=8 microbatch=1 recompute=full", "dp=2,tp=16 microbatch=1 recompute=full"),
        MESP: ("sp=4,tp=8 microbatch=1 recompute=selective", "sp=8,tp=4 microbatch=1 recompute=selective"),
        FSDP: ("dp=32 microbatch=1 recompute=full zero=3",),
    }),
    Case("gpt3-6.7b 16k 4x8", GPT, _gpt_6b7(16384, "4x8"), 128, 0.75, {
        OURS: ("tp=2,tatp=16 microbatch=1 recompute=selective", "tatp=32 microbatch=1 recompute=selective"),
        MEGATRON: ("dp=2,tp=16 microbatch=1 recompute=full", "tp=32 microbatch=1 recompute=full"),
        MESP: ("sp=8,tp=4 microbatch=1 recompute=full", "sp=4,tp=8 microbatch=1 recompute=full"),
        FSDP: ("dp=32 microbatch=1 recompute=full zero=3",),
    }),
    Case("llama2-70b 8x8", LLAMA_70B, ("wafer.mesh=8x8",), 256, 0.70, {
        OURS: (
            "dp=2,tp=2,tatp=16 microbatch=2 recompute=selective", "tp=4,tatp=16 microbatch=2 recompute=selective",
        ),
        MEGATRON: (
            "dp=2,pp=4,tp=8 microbatch=1 recompute=full", "pp=8,tp=8 microbatch=1 recompute=full",
            "pp=4,tp=16 microbatch=1 recompute=full",
        ),
        MESP: ("sp=2,tp=32 microbatch=1 recompute=full", "sp=4,tp=16 microbatch=1 recompute=full"),
        FSDP: ("dp=64 microbatch=1 recompute=full zero=3",),
    }),
    Case("llama2-13b half-sram 4x8", LLAMA_7B, _13B, 256, 0.60, {
        OURS: (
            "sp=16,tp=2 microbatch=2 recompute=none zero=3", "tp=4,tatp=8 microbatch=1 recompute=none",
            "tp=2,tatp=16 microbatch=2 recompute=selective",
        ),
        MEGATRON: (
            "dp=8,tp=4 microbatch=1 recompute=full", "dp=4,tp=8 microbatch=1 recompute=selective",
            "pp=4,tp=8 microbatch=1 recompute=selective",
        ),
        MESP: ("sp=4,tp=8 microbatch=1 recompute=selective",),
        FSDP: ("dp=32 microbatch=1 recompute=selective zero=3",),
    }),
    Case("seed 6b 2k 8x16", GPT, _gpt_6b7(2048, "8x16"), 1024, 0.60, {
        SEED: ("dp=8,tatp=16 microbatch=4 recompute=selective", "dp=8,tatp=16 microbatch=16 recompute=selective"),
    }),
    Case("seed 6b 8k 4x8", GPT, _gpt_6b7(8192, "4x8"), 256, 0.60, {
        SEED: ("tatp=32 microbatch=2 recompute=selective", "tatp=32 microbatch=1 recompute=selective"),
    }),
    Case("seed 70b 4k 8x8", LLAMA_70B, ("wafer.mesh=8x8",), 256, 0.60, {
        SEED: ("pp=4,tatp=16 microbatch=2 recompute=selective", "pp=4,tatp=16 microbatch=1 recompute=selective"),
    }),
    Case("seed 70b 8k 8x8", LLAMA_70B, ("wafer.mesh=8x8", "model.seq=8192"), 128, 0.60, {
        SEED: ("sp=8,tatp=8 microbatch=8 recompute=selective zero=3", "sp=8,tatp=8 microbatch=1 recompute=full zero=3"),
    }),
)  # fmt: skip
