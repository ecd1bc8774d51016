"""The promises of the folder list: imports go one way and in no circle, folders stay small, tables are total."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.support.paths import ROOT
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.passes.registry import PASSES, default_passes
from wscc.strategy import POLICIES

CODE = ("wscc", "passes", "backends", "grammar")
SHIPPED_FROM_THE_TOP = ("passes", "backends", "grammar")  # as `wscc.passes` and so on

# Each part of the tree, and what of ours it may import.
BASE = {"diagnostics", "files", "machine", "ir", "strategy", "grammar"}
FACTS = BASE | {"disjoint_sets", "routing", "analysis"}
ABOVE = FACTS | {
    "frontend",
    "host",
    "huggingface",
    "reference",
    "collectives",
    "passes",
    "backends",
    "driver",
    "workers",
}
MAY: dict[str, set[str]] = {
    "grammar": set(),
    "wscc/diagnostics": {"diagnostics"},
    "wscc/files": {"diagnostics", "files"},
    "wscc/machine": {"diagnostics", "machine"},
    "wscc/strategy.py": {"diagnostics"},
    "wscc/disjoint_sets.py": set(),
    "wscc/workers.py": {"diagnostics"},
    "wscc/ir": {"diagnostics", "machine", "ir", "grammar"},
    "wscc/routing": {"diagnostics", "machine", "routing"},
    "wscc/collectives": {"diagnostics", "disjoint_sets", "files", "machine", "routing", "collectives"},
    "wscc/analysis": {"disjoint_sets", "machine", "ir", "strategy", "routing", "analysis"},
    "wscc/frontend": FACTS | {"frontend"},
    "wscc/reference": {"diagnostics", "ir", "reference"},
    "wscc/host": BASE | {"host"},
    "wscc/huggingface": {"diagnostics", "files", "ir", "machine", "frontend", "huggingface"},
    "wscc/pictures": {"pictures"},
    "passes": FACTS | {"collectives", "passes"},
    "backends": FACTS | {"backends", "collectives", "host", "workers"},
    "wscc/driver": ABOVE,
    "wscc/equivalence": ABOVE | {"equivalence"},
    "wscc/search": ABOVE | {"search"},
    "wscc/faults": ABOVE | {"faults"},
    "wscc/api": ABOVE - {"passes", "backends"} | {"api", "equivalence", "search", "faults", "pictures"},
}
# Nothing else may see passes or backends.
TOP = {"driver", "equivalence", "search", "faults", "cli"}
# What every pass may import of the folder that it lies in.
OF_ALL_PASSES = {"base", "choices", "options"}
MOST_FILES = 25


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "wscc" else ("wscc", *parts))


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders or CODE for path in sorted((ROOT / folder).rglob("*.py"))]


MODULES = {module_name(path): path for path in sources()}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The syntax tree of a file, the module itself first; read once for all tests."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def calls(path: Path) -> frozenset[str]:
    """What a file calls, as it is written there."""
    return frozenset(ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call))


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module of ours that a file imports, under `TYPE_CHECKING` and inside functions too."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("wscc.")}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "wscc":
            named = [f"{node.module}.{a.name}" for a in node.names]
            found |= {n if n in MODULES else node.module for n in named} - {"wscc"}
    return frozenset(found)


def part(module: str) -> str:
    """The second part of `wscc.X.y`."""
    return module.split(".")[1]


def pass_of(module: str) -> str:
    """The pass whose folder a module lies in, or nothing; the list of passes is of none."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["passes"] and parts[2:] not in ([], ["registry"]) else ""


# ---- imports


@pytest.mark.parametrize("folder", MAY)
def test_imports_go_one_way(folder: str) -> None:
    root = ROOT / folder
    for path in [root] if root.is_file() else sources(folder):
        assert {part(m) for m in imports(path)} <= MAY[folder], path


def test_every_part_of_the_tree_has_a_row() -> None:
    parts = {m.split(".")[1] for m in MODULES if "." in m} - {"__main__"}
    assert {Path(f).stem for f in MAY} | {"cli"} == parts


# Calls that open what a path names, and the files that may make them.
OPENS = re.compile(
    r"(os\.)?open|.*\.(open|read_text|read_bytes)|np\.(load|fromfile|memmap|genfromtxt|loadtxt)|json\.load"
    r"|safe_open|load_file|(zipfile\.)?ZipFile"
)
MAY_OPEN = {
    "wscc/files/read.py": "the door",
    "wscc/files/archives.py": "a zip archive in memory",
    "wscc/huggingface/checkpoint.py": "a library reads the file, which the door has seen",
    "wscc/cli/__init__.py": "/dev/null",
    "wscc/machine/presets.py": "a file of the package",
    "grammar/__init__.py": "a file of the package",
    "backends/interpreter/blas.py": "/proc/self/maps",
}


def test_files_of_users_are_opened_at_one_door() -> None:
    """`wscc.files` refuses what could hang a reader or fill the memory; nothing goes around it."""
    opening = {str(path.relative_to(ROOT)) for path in sources() if any(map(OPENS.fullmatch, calls(path)))}
    assert opening == set(MAY_OPEN)


