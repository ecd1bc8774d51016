"""Tiny programs of all kinds of model and of machine: texts, encoders, experts, images, graphs, dropout, blocks from a
slow memory, sizes that no degree divides, a torus and two wafers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.support.paths import SAMPLES
from wscc.backends.artifact.files import Artifact
from wscc.driver.compile import compile_source
from wscc.files import read_source
from wscc.frontend.overrides import Overrides

_LAYERS: Final = ("model.layers=2", "model.d=16")
_TEXT: Final = (*_LAYERS, "model.seq=8", "train.batch=8", "train.microbatch=2")
_GPT: Final = (*_TEXT, "model.heads=2")
# With the sample: what makes it tiny, and strategies.
_KINDS: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "gpt": ("gpt-tiny", _GPT, ("tp=2,dp=2", "sp=2,tatp=2", "pp=2,tatp=2", "dp=2,sp=2")),
    "llama": ("llama-tiny", _TEXT, ("sp=2,tp=2", "dp=2,tatp=2", "pp=2,sp=2", "tatp=2")),
    "experts": (
        "moe-tiny", (*_LAYERS, "model.ffn=16", "model.seq=8", "train.batch=8", "train.microbatch=4"),
        ("ep=4,tp=2", "ep=2,dp=2", "tatp=4", "pp=2,ep=2"),
    ),
    "images": (
        "vit-tiny", (*_LAYERS, "model.ffn=16", "train.batch=4", "train.microbatch=2", "wafer.mesh=2x4"),
        ("sp=2", "tp=2,tatp=2", "dp=2,sp=2", "pp=2"),
    ),
    "graphs": ("gcn-tiny", ("model.d=8", "wafer.mesh=2x2"), ("tatp=2", "tp=2", "sp=2", "tp=2,tatp=2")),
    "dropout": ("gpt-tiny", _GPT, ("tp=2,dp=2", "sp=2,tatp=2", "pp=2,tatp=2")),
    "slow memory": (
        "llama-tiny",
        (*_TEXT, "model.seq=16", "wafer.die.sram=8 KB", "wafer.die.hbm=1 GB at 1 GB/s", "wafer.die.tile=4"),
        ("tatp=2,tp=2", "tatp=4", "dp=2,tp=2"),
    ),
    "encoder": (
        "bert-base",
        (*_LAYERS, "model.heads=4", "model.ffn=24", "model.vocab=258", "model.seq=8", "train.batch=4",
         "train.microbatch=2"),
        ("dp=2,tp=2", "sp=2,tatp=2", "pp=2,tp=2", "tatp=2"),
    ),
    "uneven": (
        "bert-base",
        (*_LAYERS, "model.heads=5", "model.d=20", "model.ffn=24", "model.vocab=258", "model.seq=13", "train.batch=14",
         "train.microbatch=4"),
        ("dp=2,sp=4", "dp=2,tp=2,tatp=2", "pp=2,dp=2,sp=2"),
    ),
    "torus": ("gpt-tiny", (*_GPT, "wafer.mesh=2x4 torus"), ("tatp=4", "sp=2,dp=2", "tp=2,tatp=2")),
    "wafers": ("gpt-tiny-2wafers", _GPT, ("dp=2,tp=2", "tatp=4", "pp=2,sp=2")),
}  # fmt: skip
NAMES: Final = tuple(_KINDS)
TYPES: Final = ("f64", "f32", "bf16")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program of a kind, in types of computation, parameters and gradients."""

    kind: str
    parallel: str
    types: tuple[str, str, str]
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.parallel} {'-'.join(self.types)} {' '.join(self.more)}".rstrip()

    def artifact(self) -> Artifact:
        """The program compiled."""
        sample, small, _ = _KINDS[self.kind]
        dtype = "train.dtype=compute {}, params {}, grads {}".format(*self.types)
        sets = (*small, dtype, f"train.parallel={self.parallel.replace('=', ' = ').replace(',', ', ')}")
        source = read_source(SAMPLES / f"{sample}.wsl")
        if self.kind == "dropout":
            source = replace(source, text=with_dropout(source.text))
        return compile_source(source, Overrides(sets=(*sets, *self.more))).artifact


def with_dropout(gpt: str) -> str:
    """The text of a GPT with two places in each layer where something is dropped."""
    text = gpt.replace("+ bo\n", "+ dropout(bo + h, rate = 0.25)\n")
    text = text.replace("gelu(h @ wup + bup) @ wdown", "dropout(gelu(h @ wup + bup) @ wdown, rate = 0.5)")
    assert text.count("dropout") == 2
    return text


def strategies(kind: str) -> tuple[str, ...]:
    """Strategies with which the kind compiles, as `--parallel` takes them."""
    return _KINDS[kind][2]


def drawn(rng: Random, kind: str) -> Drawn:
    """A program of the kind in any types."""
    more = (
        f"train.recompute={rng.choice(('none', 'selective', 'full'))}",
        f"train.seed={rng.randrange(1000)}",
    )
    c, p, g = (rng.choice(TYPES) for _ in range(3))
    return Drawn(kind, rng.choice(strategies(kind)), (c, p, g), more)
