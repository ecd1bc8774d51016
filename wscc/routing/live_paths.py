"""Initial routes of the messages of a program."""

from __future__ import annotations

from wscc.diagnostics import Code, fail
from wscc.machine.topology import Path, Topology


def live_path(topology: Topology, source: int, destination: int) -> Path:
    """The initial route of a message between two dies. Raises `CompileError` W302 where none is left."""
    path = topology.xy_or_shortest(source, destination)
    if path is None:
        ends = " and ".join(topology.name_of(d) for d in (source, destination))
        raise fail(
            Code.DISCONNECTED,
            f"no live path joins dies {ends}",
            help="place the program on one connected part of the wafer",
        )
    return path