# Calls that write a file or the JSON of a value, and the files that may make them.
WRITES = re.compile(
    r".*\.(write_text|write_bytes|savefig|tofile)|os\.(replace|rename)|np\.save\w*|save_file|json\.dumps?"
)
MAY_WRITE = {
    "wscc/files/write.py": "the door",
    "wscc/files/to_json.py": "JSON for others",
    "wscc/cli/plot.py": "a library writes the file, which the door has made",
    "wscc/huggingface/checkpoint.py": "likewise",
    "backends/artifact/folder.py": "a folder as a whole",
    "backends/artifact/files.py": "canonical JSON, without floats",
    "backends/artifact/json.py": "canonical JSON, which refuses what is not finite",
    "wscc/ir/text/words.py": "a text in quotes",
    "wscc/ir/streams/wsa.py": "likewise",
    "wscc/huggingface/config.py": "likewise, in an error",
}


def test_files_of_users_and_json_are_written_at_one_door() -> None:
    """`wscc.files` replaces a good file by a whole one, and has no number that JSON has not."""
    writing = {str(path.relative_to(ROOT)) for path in sources() if any(map(WRITES.fullmatch, calls(path)))}
    assert writing == set(MAY_WRITE)


def test_no_pass_imports_another_pass() -> None:
    for module, path in MODULES.items():
        if own := pass_of(module):
            seen = {pass_of(m) for m in imports(path)} - {""}
            assert seen <= {own} | OF_ALL_PASSES, path


def test_only_what_stands_above_sees_passes_and_backends() -> None:
    for module, path in MODULES.items():
        seen = {part(m) for m in imports(path)} & {"passes", "backends"}
        own = {part(module)} if "." in module else set()
        assert seen <= own or own <= TOP, path


def test_no_import_goes_in_a_circle() -> None:
    graph = nx.DiGraph((m, n) for m, path in MODULES.items() for n in imports(path))
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles


def test_an_analysis_gives_facts() -> None:
    """Frozen ones, and nothing that is refused (it does not import diagnostics) or rewritten."""
    for path in sources("wscc/analysis"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                decorators = [ast.unparse(d) for d in node.decorator_list]
                assert all("frozen=True" in d for d in decorators if d.startswith("dataclass")), (
                    path,
                    node.name,
                )
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                made = {n.id for n in ast.walk(node.returns) if isinstance(n, ast.Name)}
                assert not made & {"Module", "Procedure"}, (path, node.name)


# ---- folders and files


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent for path in sources(*CODE, "tests"))
    assert {str(f): n for f, n in files.items() if n > MOST_FILES} == {}


def test_no_file_repeats_the_name_of_its_folder() -> None:
    for path in sources():
        assert path.stem != path.parent.name, path
        assert not path.stem.startswith(f"{path.parent.name}_"), path


def test_the_tests_mirror_the_tree() -> None:
    mirrored = {Path(f).name for f in MAY if not f.endswith(".py")} | {"cli"}
    others = {"support", "oracles", "fuzz", "bench", "cases", "end_to_end", "__pycache__"}
    assert {p.name for p in (ROOT / "tests").iterdir() if p.is_dir()} <= mirrored | others


def test_every_module_says_what_it_computes() -> None:
    """In a sentence that begins with its subject."""
    for path in sources():
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        doc = ast.get_docstring(module) or ""
        assert doc, path
        assert doc.split()[0].lower() not in ("what", "which", "how", "whether", "when", "where", "why"), path


@pytest.mark.parametrize("folder", CODE)
def test_files_stay_small(folder: str) -> None:
    for path in sources(folder):
        assert len(path.read_text().splitlines()) <= 400, path


def test_every_package_ships() -> None:
    """Listed in pyproject.toml, so that a wheel has it."""
    listed = set(re.findall(r'^    "(wscc[\w.]*)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert listed == {m for m, path in MODULES.items() if path.name == "__init__.py"}


def test_only_the_command_line_prints_or_exits() -> None:
    for path in sources():
        if "cli" in path.parts:
            continue
        for node in nodes(path):
            assert not (isinstance(node, ast.Name) and node.id in ("print", "exit")), path


# ---- tables


def test_nothing_but_the_strategy_table_knows_an_axis() -> None:
    """A new axis is one row of `wscc.strategy`: no pass or backend spells one."""
    word = re.compile(rf"[\"']({'|'.join(POLICIES)})[\"']")
    for path in sources("passes", "backends", "wscc/ir", "wscc/analysis"):
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
    """In order; delays are for those who ask; `-O0` has no compute copies, no fusion and no overlap,
    `-O1` no copies in SRAM."""
    assert [p.name for p in default_passes(2)] == [n for n in PASSES if n != "stagger"]
    assert [p.name for p in default_passes(1)] == [n for n in PASSES if n not in ("promote", "stagger")]
    left_out = ("hoist_casts", "fuse", "promote", "spread_messages", "overlap_calls", "stagger")
    assert [p.name for p in default_passes(0)] == [n for n in PASSES if n not in left_out]


def test_every_instruction_has_a_meaning() -> None:
    from wscc.backends.interpreter.kernels.table import SEMANTICS

    assert set(SEMANTICS) == set(INSTRUCTIONS) - {"post", "send", "wait"}
