"""Runs of a module on the fabric oracle, and the distance of two runs, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.oracles.fabric import FabricMachine, Tensors
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.step import walk
from wscc.passes.differentiate import Differentiate
from wscc.passes.fuse import Fuse
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.partition import Partition


def lowered(
    module: Module,
    partition: Callable[[Module], Module] | None = None,
    *,
    fuse: bool = True,
    dies: Sequence[int] = (),
    allgather: str = "auto",
) -> Module:
    """A forward module at the fabric level, logical dies on `dies` (default: numbered as physical ones)."""
    sharded = (partition or Partition().run)(Differentiate().run(module))
    sharded = Fuse().run(sharded) if fuse else sharded
    return LowerCollectives(allgather).run(sharded.with_(dies=tuple(dies) or tuple(range(sharded.dies_used))))


def trained(fabric: Module, tensors: Tensors, steps: int = 2) -> Tensors:
    """Loss, squared norm, gradients and weights after so many steps, by name."""
    machine = FabricMachine(fabric)
    machine.load(tensors)
    for _ in range(steps):
        machine.step()
    return {
        a.name: machine.read(a.name)
        for a in fabric.arrays
        if not a.storage and (a.kind in (Kind.PARAM, Kind.GRAD) or a.name in ("loss", "norm2"))
    }


def loss_of(fabric: Module, tensors: Tensors) -> tuple[float, FabricMachine]:
    """The loss of the first step before any update, and the machine that ran so far."""
    machine = FabricMachine(fabric)
    machine.load(tensors)
    for call, variables in walk(fabric.step):
        if call.procedure.endswith(".norm"):
            break
        machine.call(call, variables)
    return float(machine.read("loss")), machine


def distance(actual: Tensors, expected: Tensors) -> tuple[float, str]:
    """The largest error of any tensor, |a - b| / max(|b|, 1e-3 rms of all |b|), and the tensor's name."""
    overall = np.sqrt(np.mean([np.linalg.norm(w) ** 2 for w in expected.values()]))
    worst, name = 0.0, ""
    for key, w in expected.items():
        e = float(np.linalg.norm(actual[key] - w) / max(np.linalg.norm(w), 1e-3 * overall))
        if not e <= worst:
            worst, name = e, key
    return worst, name
