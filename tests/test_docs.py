"""README and docs/ are true: commands print what they show, changes apply and work, names and links exist."""

from __future__ import annotations

import ast
import re
from difflib import unified_diff
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import wscc
from tests.support.compile_once import programs_once  # noqa: F401
from tests.support.pages import PICTURES, Outdated, blocks, pages, pictures, prepare, regenerated
from tests.support.paths import ROOT
from wscc.cli import cli
from wscc.passes.registry import PASSES

pytestmark = pytest.mark.bounds

CODE = ("wscc", "passes", "backends", "grammar")
ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
_LIVE = {"console", "diff"}


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


def is_live(page: Path) -> bool:
    return any(b.kind in _LIVE or b.path for b in blocks(page.read_text(encoding="utf-8")))


# ---- what pages show


@pytest.mark.usefixtures("programs_once")
@pytest.mark.parametrize("page", [p for p in pages() if is_live(p)], ids=name)
def test_a_page_can_be_followed_and_its_output_is_real(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    try:
        now = regenerated(text, prepare(text, tmp_path))
    except Outdated as problem:
        pytest.fail(f"{page.name} cannot be followed: {problem}")
    changes = "".join(
        unified_diff(text.splitlines(keepends=True), now.splitlines(keepends=True), "shown", "real")
    )
    assert not changes, f"{changes}\nrun `make bless`, then read {page.name} again"
    assert not unknown_names(page, ROOT, tmp_path)
    now_drawn, drawn = pictures(tmp_path), pictures(ROOT)
    other = [name for name in drawn if drawn[name] != now_drawn[name]]
    assert not other, f"`make bless` draws {', '.join(other)} anew"


@pytest.mark.parametrize("page", [p for p in pages() if not is_live(p)], ids=name)
def test_files_and_names_that_a_page_mentions_exist(page: Path) -> None:
    assert not unknown_names(page, ROOT)


def unknown_names(page: Path, *roots: Path) -> list[str]:
    """What the page mentions and no root has."""
    return [
        f"{path}:{name}" if name else path
        for path, name in mentions(page)
        if not any(found(root, path, name) for root in roots)
    ]


def mentions(page: Path) -> list[tuple[str, str]]:
    """Every `folder/file` and `folder/file.py:Name` in the prose, the name empty for the former."""
    names = re.findall(r"`([\w./-]+/[\w.-]*)(?::(\w+))?`", prose(page))
    kept = (".py", ".wsl", ".lark")  # anything else in a folder that does not exist is an example
    return [(p, name) for p, name in names if p.endswith(kept) or (ROOT / p.split("/")[0]).exists()]


def found(root: Path, path: str, name: str) -> bool:
    if not (root / path).exists():
        return False
    defined = rf"^(class|def) {name}\b|^{name}\b.* = " if name else ""
    return not name or bool(re.search(defined, (root / path).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", pages(), ids=name)
def test_modules_that_a_page_mentions_exist(page: Path) -> None:
    for module in re.findall(r"`(wscc(?:\.\w+)+)`", prose(page)):
        parent, _, attribute = module.rpartition(".")
        known = module.removeprefix("wscc.") in wscc.__all__ or hasattr(import_module(parent), attribute)
        assert known or find_spec(module), module


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", prose(page)):
        assert (page.parent / target).exists(), target


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", index)}
    assert linked >= {p.resolve() for p in pages() if p.name != "README.md"}


def test_every_command_has_a_page_that_ends_with_its_options() -> None:
    folder = ROOT / "docs" / "commands"
    assert {p.stem for p in folder.glob("*.md")} == {n for n, c in cli.commands.items() if not c.hidden}
    for page in folder.glob("*.md"):
        assert f"$ wscc {page.stem} --help\n" in list(blocks(page.read_text(encoding="utf-8")))[-1].text, page


def test_every_picture_is_drawn_by_a_command_of_a_page() -> None:
    text = "".join(b.text for p in pages() for b in blocks(p.read_text(encoding="utf-8")))
    assert {str(PICTURES / name) for name in pictures(ROOT)} == set(re.findall(rf"-o ({PICTURES}/\S+)", text))


def test_the_first_page_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


# ---- what pages must cover


def test_the_tour_meets_every_pass_in_order() -> None:
    named = re.findall(r"`(\w+)`", prose(ROOT / "docs" / "tour.md"))
    met = [n for n in dict.fromkeys(named) if n in PASSES]
    # `fuse` has nothing to do there and is met in passing, with the sharded level.
    assert met == list(PASSES)


@pytest.mark.parametrize("page", ["add-an-op", "add-a-pass"])
def test_a_how_to_is_under_a_page(page: str) -> None:
    assert len(prose(ROOT / "docs" / f"{page}.md").split()) < 450


@pytest.mark.parametrize("adr", ADRS, ids=lambda p: p.stem)
def test_a_decision_has_its_three_parts_and_ten_lines(adr: Path) -> None:
    lines = adr.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# {ADRS.index(adr) + 1:03} ")
    assert adr.name.startswith(f"{ADRS.index(adr) + 1:03}-")
    assert [line[2 : line.index(".**")] for line in lines if line.startswith("**")] == [
        "Context",
        "Decision",
        "Consequence",
    ]
    assert len(lines) <= 12


def test_code_says_the_words_of_the_glossary() -> None:
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("| say | not |")[2]
    say = {
        word.strip().lower(): right
        for right, wrong in re.findall(r"^\| ([\w-]+) \| (.+) \|$", table, re.MULTILINE)
        for word in re.sub(r"\(.*?\)", "", wrong).split(",")
    }
    assert say["chip"] == "die"
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            for name in identifiers(path):
                for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name):
                    assert word.lower() not in say, (
                        f"{path}: `{name}`; say {say[word.lower()]} (docs/glossary.md)"
                    )


def identifiers(path: Path) -> set[str]:
    """What the file defines: functions, classes, arguments, variables."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


# ---- how pages are run


def test_what_varies_is_left_open_and_stays_so(tmp_path: Path) -> None:
    page = "```console\n$ printf 'in 3 s\\nb\\n'\nin ... s\n%s\n```\n"
    assert regenerated(page % "b", tmp_path) == page % "b"
    assert regenerated(page % "old", tmp_path) == page % "b"


def test_commands_of_ours_are_called_here_and_piped_to_others(tmp_path: Path) -> None:
    page = "```console\n$ wscc passes | sed -n '/^place /s/ .*//p'\nplace\n$ wscc explain W999\nerror...\n...\n```\n"
    assert regenerated(page, tmp_path) == page


def test_output_that_changed_is_rewritten_and_the_rest_is_kept(tmp_path: Path) -> None:
    page = "A\n```console\n$ echo new\nold\n$ printf '1\\n2\\n3\\n'\n1\n...\n$ true\n```\nB `x`\n```text\nold\n```\n"
    tmp_path.joinpath("bin").mkdir()
    assert regenerated(page, tmp_path) == page.replace("echo new\nold", "echo new\nnew")


def test_a_command_goes_on_over_lines(tmp_path: Path) -> None:
    page = "```console\n$ for i in 1 2; do\n> echo $i\n> done\n1\n2\n```\n"
    assert regenerated(page, tmp_path) == page
    assert regenerated(page.replace("2\n```", "3\n```"), tmp_path) == page


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("```console\n$ exit 3\n```\n", "status 3"),
        ("```console\n$ wscc passes plaec\n```\n", "status 2"),
        ("```console\n$ wscc passes place\nerror: what fails is told\n```\n", "status 0"),
        ("```diff\n@@ f @@\n b\n-x\n```\n", "0 times"),
        ("```diff\n@@ f @@\n c\n+x\n```\n", "2 times"),
        ("```python f\nx = 1\n```\n", "there already"),
    ],
)
def test_a_page_that_cannot_be_followed_says_why(page: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nc\n")
    with pytest.raises(Outdated, match=says):
        regenerated(page, tmp_path)


def test_a_diff_changes_the_lines_it_names(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\n")
    regenerated("```diff\n@@ f @@\n a\n-b\n+x\n+\n c\n@@ f @@\n x\n+y\n```\n", tmp_path)
    assert (tmp_path / "f").read_text() == "a\nx\ny\n\nc\n"
