"""Dies that are not alike: what a `wafer` says of them, and what it can't."""

from __future__ import annotations

import pytest

from tests.support.frontend_help import TINY, errors, run
from wscc.diagnostics import Source
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.machine.wafer import Die

LINK = "  link {"


def written(*classes: str) -> str:
    """The sample with these lines in its wafer of 2 x 4 dies."""
    return TINY.replace(LINK, "".join(f"  {line}\n" for line in classes) + LINK, 1)


def test_classes_change_one_die_or_a_box_of_them() -> None:
    wafer = run(
        written(
            "die (0, 1) { peak 75 % }",
            "die (0, 3)..(1, 2) { hbm 36 GB at 500 GB/s }",
            "die (1, 2) { peak 900 TFLOP/s, hbm 50 % }",
            "die (1, 0) { hbm 0 GB }",
            "die (1, 1) { peak 100 % }",
        )
    ).wafer
    of = {wafer.coordinate(d): wafer.die_at(d) for d in range(wafer.dies)}
    assert of[0, 1] == Die(peak=1_350 * 10**12)
    assert of[0, 2] == of[0, 3] == of[1, 3] == Die(hbm=36 * 10**9, hbm_bandwidth=5 * 10**11)
    assert of[1, 2] == Die(peak=900 * 10**12, hbm=18 * 10**9, hbm_bandwidth=5 * 10**11)
    assert of[1, 0] == Die(hbm=0, hbm_bandwidth=0)
    assert of[0, 0] == of[1, 1] == Die()
    assert wafer.weakest([0, 1, 6]) == Die(peak=900 * 10**12, hbm=18 * 10**9, hbm_bandwidth=5 * 10**11)
    assert wafer.peak == (6 * 1_800 + 1_350 + 900) * 10**12


def test_a_wafer_of_like_dies_is_as_without_classes() -> None:
    assert run(written("die (0, 0)..(1, 3) { peak 100 %, hbm 72 GB at 1 TB/s }")).wafer == run(TINY).wafer


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("die (2, 0) { peak 75 % }", "(2, 0) is not on the mesh"),
        ("die (0, 0)..(0, 4) { peak 75 % }", "(0, 4) is not on the mesh"),
        ("die (0, 0) { sram 40 MB }", "dies of one wafer have the same `sram`"),
        ("die (0, 0) { peek 75 % }", "`die` has no field `peek`"),
        ("die (0, 0) { peak 120 % }", "`peak` of 120 %"),
        ("die (0, 0) { peak 0 % }", "`peak` of 0 %"),
        ("die (0, 0) { peak 75 GB }", "`peak` is measured in FLOP/s"),
        ("die (0, 0) { peak 75 % at 1 TB/s }", "`peak` has no `at`"),
    ],
)
def test_what_a_class_can_not_say_is_refused_at_its_place(line: str, says: str) -> None:
    (mistake,) = errors(written(line)).diagnostics
    assert says in mistake.message
    span = mistake.label.span
    assert span.source.text[span.start : span.end] in line


def test_a_share_is_no_unit_elsewhere() -> None:
    (mistake,) = errors(TINY.replace("peak 1800 TFLOP/s", "peak 75 %")).diagnostics
    assert "a share only of dies unlike others" in mistake.message


def test_fmt_keeps_classes() -> None:
    text = written("die (0,1){peak 75%}", "die (0, 0) .. (0, 3) { hbm 0 GB }")
    neat = fmt(parse(Source("t", text)))
    assert "  die (0, 1) { peak 75 % }\n  die (0, 0)..(0, 3) { hbm 0 GB }\n" in neat
    assert fmt(parse(Source("t", neat))) == neat
