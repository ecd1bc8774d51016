"""Programs that once went wrong, each with what was wrong; found by `tests.fuzz` and made small by it."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz_draw import Draw, Line, Part
from tests.verdict import EQUAL, verdict


def test_a_wafer_without_a_live_die_is_refused_by_name(tmp_path: Path) -> None:
    """The message looked for the largest axis of a strategy that has none."""
    draw = Draw(rows=1, cols=1, dead_dies=frozenset({(0, 0)}))
    found = verdict(draw.text, tmp_path)
    assert (found.what, "all of them are dead" in found.why) == ("W301", True)


def test_a_split_of_a_weight_leaves_room_for_the_axis_that_shards_it(tmp_path: Path) -> None:
    """A weight [12, 6] over tp = 2 and tatp = 4: tp must take the 6, for 4 divides 12 alone. It took the 12, and
    the program was refused."""
    parts = (Part(0, (Line("shared_up_and_down"),)), Part(2, (Line("mlp"),)))
    degrees = (("tatp", 4), ("tp", 2))
    draw = Draw(rows=2, cols=4, d=12, f=6, parts=parts, degrees=degrees)
    found = verdict(draw.text, tmp_path)
    assert found.what == EQUAL, found.why
