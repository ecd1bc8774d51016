"""Check that a compiled program computes what its graph says: `wscc verify --semantics` (docs/adr/011).

A program that fits this computer is run, in f64 whatever its element types, on random weights and data, and
compared with the reference on one device to 1e-10: nothing is taken from any pass. One that does not fit is
compared, instruction by instruction, with what the passes make of its graph; passes of a user's own are not at hand
for that, so a program with some is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.widen import factor_of
from wscc.diagnostics import Code, fail
from wscc.driver.edges import with_edges
from wscc.equivalence.recompile import differences
from wscc.equivalence.run import compare, numbers_of
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import Streams, calls_by_name, stage_of_role
from wscc.ir.train import Train

# Limits of what is run: multiply-adds of a step, over all dies, and bytes of all arenas.
MOST_WORK: Final = 2 * 10**10
MOST_BYTES: Final = 2 * 10**9


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The findings of a comparison with the graph; `ran`: the program was run, not compared by instruction."""

    findings: tuple[Finding, ...]
    ran: bool


@np.errstate(all="ignore")  # what is not finite is a finding
def check_semantics(artifact: Artifact) -> Equivalence:
    """The comparison of a program, which has no structural findings, with its graph.

    Raises `CompileError` W003 for a program that is too large to run and was compiled with passes of a user's own.
    """
    graph = with_edges(graph_module(artifact.graph), artifact.data)
    findings = Findings()
    for finding in _scalars(artifact.streams, artifact.manifest.train, graph):
        findings.add(finding)
    ran = fits(artifact.streams)
    if not ran and artifact.own_passes:
        own = " and ".join(f"`{name}`" for name in artifact.own_passes)
        raise fail(
            Code.LIMIT,
            f"the program is too large to run here, and what {own} did to it cannot be made again to compare with",
            help="compare a smaller model, compiled with the same passes of your own",
        )
    for finding in compare(artifact, graph) if ran else differences(artifact, graph):
        findings.add(finding)
    return Equivalence(tuple(findings.found), ran)


def fits(streams: Streams) -> bool:
    """True if this computer can run the program in f64 in about a minute."""
    arena_bytes = streams.arena_bytes * factor_of(streams) * len(streams.dies)
    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else MOST_BYTES
    return arena_bytes <= min(MOST_BYTES, ram // 4) and _work(streams) <= MOST_WORK


def _work(streams: Streams) -> int:
    """Multiply-adds of a step over all dies."""
    stages, total = stage_of_role(streams), 0
    for p in streams.programs:
        times = calls_by_name(streams.steps[stages[p.role]])
        for code in p.procedures:
            work = sum(
                prod(x.writes[0].shape) * x.reads[0].shape[-1] for x in code.body if x.opcode == "gemm"
            )
            total += streams.roles.count(p.role) * times.get(code.name, 0) * work
    return total


def _scalars(streams: Streams, manifest: Train, graph: Module) -> Iterator[Finding]:
    """Findings where the scalars of the optimizer are not those of any parameter of the graph: few steps do not reach
    the whole of `lr_schedule`. Whether they are those of the right one is seen when the program is run."""
    train = graph.train
    if numbers_of(manifest, manifest.rates) != numbers_of(train, train.rates):
        yield Finding("meaning", "the manifest and the graph have different optimizers")
    parameters = [a for a in graph.arrays if a.kind is Kind.PARAM]
    allowed = [numbers_of(train, rates) for rates in dict.fromkeys(map(graph.rates_of, parameters))]
    for p in streams.programs:
        for code in p.procedures:
            for i, x in enumerate(code.body):
                if not INSTRUCTIONS[x.opcode].updates:
                    continue
                if x.opcode != train.optimizer.kind:
                    yield Finding("meaning", f"`{x.opcode}` is not the optimizer", "", code.name, i)
                # Of the nearest parameters: an instruction mostly has one number that is wrong.
                wrong = min(([(n, v, s[n]) for n, v in x.attrs if v != s[n]] for s in allowed), key=len)
                for name, value, right in wrong:
                    words = f"`{x.opcode}` has {name}={value}, and the graph {right}"
                    yield Finding("meaning", words, "", code.name, i)
