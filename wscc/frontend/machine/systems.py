"""The `system` section: wafers joined edge to edge, as one `machine.Wafer` with a joint."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Final

from wscc.diagnostics import Code
from wscc.frontend import ast
from wscc.frontend.machine.nodes import join_nodes
from wscc.frontend.machine.wafers import JOINED, add_damage, torus_of, values_of
from wscc.frontend.report import Report, hint
from wscc.machine.wafer import MAX_DIES, OPEN, Joint, Wafer, dead_link


def resolve_system(system: ast.System, wafer: Wafer, report: Report) -> Wafer | None:
    """The machine of a system made of `wafer`, whose damage every copy of it has; None with the mistakes noted.

    One wafer with open ends is the wafer itself, under its own name."""
    mistakes = len(report.diagnostics)
    lines = system.body.lines
    kinds = [(_KINDS[type(e)], e.span) for e in lines if type(e) in _KINDS]
    report.unique(kinds, "section")
    wafers = next(e for e in lines if isinstance(e, ast.Wafers))
    damage = tuple(e for e in lines if isinstance(e, ast.DeadDie | ast.DeadLink))
    if wafer.hub is not None:
        count = wafers.rows * wafers.columns
        if count == 1:
            return add_damage(wafer, damage, report)
        _check_wafers(wafers, wafer, report)
        return join_nodes(system, count, wafer, report) if len(report.diagnostics) == mistakes else None
    network = next((e for e in lines if isinstance(e, ast.Network)), None)
    if network is not None:
        message = f"`{wafer.name}` is a mesh, and switches join nodes"
        help = "write `joined edge to edge { ... }`, or make nodes: `dies 8 all to all`"
        report.add(Code.CHOICE, message, network.span, "", help)
        return None
    joined = next((e for e in lines if isinstance(e, ast.Fields)), None)
    ports = next((e for e in lines if isinstance(e, ast.Ports)), None)
    torus = torus_of(wafers.torus, report)
    _check_wafers(wafers, wafer, report)
    is_one = wafers.rows == wafers.columns == 1 and torus == OPEN
    if joined is None and not is_one:
        example = "add, for example, `joined edge to edge { bandwidth 9 TB/s, latency 1.5 us }`"
        message = f"system `{system.name.id}` does not say how its wafers are joined"
        report.add(Code.MISSING, message, system.name.span, "", example)
    link = values_of(joined, JOINED, True, report)
    places = _places(ports, report)
    if wafer.circuits is not None and not is_one:
        message = f"`{wafer.name}` has `{wafer.circuits.words}`, which join the dies of one wafer"
        report.add(
            Code.CHOICE, message, wafers.wafer.span, "", "make the system of a wafer without `circuits`"
        )
    if len(report.diagnostics) > mistakes:
        return None
    if not is_one:
        joint = Joint(wafer.rows, wafer.cols, replace(wafer.link, **link), places)
        if not _has_ports(joint, wafers, ports, report):
            return None
        wafer = _tiled(wafer, system.name.id, wafers, joint)
        wafer = replace(wafer, torus=torus)
    wafer = add_damage(wafer, damage, report)
    return wafer if len(report.diagnostics) == mistakes else None


_PLACES: Final = {"all": (), "corners": (0, -1)}
_KINDS: Final = {
    ast.Wafers: "wafers", ast.Fields: "joined", ast.Network: "joined", ast.Ports: "ports",
}  # fmt: skip


def _check_wafers(wafers: ast.Wafers, wafer: Wafer, report: Report) -> None:
    count = wafers.rows * wafers.columns
    if count < 1:
        report.add(Code.NUMBER, "a system has at least one row and one column of wafers", wafers.span)
    elif count * wafer.dies > MAX_DIES:
        message = f"{count} wafers of {wafer.dies} dies are too many"
        report.add(Code.LIMIT, message, wafers.span, "", f"the limit is {MAX_DIES:,} dies")
    elif count > 1 and wafer.torus != OPEN:
        message = f"`{wafer.name}` is a torus: its edges are joined already"
        report.add(
            Code.CHOICE, message, wafers.wafer.span, "", "join meshes; `wafers ... torus` closes the system"
        )


def _places(ports: ast.Ports | None, report: Report) -> tuple[int, ...]:
    if ports is None:
        return ()
    if ports.word is not None:
        if ports.word.id not in _PLACES:
            help = hint(ports.word.id, _PLACES, "write `ports corners`, `ports all`, or places: `ports 0, 3`")
            report.add(Code.CHOICE, f"`{ports.word.id}` are no ports", ports.word.span, "", help)
        return _PLACES.get(ports.word.id, ())
    for place in ports.places:
        if place.value >= MAX_DIES:
            report.add(Code.NUMBER, "no edge is so long", place.span)
    return tuple(sorted({int(p.value) for p in ports.places}))


def _has_ports(joint: Joint, wafers: ast.Wafers, ports: ast.Ports | None, report: Report) -> bool:
    closed = torus_of(wafers.torus, report)
    sides = [(wafers.columns > 1 or closed.rows, joint.rows), (wafers.rows > 1 or closed.cols, joint.cols)]
    for is_joined, edge in sides:
        if is_joined and not joint.places(edge):
            assert ports is not None
            message = f"no port is on an edge of {edge} dies"
            report.add(Code.OFF_MESH, message, ports.span, "", f"places there are 0 to {edge - 1}")
            return False
    return True


def _tiled(wafer: Wafer, name: str, wafers: ast.Wafers, joint: Joint) -> Wafer:
    """A system whose wafers all have the damage and the classes of dies of `wafer`."""
    corners = [
        (r * wafer.rows, c * wafer.cols) for r, c in product(range(wafers.rows), range(wafers.columns))
    ]

    def moved(die: tuple[int, int], corner: tuple[int, int]) -> tuple[int, int]:
        return die[0] + corner[0], die[1] + corner[1]

    return Wafer(
        name, wafers.rows * wafer.rows, wafers.columns * wafer.cols, wafer.die, wafer.link,
        frozenset(moved(die, corner) for die in wafer.dead_dies for corner in corners),
        frozenset(dead_link(moved(a, k), moved(b, k)) for a, b in wafer.dead_links for k in corners),
        joint=joint,
        unlike=tuple(sorted((moved(at, corner), die) for at, die in wafer.unlike for corner in corners)),
    )  # fmt: skip
