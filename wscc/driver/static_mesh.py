"""The static mesh beside circuits: the same ports, all links up, each with its share of the bandwidth."""

from __future__ import annotations

from dataclasses import replace

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.diagnostics import CompileError
from wscc.driver.compile import graph_of, program_of
from wscc.driver.simulate import simulate
from wscc.machine.wafer import Wafer


def static_mesh_seconds(artifact: Artifact, link_model: str) -> float | None:
    """Seconds of a step of the model on the static mesh of the same ports (`static_mesh`), for which it is compiled
    anew at `-O2`; None on a wafer without circuits, and where the model does not compile for that mesh."""
    wafer = graph_module(artifact.graph).machine
    if wafer.circuits is None:
        return None
    try:
        static, _ = program_of(graph_of(artifact).with_(machine=static_mesh(wafer)))
    except CompileError:
        return None
    return simulate(static, link_model).account.seconds


def static_mesh(wafer: Wafer) -> Wafer:
    """The mesh with the same ports whose links are all up: each has the bandwidth that a port has left for it."""
    assert wafer.circuits is not None
    return replace(wafer, circuits=None, link=wafer.circuits.static(wafer.link))
