"""`wscc route`: results as text and JSON, routes that others can replay, and mistakes with their places."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.hash_seed import printed_under_two_hash_seeds
from wscc.cli import main
from wscc.files.kinds import FLOWS

Capture = pytest.CaptureFixture[str]
FIELDS = {
    "flows", "xy_max_link_bytes", "max_link_bytes", "lp_bound_bytes", "gap_percent", "seconds", "bound_seconds",
}  # fmt: skip
# Both flows cross (0, 1) - (0, 2) and (1, 2) - (2, 2) with XY.
TWO = "# to the corner\n0,0 2,2 1048576\n\n0,1 2,2 1048576   # from beside it\n"


def written(folder: Path, text: str) -> str:
    path = folder / "flows.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_json_has_the_promised_fields(tmp_path: Path, capsys: Capture) -> None:
    assert main(["route", "--mesh", "3x3", "--flows", written(tmp_path, TWO), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == FIELDS
    assert result["flows"] == 2
    assert result["xy_max_link_bytes"] == 2 << 20
    assert result["lp_bound_bytes"] <= result["max_link_bytes"] <= 1.01 * (1 << 20)
    assert result["gap_percent"] == pytest.approx(
        100 * (result["max_link_bytes"] / result["lp_bound_bytes"] - 1), abs=1e-3
    )
    assert result["seconds"] > 0 < result["bound_seconds"]


def test_xy_is_one_of_the_routings_and_the_bound_may_be_left_out(tmp_path: Path, capsys: Capture) -> None:
    flows = written(tmp_path, TWO)
    assert main(["route", "--mesh", "3x3", "--flows", flows, "--routing", "xy", "--no-bound", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["max_link_bytes"] == result["xy_max_link_bytes"] == 2 << 20
    assert (result["lp_bound_bytes"], result["gap_percent"], result["bound_seconds"]) == (None, None, 0.0)


def test_routes_can_be_replayed(tmp_path: Path, capsys: Capture) -> None:
    """Counting bytes x share along the paths gives the load that was told; `flow` is a line of the file."""
    routes = tmp_path / "routes.jsonl"
    args = ["--dead", "die:1,1", "--dead", "link:0,1-0,2", "--json", "--routes", str(routes)]
    assert main(["route", "--mesh", "3x4", "--flows", written(tmp_path, TWO), *args]) == 0
    result = json.loads(capsys.readouterr().out)
    entries = [json.loads(line) for line in routes.read_text().splitlines()]
    assert all(set(entry) == {"flow", "path", "share", "channel"} for entry in entries)
    load: Counter[tuple[tuple[int, ...], ...]] = Counter()
    shares: Counter[int] = Counter()
    for entry in entries:
        shares[entry["flow"]] += entry["share"]
        for a, b in pairwise(map(tuple, entry["path"])):
            assert abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
            assert (1, 1) not in (a, b)
            assert {(0, 1), (0, 2)} != {a, b}
            load[a, b] += round(entry["share"] * 1048576)
    assert shares == {1: pytest.approx(1.0), 3: pytest.approx(1.0)}
    assert {(e["flow"], *e["path"][0], *e["path"][-1]) for e in entries} == {(1, 0, 0, 2, 2), (3, 0, 1, 2, 2)}
    assert max(load.values()) == result["max_link_bytes"]


def test_people_get_a_table_and_two_maps(tmp_path: Path, capsys: Capture) -> None:
    flows = written(tmp_path, TWO + "0,0 0,0 5\n")
    assert main(["route", "--mesh", "3x3", "--flows", flows, "--dead", "die:2,0"]) == 0
    out = capsys.readouterr().out
    assert "XY        2,097,152 bytes over the most loaded link" in out
    assert "routed    1,048,57" in out
    assert "hottest links" in out
    lines = out.splitlines()
    top = next(i for i, line in enumerate(lines) if line.startswith("before"))
    # Of the largest XY load: half from the first flow, all of it from both.
    assert [line[:9].rstrip() for line in lines[top + 1 :]] == [
        "o 5 o 9 o",
        ".   .   9",
        "o . o . o",
        "    .   9",
        "X   o . o",
    ]
    assert "after" in lines[top]


def test_a_mesh_without_traffic_has_nothing_to_route(tmp_path: Path, capsys: Capture) -> None:
    for text in ("", "# nothing\n", "0,0 0,0 9\n"):
        assert main(["route", "--mesh", "1x1", "--flows", written(tmp_path, text), "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["max_link_bytes"], result["lp_bound_bytes"], result["gap_percent"]) == (0, 0, 0.0)
        assert main(["route", "--mesh", "1x1", "--flows", written(tmp_path, text)]) == 0
        capsys.readouterr()


def test_contents_are_the_same_bytes(tmp_path: Path, capsys: Capture) -> None:
    """Three copies out of a corner need 1.5 of them on a link; the same bytes for three dies half of one."""
    ends = ("0,1", "1,0", "1,1")
    for name, most in (("", 3 << 19), (" w", 1 << 19)):
        text = "".join(f"0,0 {end} 1048576{name}\n" for end in ends)
        assert main(["route", "--mesh", "2x2", "--flows", written(tmp_path, text), "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert most <= result["max_link_bytes"] <= most + 4


MISTAKES = """\
0,0 3,3 5
0,9 1,2 5
0,0 0,1
1,1 0,0 5
0,0 0,1 5 a
0,0 1,0 6 a
0,0 0,1 x
0,0 0,1 0
(0,0) 0,1 5
0,0 0,1 99999999999999999999
0,0 0,1 5 a b
"""


def test_every_mistake_is_told_with_its_place(tmp_path: Path, capsys: Capture) -> None:
    flows = written(tmp_path, MISTAKES)
    args = ["--dead", "die:1,1", "--dead", "link:3,3-3,2", "--dead", "link:3,3-2,3"]
    assert main(["route", "--mesh", "4x4", "--flows", flows, *args]) == 1
    err = capsys.readouterr().err
    for code, line, column, words in (
        ("W302", 1, 1, "no live path joins dies (0, 0) and (3, 3)"),
        ("W304", 2, 1, "die (0, 9) is not on the mesh"),
        ("W001", 3, 1, "expected 3 or 4 words, found 2"),
        ("W302", 4, 1, "die (1, 1) is dead"),
        ("W007", 6, 9, "content `a` of die (0, 0) has 5 bytes, and here 6"),
        ("W001", 7, 9, "`x` is no number of bytes"),
        ("W005", 8, 9, "a flow of 0 bytes moves nothing"),
        ("W001", 9, 1, "`(0,0)` is not a die"),
        ("W005", 10, 9, "a flow moves at most"),
        ("W001", 11, 1, "expected 3 or 4 words, found 5"),
    ):
        assert f"error[{code}]: {words}" in err
        assert f"{flows}:{line}:{column}\n" in err
    assert err.count("error[") == 10
    assert "Traceback" not in err


def test_of_many_mistakes_twenty_are_told(tmp_path: Path, capsys: Capture) -> None:
    assert main(["route", "--mesh", "2x2", "--flows", written(tmp_path, "0,0 9,9 1\n" * 1000)]) == 1
    assert capsys.readouterr().err.count("error[W304]") == 20


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--mesh", "3"], 2, "is not ROWSxCOLUMNS"),
        (["--mesh", "3x3", "--max-iter", "0"], 2, "--max-iter"),
        (["--mesh", "3x3", "--routing", "best"], 2, "--routing"),
        (["--mesh", "0x3"], 1, "W005"),
        (["--mesh", "999x999"], 1, "W003"),
        (["--mesh", "3x3", "--dead", "die:9,9"], 1, "W304"),
        (["--mesh", "3x3", "--dead", "link:0,0-2,2"], 1, "W304"),
        (["--mesh", "3x3", "--dead", "dye:1,1"], 2, "W006"),
        (["--mesh", "3x3", "--routes", "no/such/folder"], 1, "cannot write"),
    ],
)
def test_options_that_cannot_be_are_named(
    args: list[str], status: int, words: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["route", "--flows", written(tmp_path, TWO), *args]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_files_that_are_no_flow_files_are_named(tmp_path: Path, capsys: Capture) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(FLOWS.limit + 1)
    binary = tmp_path / "binary"
    binary.write_bytes(b"0,0 0,1 \xff\n")
    many = tmp_path / "many"
    many.write_text("0,0 0,1 1\n" * ((1 << 17) + 1))
    for path, words in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is a directory"),
        (huge, "error[W003]"),
        (binary, "is not UTF-8"),
        (many, "has more than 131,072 flows"),
    ):
        assert main(["route", "--mesh", "2x2", "--flows", str(path), "--json"]) == 1
        seen = capsys.readouterr()
        assert words in seen.err
        assert json.loads(seen.out)["error"]["message"]


def test_the_same_flows_give_the_same_file_whatever_the_hash_seed(tmp_path: Path) -> None:
    dies = [(r, c) for r in range(4) for c in range(4)]
    text = "".join(
        f"{r},{c} {c},{(r + c) % 4} 300007 {'w' if c else ''}\n{r},{c} {3 - r},{3 - c} 70001\n"
        for r, c in dies
    )
    file = str(tmp_path / "routes")
    arguments = ["route", "--mesh", "4x4", "--flows", written(tmp_path, text), "--routes", file]
    here, there = printed_under_two_hash_seeds(
        "import contextlib, io, pathlib\nfrom wscc.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    main({arguments})\n"
        f"print(pathlib.Path({file!r}).read_text())"
    )
    assert here == there
    assert len(here.splitlines()) > 32
