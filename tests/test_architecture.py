"""What the folder list promises: imports go one way, tables are total, no pass knows an axis by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.passes import PASSES, default_passes
from wscc.strategy import POLICIES

# Each part of the tree, and what of ours it may import.
BASE = {"diagnostics", "machine", "ir", "strategy", "grammar"}
MAY: dict[str, set[str]] = {
    "grammar": set(),
    "wscc/diagnostics": {"diagnostics"},
    "wscc/machine": {"diagnostics", "machine"},
    "wscc/collectives": {"diagnostics", "machine", "routing", "collectives"},
    "wscc/ir": {"diagnostics", "machine", "ir", "grammar"},
    "wscc/strategy.py": {"diagnostics"},
    "wscc/frontend": BASE | {"frontend"},
    "wscc/host": BASE | {"host"},
    "wscc/huggingface": {"diagnostics", "ir", "machine", "frontend", "huggingface"},
    "wscc/reference": {"diagnostics", "ir", "reference"},
    "wscc/routing": {"diagnostics", "machine", "routing"},
    "passes": BASE | {"routing", "passes"},
    "backends": BASE | {"backends", "collectives", "host"},
    "wscc/pipeline.py": BASE | {"passes"},
    "wscc/search": BASE
    | {"frontend", "passes", "backends", "pipeline", "compiler", "report", "simulation", "search"},
    "wscc/faults": BASE | {"frontend", "passes", "pipeline", "report", "faults"},
}


def imported(path: Path) -> set[str]:
    """The second part of every `wscc.X` that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "wscc" else [f"wscc.{a.name}" for a in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("wscc.")}
    return found


@pytest.mark.parametrize("part", MAY)
def test_imports_go_one_way(part: str) -> None:
    root = ROOT / part
    for path in [root] if root.is_file() else root.rglob("*.py"):
        assert imported(path) <= MAY[part], path


def test_only_the_command_line_prints_or_exits() -> None:
    for folder in ("wscc", "passes", "backends", "grammar"):
        for path in (ROOT / folder).rglob("*.py"):
            if "cli" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                assert not (isinstance(node, ast.Name) and node.id in ("print", "exit")), path


def test_nothing_but_the_strategy_table_knows_an_axis() -> None:
    """A new axis is one row of `wscc.strategy`: no pass or backend spells one."""
    word = re.compile(rf"[\"']({'|'.join(POLICIES)})[\"']")
    for folder in ("passes", "backends", "wscc/ir"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not word.search(path.read_text()), path


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_a_property_test_of_its_own(name: str) -> None:
    text = (ROOT / "tests" / "passes" / f"test_{name}.py").read_text()
    assert "@given" in text


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_says_what_it_does(name: str) -> None:
    doc = PASSES[name].__doc__ or ""
    assert "Before" in doc
    assert "After" in doc


def test_the_default_pipeline_is_the_list_of_passes() -> None:
    """In order; delays are for those who ask; `-O0` has no working copies, no fusion and no overlap,
    `-O1` no copies in SRAM."""
    assert [p.name for p in default_passes(2)] == [n for n in PASSES if n != "stagger"]
    assert [p.name for p in default_passes(1)] == [n for n in PASSES if n not in ("promote", "stagger")]
    left_out = ("hoist_casts", "fuse", "promote", "spread_messages", "overlap_calls", "stagger")
    assert [p.name for p in default_passes(0)] == [n for n in PASSES if n not in left_out]


def test_every_instruction_has_a_meaning() -> None:
    from wscc.backends.interpreter.kernels.table import MEANING

    assert set(MEANING) == set(INSTRUCTIONS) - {"post", "send", "wait"}


@pytest.mark.parametrize("folder", ["wscc", "passes", "backends", "grammar"])
def test_files_stay_small(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
