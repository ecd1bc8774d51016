"""A check that the programs of an artifact do no more work than their graph can need."""

from __future__ import annotations

from math import prod
from typing import Final

from wscc.analysis.flops import model_flops
from wscc.backends.artifact.mistake import Mistake
from wscc.ir.module import Module
from wscc.ir.streams.program import Code, Streams, calls_by_name

FILE: Final = "programs.wsa"
# A die does at most all work of the model on its own, once more to recompute it, and what a causal mask would hide.
_TIMES: Final = 8
_FREE: Final = 1 << 24


def check_work(streams: Streams, graph: Module) -> None:
    """Raise `Mistake` where a die has many times the FLOPs of the whole model in a step."""
    most = _TIMES * model_flops(graph) + _FREE
    times = [calls_by_name(step) for step in streams.steps]
    for p in streams.programs:
        flops = sum(times[p.stage].get(c.name, 0) * _flops(c) for c in p.procedures)
        if flops > most:
            words = f"role {p.role} has {flops:,} FLOPs in a step, and its model {model_flops(graph):,}"
            raise Mistake(FILE, words)


def _flops(code: Code) -> int:
    return sum(2 * prod(x.writes[0].shape) * x.reads[0].shape[-1] for x in code.body if x.opcode == "gemm")
