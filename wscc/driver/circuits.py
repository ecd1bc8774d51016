"""What is said of circuits: the links that are up for a program, in reports and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wscc.machine.wafer import Wafer


def circuits_report(wafer: Wafer) -> dict[str, Any]:
    """The part of a report about circuits that are set; empty where there are none. Links are counted once."""
    circuits = wafer.circuits
    if circuits is None:
        return {}
    free = replace(wafer, circuits=None)
    return {
        "up": circuits.up,
        "of": circuits.of,
        "links_up": wafer.live_links // 2,
        "links": free.live_links // 2,
        "reconfiguration_seconds": circuits.reconfiguration,
    }


def circuits_words(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row of a summary on that part of a report; none where it is empty."""
    if not report:
        return []
    took = f" in {report['reconfiguration_seconds'] * 1e6:g} us" if report["reconfiguration_seconds"] else ""
    links = f"{report['links_up']} of {report['links']} links up"
    return [("circuits", f"{report['up']} of {report['of']}: {links}, set once{took} before the first step")]


def static_mesh(wafer: Wafer) -> Wafer:
    """The mesh with the same ports whose links are all up: each has the bandwidth that a port has left for it."""
    assert wafer.circuits is not None
    bandwidth = max(1, wafer.link.bandwidth * wafer.circuits.up // wafer.circuits.of)
    return replace(wafer, circuits=None, link=replace(wafer.link, bandwidth=bandwidth))
