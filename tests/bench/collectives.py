"""Times of collectives against published figures and bounds, all simulated: the same on every machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

from wscc.collectives.choose import Outcome, collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.timing import LinkModel
from wscc.machine.links import CUT_THROUGH, LINK_MODELS, STORE_AND_FORWARD
from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer

FIGURES = Path(__file__).with_name("collectives.json")


def published_rows() -> list[dict[str, int]]:
    """all_gather on 5 x 5; `bytes` of the whole result, times in cycles."""
    rows: list[dict[str, int]] = json.loads(FIGURES.read_text())["all_gather_5x5"]["rows"]
    return rows


def _model(kind: str) -> LinkModel:
    return LinkModel.of(256 * 10**9, 1e-9, 256, kind)


def show_collectives() -> None:
    print("all_gather on 5 x 5, store and forward: cycles")
    print(f"{'bytes':>14}{'wscc':>12}{'TACOS':>12}{'MultiTree':>12}{'bound':>14}")
    topology = Topology.mesh(Wafer("w", 5, 5))
    for row in published_rows():
        request = make_request(Op.ALL_GATHER, topology, row["bytes"])
        found = collective(request, _model(STORE_AND_FORWARD), "packing")
        cycles, least = found.timed.end / 256, max(row["bandwidth_bound_cycles"], row["latency_bound_cycles"])
        known = f"{row['tacos_cycles']:>12}{row['multitree_cycles']:>12}"
        print(f"{row['bytes']:>14}{cycles:>12.0f}{known}{least:>14.2f}", flush=True)
    print("1 GiB: time over the bound, cut-through and store and forward, and most CPU seconds")
    for op in Op:
        for rows, cols, dead in _MESHES:
            _show(op, rows, cols, dead)
    print("all_reduce over reduce_scatter and then all_gather: 64 KiB, 1 GiB, and in N / B")
    for rows, cols, dead in _MESHES:
        _show_all_reduce(rows, cols, dead)
    print()


_MESHES: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [
    (4, 4, ()), (5, 5, ()), (4, 8, ()), (8, 8, ()), (6, 6, ()), (6, 6, ((0, 1), (3, 3))), (8, 8, ((0, 1), (3, 3)))
]  # fmt: skip


def _mesh(rows: int, cols: int, dead: tuple[tuple[int, int], ...]) -> Topology:
    return Topology.mesh(Wafer("w", rows, cols, dead_dies=frozenset(dead)))


def _show(op: Op, rows: int, cols: int, dead: tuple[tuple[int, int], ...]) -> None:
    topology, found, slowest = _mesh(rows, cols, dead), list[Outcome](), 0.0
    for kind in LINK_MODELS:
        start = time.process_time()
        found.append(collective(make_request(op, topology, 1 << 30), _model(kind), "packing"))
        slowest = max(slowest, time.process_time() - start)
    ratios = "".join(f"{o.ratio:>10.4f}" for o in found)
    name = f"{rows} x {cols}, {len(dead)} dead"
    print(f"  {op:<16}{name}{ratios}{slowest:>7.1f} s   {found[0].bound.kind}", flush=True)


def _show_all_reduce(rows: int, cols: int, dead: tuple[tuple[int, int], ...]) -> None:
    topology, parts = _mesh(rows, cols, dead), []
    for size in (1 << 16, 1 << 30):
        ends = [
            collective(make_request(op, topology, size), _model(CUT_THROUGH)).timed.end
            for op in (Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER)
        ]
        parts += [ends[0] / (ends[1] + ends[2])]
    print(
        f"  {rows} x {cols}, {len(dead)} dead{parts[0]:>10.3f}{parts[1]:>10.3f}{ends[0] / size:>10.4f}",
        flush=True,
    )
