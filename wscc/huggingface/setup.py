"""A wafer and a strategy for an imported model: something that compiles, for a person to change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from wscc.huggingface.architecture import Architecture
from wscc.machine.presets import PRESETS

PRESET: Final = "temp-4x8"
_BYTES: Final = 16  # of a parameter: weight, gradient and two of AdamW in f32
_ROOM: Final = 0.85  # of a die for these; the rest is for what a layer computes
_FEW: Final = 8  # dies that the weights are spread over at least, where they can be
_MESHES: Final = ((4, 8), (6, 8), (8, 8), (8, 12), (8, 16), (16, 16), (16, 32), (32, 32))


@dataclass(frozen=True, slots=True)
class Setup:
    """`fits` is whether weights, gradients and optimizer state find room."""

    rows: int
    cols: int
    tp: int
    tatp: int
    dp: int
    fits: bool

    @property
    def recompute(self) -> str:
        return "selective" if self.rows * self.cols <= 32 else "full"


def setup(a: Architecture) -> Setup:
    """The smallest mesh of the preset's dies whose `tp x tatp` dies hold the model."""
    die = PRESETS[PRESET].die
    needed = a.weights * _BYTES / ((die.sram + die.hbm) * _ROOM)
    pairs = sorted(_degrees(a), key=lambda p: (p[0] * p[1], abs(p[1] - 2 * p[0])))
    dies = _MESHES[-1][0] * _MESHES[-1][1]
    holding = [(tp, tatp) for tp, tatp in pairs if needed <= tp * tatp <= dies]
    roomy = [(tp, tatp) for tp, tatp in holding if tp * tatp >= _FEW]
    tp, tatp = roomy[0] if roomy else (holding or pairs)[-1]
    rows, cols = next(m for m in _MESHES if m[0] * m[1] >= tp * tatp)
    return Setup(rows, cols, tp, tatp, 2 if 2 * tp * tatp <= rows * cols else 1, bool(holding))


def _degrees(a: Architecture) -> list[tuple[int, int]]:
    """`tp` and `tatp` that split every matrix evenly."""
    splits = [
        (tp, tatp)
        for tp, tatp in product((1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8, 16, 32))
        if a.kv % tp == 0 and a.ffn % (tp * tatp) == 0 and a.d % (tp * tatp) == 0
    ]
    return [(tp, tatp) for tp, tatp in splits if length(a) % tatp == 0 and length(a) % tp == 0]


def length(a: Architecture) -> int:
    """Tokens of a sequence: all learned positions; of rotary ones, which have no end, what is common."""
    return min(a.positions, 4096) if a.gated else a.positions
