"""A wafer and a strategy for an imported model: a start that compiles, for a person to change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from wscc.huggingface.architecture import Architecture
from wscc.machine.presets import PRESETS

PRESET: Final = "temp-4x8"
_BYTES: Final = 16  # of a parameter: weight, gradient and two of AdamW in f32
_WEIGHT_SHARE: Final = 0.85  # of a die's memory for these; the rest is for the values of a layer
_LEAST_DIES: Final = 8  # that the weights are spread over, if they can be
_MESHES: Final = ((4, 8), (6, 8), (8, 8), (8, 12), (8, 16), (16, 16), (16, 32), (32, 32))


@dataclass(frozen=True, slots=True)
class Setup:
    """A mesh of `rows` x `cols` dies and the degrees of the axes; `fits`: weights, gradients and optimizer state fit
    its memory."""

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
    needed = a.weights * _BYTES / ((die.sram + die.hbm) * _WEIGHT_SHARE)
    pairs = sorted(_degrees(a), key=lambda p: (p[0] * p[1], abs(p[1] - 2 * p[0])))
    dies = _MESHES[-1][0] * _MESHES[-1][1]
    fitting = [(tp, tatp) for tp, tatp in pairs if needed <= tp * tatp <= dies]
    spread = [(tp, tatp) for tp, tatp in fitting if tp * tatp >= _LEAST_DIES]
    tp, tatp = spread[0] if spread else (fitting or pairs)[-1]
    rows, cols = next(m for m in _MESHES if m[0] * m[1] >= tp * tatp)
    return Setup(rows, cols, tp, tatp, 2 if 2 * tp * tatp <= rows * cols else 1, bool(fitting))


def _degrees(a: Architecture) -> list[tuple[int, int]]:
    """The pairs of `tp` and `tatp` that split every matrix evenly."""
    splits = [
        (tp, tatp)
        for tp, tatp in product((1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8, 16, 32))
        if a.kv % tp == 0 and a.ffn % (tp * tatp) == 0 and a.d % (tp * tatp) == 0
    ]
    if a.images:  # a pad makes its positions even
        return splits
    return [(tp, tatp) for tp, tatp in splits if length(a) % tatp == 0 and length(a) % tp == 0]


def length(a: Architecture) -> int:
    """The number of tokens of a sequence: what is asked for, or all positions; of rotary ones, which need no table, at
    most 4096."""
    return a.seq or (min(a.most_positions, 4096) if not a.learned else a.most_positions)
