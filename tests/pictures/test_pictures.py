"""Pictures are well-formed SVG that shows each fact, the same every time."""

from __future__ import annotations

from xml.etree import ElementTree

from wscc.pictures.facts import Bar, Die, LinkLoad, LoadMap, Mesh, Ring, Timeline, WaferMap
from wscc.pictures.load import load_svg
from wscc.pictures.timeline import tick, timeline_svg
from wscc.pictures.wafer import wafer_svg

MESH = Mesh(2, 3, frozenset({(1, 2)}), frozenset({((0, 0), (0, 1))}))
SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str, tag: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter(SVG + tag)]


def test_a_wafer_shows_each_die_as_what_it_is() -> None:
    dies = (Die((0, 1), "0.<1>"), Die((0, 2), "1.0", 1))
    svg = wafer_svg(WaferMap("a & b", "x", MESH, dies, (Ring(((0, 1), (0, 2)), False),), ("p", "q"), "ring"))
    titles = words(svg, "title")
    assert {"die (0, 1): 0.<1>", "die (0, 2): 1.0", "die (1, 2): dead", "die (1, 1): idle"} <= set(titles)
    assert {"a & b", "p", "q", "ring", "idle", "dead"} <= set(words(svg, "text"))
    assert "<script" not in svg


def test_a_closed_ring_has_a_hop_more_than_a_chain() -> None:
    dies = tuple(Die((r, c), "x") for r in range(2) for c in range(2))
    places = ((0, 0), (0, 1), (1, 1), (1, 0))

    def lines(closed: bool) -> int:
        svg = wafer_svg(WaferMap("t", "s", Mesh(2, 2), dies, (Ring(places, closed),), (), "ring"))
        return svg.count("stroke-linecap")

    assert lines(True) == lines(False) + 1


def test_a_timeline_has_a_bar_for_each_stretch() -> None:
    bars = (Bar(0, 0.0, 1.0, "forward", "1"), Bar(1, 1.0, 1.5, "backward"))
    svg = timeline_svg(Timeline("t", "s", ("stage 0", "stage 1"), ("forward", "backward"), bars, 2.0))
    assert {"forward 1: 0 ns to 1 s", "backward: 1 s to 1.5 s"} <= set(words(svg, "title"))
    assert timeline_svg(Timeline("t", "s", (), (), (), 0.0)).endswith("</svg>\n")


def test_ticks_are_round() -> None:
    assert [tick(s) for s in (8.0, 1.0)] == [1.0, 0.2]


def test_the_load_of_a_link_is_in_its_colour() -> None:
    loads = (LinkLoad((0, 1), (0, 2), 1000), LinkLoad((0, 2), (0, 1), 1), LinkLoad((0, 1), (1, 1), 0))
    svg = load_svg(LoadMap("t", "s", MESH, frozenset({(0, 1)}), loads))
    assert "(0, 1) to (0, 2): 1,000 bytes" in words(svg, "title")
    assert "up to 1 kB a step and direction" in words(svg, "text")
    assert svg == load_svg(LoadMap("t", "s", MESH, frozenset({(0, 1)}), loads))
