"""Simulated seconds of one reshard as `compile` lowers it, beside its ring and `wscc collective` for its group.

The group is a whole mesh of the shape, with the links of temp-4x8; SRAM holds everything, so that only links take time.
Times are over those of `wscc collective`, which chunks and packs trees.
"""

from __future__ import annotations

from tests.passes.lower_collectives.one_reshard import KINDS, module_of, simulated, wafer_of
from wscc.collectives.choose import collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.timing import LinkModel
from wscc.ir.module import Module
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.place import Place

SHAPES = ((1, 4), (2, 2), (1, 8), (2, 4), (3, 4), (4, 4), (2, 8), (4, 8))
SIZES = tuple(1 << k for k in range(10, 35, 2))


def show_reshards(quick: bool) -> None:
    for kind in KINDS:
        print(
            f"{kind}: compile's ring, its choice (rounds, `in` relays or `of` trees, x pieces), over `wscc collective`"
        )
        for rows, cols in SHAPES:
            for size in SIZES[2::4] if quick else SIZES:
                _show(kind, rows, cols, size)


def _show(kind: str, rows: int, cols: int, size: int) -> None:
    wafer, axes = wafer_of(rows, cols), (("dp", rows * cols),)
    module = module_of(wafer, kind, axes, size)
    ring, auto = simulated(module, "ring"), simulated(module)
    model = LinkModel.of(wafer.link.bandwidth, wafer.link.latency, wafer.link.flit)
    alone = collective(make_request(Op(kind), Topology.mesh(wafer), size), model).timed.seconds
    print(
        f"  {rows} x {cols}{size:>16,} B{alone * 1e6:>14.3f} us{ring / alone:>8.3f}{auto / alone:>8.3f}"
        f"   {_chosen(module, kind, size)}",
        flush=True,
    )


def _chosen(module: Module, kind: str, size: int) -> str:
    """The rounds of the algorithms that are taken, and the pieces of each shard."""
    dies, algorithms = module.dies_used, Algorithms(Place().run(module), "auto", 1 << 40).together(1)
    elements = max(size // 2 // dies, 1)
    if kind == "all_gather":
        used = [algorithms.gather("dp", 2 * elements, (elements,))]
    elif kind == "reduce_scatter":
        used = [algorithms.scatter("dp", 2 * elements, (elements,))]
    else:
        reduction = algorithms.reduction("dp", dies * elements, 2)
        if reduction.trees is not None:
            return f"{len(reduction.trees.rounds)} of trees x {reduction.trees.pieces}"
        used = [a for a in (reduction.scatter, reduction.gather) if a]
    return " + ".join(f"{len(a.rounds)}{' in' * (a.timed is not None)} x {a.plan.pieces}" for a in used)
