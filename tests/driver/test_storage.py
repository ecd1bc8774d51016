"""The report's `storage`: what is stored once, what several times and where, against closed forms."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from tests.support.models import Shape, gpt
from wscc.driver.storage import storage_report, storage_words
from wscc.machine.wafer import Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages

S = Shape(batch=16, calls=2, seq=8, d=32, heads=4, ffn=64, vocab=64, layers=4)
F64 = 8
# By array, the elements of one copy.
MATRICES = {"wqkv": 3 * S.d * S.d, "wo": S.d * S.d, "w1": S.d * S.ffn, "w2": S.d * S.ffn}
# Axes over which a matrix is cut; over all others it is stored again.
CUTS = {"tp", "tatp", "pp"}


def report(degrees: dict[str, int], **options: object) -> dict[str, Any]:
    """Of the arrays as the passes before placement leave them: later ones keep them."""
    module = gpt(degrees, S, wafer=Wafer("w", 4, 4), **options)
    return storage_report(Stages().run(Partition().run(Differentiate().run(module))))


def rows(storage: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The parameter, its gradient and its optimizer state."""
    by_name = {a["name"]: a for a in storage["arrays"]}
    return {n: by_name[f"block.{name}{n}"] for n in ("", ".grad", ".m", ".v")}


@pytest.mark.parametrize(
    "degrees",
    [{"dp": 4}, {"tatp": 4}, {"tp": 4}, {"dp": 2, "tatp": 2}, {"pp": 2, "dp": 2}, {"pp": 4, "tp": 2}],
    ids=str,
)
def test_a_matrix_is_stored_once_for_each_replica_of_dp(degrees: dict[str, int]) -> None:
    dies, pp = prod(degrees.values()), degrees.get("pp", 1)
    storage = report(degrees)
    for name, elements in MATRICES.items():
        once = F64 * S.layers * elements
        for row in rows(storage, name).values():
            assert set(row["split"]) == CUTS & set(degrees)
            assert row["replicated"] == [a for a in degrees if a == "dp"]
            assert row["copies"] == row["redundancy"] == degrees.get("dp", 1)
            assert row["once_bytes"] == once
            assert row["total_bytes"] == once * degrees.get("dp", 1)
            assert row["bytes_per_die"] == row["total_bytes"] // dies
            assert row["stages"] == list(range(pp))
    gain = rows(storage, "g1")[""]
    assert gain["copies"] == dies // pp
    assert gain["once_bytes"] == F64 * S.layers * S.d


@pytest.mark.parametrize("degrees", [{"dp": 4}, {"sp": 4}, {"dp": 2, "sp": 2}], ids=str)
@pytest.mark.parametrize(("zero", "copies"), [(0, (4, 4, 4)), (1, (4, 1, 1)), (3, (1, 1, 1))])
def test_zero_stores_once_what_it_shards(
    zero: int, copies: tuple[int, int, int], degrees: dict[str, int]
) -> None:
    """Parameter, gradient, optimizer state of a matrix; what is incomplete differs on every die."""
    row = rows(report(degrees, zero=zero), "w1")
    assert (row[""]["copies"], row[".grad"]["copies"], row[".m"]["copies"]) == copies
    split = [set(degrees) if c == 1 else set() for c in copies]
    assert [set(row[n]["split"]) for n in ("", ".grad", ".v")] == split


def test_a_tied_table_has_a_copy_on_each_stage_that_reads_it() -> None:
    """Its gradient and optimizer state are on the first of them alone."""
    arrays = {a["name"]: a for a in report({"pp": 2, "dp": 2})["arrays"]}
    assert (arrays["wte"]["copies"], arrays["wte"]["replicated"], arrays["wte"]["stages"]) == (
        4,
        ["pp", "dp"],
        [0, 1],
    )
    for name in ("wte.grad", "wte.m"):
        assert (arrays[name]["copies"], arrays[name]["stages"]) == (2, [0])
    assert arrays["gf"]["stages"] == [1]


def test_sums_and_words() -> None:
    storage = report({"dp": 2, "tatp": 2})
    for kind, of in storage["by_kind"].items():
        mine = [a for a in storage["arrays"] if a["kind"] == kind]
        assert of["total_bytes"] == sum(a["total_bytes"] for a in mine)
        assert of["redundancy"] == of["total_bytes"] / sum(a["once_bytes"] for a in mine)
    words = dict(storage_words(storage))
    assert "parameters 2." in words["stored copies"]
    assert words["stored once"].startswith("0.0% ")
    assert "2x over dp" in words["stored once"]
    alone = storage_words(report({}))
    assert [w for w, _ in alone] == ["stored copies"]
    assert "parameters 1.00, gradients 1.00, optimizer state 1.00" in alone[0][1]
