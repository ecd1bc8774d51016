"""The picture of a placement shows every used, idle and dead die where it is."""

from tests.support.models import gpt
from wscc.cli.load_map import wafer_map
from wscc.machine.wafer import Wafer


def test_every_die_stands_in_its_row() -> None:
    wafer = Wafer("w", 2, 3, dead_dies=frozenset({(1, 0)}))
    placed = gpt({"dp": 2, "tatp": 2}, wafer=wafer).with_(dies=(0, 1, 5, 4))
    assert wafer_map(placed) == ["0.0  0.1  ---", "XXX  1.1  1.0"]


def test_one_die_needs_no_picture() -> None:
    assert wafer_map(gpt({}).with_(dies=(0,))) == []
