"""The object of report.json: cost, memory, storage, placement and loads of a compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from wscc.analysis.flops import hidden_flops, model_flops, repeated_flops, replicated_flops
from wscc.analysis.link_loads import PhaseLoad, ProcedureLoad
from wscc.analysis.memory.report import memory_report
from wscc.analysis.repeated_casts import repeated_casts
from wscc.driver.pipeline import Timings
from wscc.driver.storage import storage_report
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module
from wscc.ir.streams.program import Streams
from wscc.ir.train import Rates
from wscc.machine.wafer import Wafer
from wscc.passes.place.types import Placement
from wscc.passes.stages.cut import LayerCut


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads of links in each phase and each procedure, and the bytes that all links together carry in a step."""

    phases: tuple[PhaseLoad, ...]
    procedures: tuple[ProcedureLoad, ...]
    traffic_bytes: int


def build_report(
    graph: Module, sharded: Module, planned: Module, place: Placement, loads: Loads, streams: Streams,
    timings: Timings, *, cut: LayerCut | None, pads: dict[str, Any], hoisting: bool,
) -> dict[str, Any]:  # fmt: skip
    """The report of a program, ready for JSON; memory is in bytes, times are in seconds.

    `graph` is the forward module, `sharded` the partitioned one; `cut` is how its layers were cut into stages, if they
    were; `pads` is the part about pads; `hoisting` is true if `hoist_casts` has run.
    """
    memory = memory_report(planned)
    return {
        "strategy": dict(graph.axes),
        "dies_used": graph.dies_used,
        "compile_seconds": timings.report(),
        "params": parameters(graph),
        "parameter_groups": parameter_groups(graph),
        "flops_per_step": model_flops(graph),
        "pads": pads,
        "memory": {
            "peak_bytes_per_die_max": memory.peak,
            "peak_bytes_per_die": [
                n for n in memory.stages for _ in range(graph.dies_used // planned.stages)
            ],
            "live_peak_bytes": memory.live_peak,
            "by_category": memory.by_category,
            "capacity": memory.capacity,
        },
        "storage": storage_report(planned),
        "weights_converted": weights_converted(sharded, planned, hoisting=hoisting),
        "placement": {
            "method": place.method,
            "rings": place.rings,
            "paths": place.paths,
            "axes": {a.name: {"lies": a.kind, "hops": a.hops, "note": a.note} for a in place.axes},
        },
        **({"stages": _stages(cut)} if cut else {}),
        "phases": [asdict(p) for p in loads.phases],
        "procedures": [asdict(p) for p in loads.procedures],
        "replicated_flops": replicated_flops(sharded),
        "repeated_flops": repeated_flops(sharded),
        "hidden_flops": hidden_flops(sharded),
        "sequence_order": "zigzag" if sharded.zigzag else "contiguous",
        "traffic_bytes": loads.traffic_bytes,
        "instructions": sum(len(c.body) for p in streams.programs for c in p.procedures),
    }


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


def _stages(cut: LayerCut) -> dict[str, Any]:
    return {
        "layers": cut.layers,
        "cut": f"by {cut.by}",
        "estimated_seconds": cut.seconds,
        "unevenness": cut.unevenness,
    }


def weights_converted(sharded: Module, planned: Module, *, hoisting: bool) -> str:
    """Words for how often weights are converted to the type of computation."""
    if any(a.kind is Kind.COMPUTE_COPY for a in planned.arrays):
        return "once a step"
    if not repeated_casts(sharded):
        return "never twice"
    return "at each use: compute copies do not fit" if hoisting else "at each use"


def parameter_groups(graph: Module) -> list[dict[str, Any]]:
    """What the optimizer uses for which parameters, those with most elements first."""
    groups: dict[Rates, list[Array]] = {}
    for a in graph.arrays:
        if a.kind is Kind.PARAM:
            groups.setdefault(graph.rates_of(a), []).append(a)
    rows = [
        {**asdict(rates), "params": sum(map(_elements, arrays)), "arrays": [a.name for a in arrays]}
        for rates, arrays in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["params"])


def parameters(graph: Module) -> int:
    """Elements of all parameters; a tied one counts once."""
    return sum(_elements(a) for a in graph.arrays if a.kind is Kind.PARAM)


def _elements(array: Array) -> int:
    return prod((*array.extents, *array.type.shape))
