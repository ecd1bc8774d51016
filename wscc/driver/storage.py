"""Storage of parameters, gradients and optimizer state: bytes on the wafer, and how many dies hold each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from wscc.ir.array import Array, Kind
from wscc.ir.module import Module
from wscc.strategy import stage_axes

# Kinds that hold something for each parameter, with the words for them.
STORED: Final = {
    Kind.PARAM: "parameters",
    Kind.COMPUTE_COPY: "compute copies",
    Kind.GRAD: "gradients",
    Kind.STATE: "optimizer state",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """An array, its parts on all stages together. Bytes are those of its elements, without what addresses round up.

    `split` are the axes over which dies hold different elements (or, where a sum is incomplete, different parts of
    it), `replicated` the others; `copies` is how many dies hold each element; `stages` hold some of it, the fullest
    of their dies `bytes_per_die`; `total_bytes` is that of all dies, `once_bytes` that of one copy.
    """

    name: str
    kind: Kind
    layout: str
    split: tuple[str, ...]
    replicated: tuple[str, ...]
    copies: int
    stages: tuple[int, ...]
    bytes_per_die: int
    total_bytes: int
    once_bytes: int


def stored_arrays(planned: Module) -> Iterator[Stored]:
    """Every array of the kinds of `STORED` that has bytes of its own."""
    parts: dict[str, list[Array]] = {}
    for a in planned.arrays:
        if a.kind in STORED and not a.storage:
            parts.setdefault(a.of or a.name, []).append(a)
    for name, pieces in parts.items():
        yield _stored(planned, name, pieces)


def _stored(planned: Module, name: str, pieces: list[Array]) -> Stored:
    sizes, axes = planned.sizes, stage_axes(planned.sizes)
    tensor, layout = pieces[0].type, pieces[0].type.layout
    assert layout is not None
    inside = [*layout.axes, *(axis for axis, _ in layout.partial)]
    dies = planned.dies_used // planned.stages
    local = tensor.dtype.size * prod(tensor.local_shape(sizes))
    by_stage: dict[int, int] = {}
    for a in pieces:
        for stage in range(planned.stages) if a.stage < 0 else (a.stage,):
            by_stage[stage] = by_stage.get(stage, 0) + a.count * local
    elements = {(a.first if a.of else 0) + i for a in pieces for i in range(a.count)}
    total = dies * sum(by_stage.values())
    once = len(elements) * local * prod(sizes[axis] for axis in inside)
    copies = total // once
    cut = [a for a in axes if len(by_stage) > 1 and len(elements) * local == sum(by_stage.values())]
    split = (*cut, *inside)
    is_replicated = sum(by_stage.values()) > len(elements) * local
    others = tuple(
        a for a, n in planned.axes if n > 1 and a not in split and (a not in axes or is_replicated)
    )
    return Stored(
        name, pieces[0].kind, str(tensor), split, others, copies, tuple(by_stage), max(by_stage.values()), total, once
    )  # fmt: skip


def storage_report(planned: Module) -> dict[str, Any]:
    """By array and by kind. `redundancy` is the bytes of all dies over those of one copy: 1.0 where nothing is
    stored twice."""
    arrays = list(stored_arrays(planned))
    return {
        "arrays": [
            {
                "name": a.name, "kind": str(a.kind), "layout": a.layout, "split": list(a.split),
                "replicated": list(a.replicated), "copies": a.copies, "stages": list(a.stages),
                "bytes_per_die": a.bytes_per_die, "total_bytes": a.total_bytes, "once_bytes": a.once_bytes,
                "redundancy": a.total_bytes / a.once_bytes,
            }
            for a in arrays
        ],
        "by_kind": {
            str(kind): _summed([a for a in arrays if a.kind is kind])
            for kind in STORED
            if any(a.kind is kind for a in arrays)
        },
    }  # fmt: skip


def _summed(arrays: list[Stored]) -> dict[str, Any]:
    total, once = sum(a.total_bytes for a in arrays), sum(a.once_bytes for a in arrays)
    return {"total_bytes": total, "once_bytes": once, "redundancy": total / once}


def storage_words(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Lines for people: the redundancy of each kind, and which parameters are stored several times."""
    kinds = ", ".join(
        f"{STORED[Kind(kind)]} {sums['redundancy']:.2f}" for kind, sums in report["by_kind"].items()
    )
    rows = [("stored copies", f"{kinds} (1.00: each byte on one die)")]
    weights = [a for a in report["arrays"] if a["kind"] == Kind.PARAM]
    replicated = sorted((a for a in weights if a["copies"] > 1), key=lambda a: (-a["total_bytes"], a["name"]))
    if replicated:
        largest = ", ".join(
            f"`{a['name']}` {a['copies']}x over {' '.join(a['replicated'])}" for a in replicated[:2]
        )
        more = f", {len(replicated) - 2} more" if len(replicated) > 2 else ""
        single = sum(a["once_bytes"] for a in weights if a["copies"] == 1)
        share = 1000 * single // sum(a["once_bytes"] for a in weights) / 10
        rows.append(("stored once", f"{share}% of the bytes of parameters; several times: {largest}{more}"))
    return rows
