"""The part of a report about pads: which parameters and inputs have some, and the work that is done on them."""

from __future__ import annotations

from typing import Any, Final

from wscc.analysis.flops import padded_model_flops
from wscc.ir.array import Kind
from wscc.ir.module import Module

_SHOWN: Final = (Kind.PARAM, Kind.INPUT)


def pads_report(graph: Module, padded: Module) -> dict[str, Any]:
    """The stored shapes of the parameters and inputs of a forward module that have pads in `padded`, made of it, by
    name, and the FLOPs of a step that these add to those of the model."""
    return {
        "arrays": {a.name: list(a.type.shape) for a in padded.arrays if a.kind in _SHOWN and a.unpadded},
        "flops": padded_model_flops(graph, padded),
    }


def pads_words(graph: Module, pads: dict[str, Any], whole: int) -> str:
    """The pads of a report in words; empty if there are none."""
    shapes = {a.name: list(a.type.shape) for a in graph.arrays}
    words = [f"{name} {shapes[name]} as {shape}" for name, shape in pads["arrays"].items()]
    if not words:
        return ""
    more = f" and {len(words) - 1} more" if len(words) > 1 else ""
    return f"{words[0]}{more}: {pads['flops'] / max(whole, 1):.2%} more FLOPs"
