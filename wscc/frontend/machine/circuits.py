"""The circuits of a wafer's `link`: `circuits 2 of 4, reconfiguration 25 us`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from wscc.diagnostics import Code
from wscc.frontend import ast
from wscc.frontend.report import Report
from wscc.machine.wafer import Circuits, Wafer

# What `link` says of them, by attribute.
CIRCUITS: Final = ("up", "of", "reconfiguration")


def with_circuits(wafer: Wafer, values: dict[str, Any], link: ast.Fields, report: Report) -> Wafer:
    """The wafer whose links are circuits, unless it cannot have them; without mistakes in `values` themselves."""
    written = next((f for f in link.body.lines if f.name.id == "circuits"), None)
    if written is None:
        help = "add, for example, `circuits 2 of 4`"
        report.add(Code.MISSING, "only circuits have a `reconfiguration`", link.span, "", help)
        return wafer
    circuits, is_mesh = Circuits(**values), wafer.hub is None and wafer.joint is None
    most = 2 * len(wafer.extents)
    help = f"write, for example, `circuits {most // 2} of {most}`" if is_mesh else "remove it"
    wrong = next(circuits.mistakes_on(len(wafer.extents), is_mesh), None)
    if wrong is not None:
        report.add(Code.NUMBER, f"circuits {' '.join(wrong)}", written.span, "", help)
        return wafer
    return replace(wafer, circuits=circuits)
