"""`wscc fmt`: its output parses to the same tree, prints the same again, and keeps every comment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frontend_help import TINY
from tests.support.paths import ROOT
from wscc.diagnostics import Source
from wscc.frontend import ast
from wscc.frontend.fmt import expression, fmt
from wscc.frontend.parse import parse

T = TypeVar("T")


def reparsed(text: str) -> ast.File:
    return parse(Source("t", text))


def test_the_older_spelling_of_a_setting_is_printed_as_the_present_one() -> None:
    old = reparsed("train m on w { schedule warmup(2), cosine(9, 0.1) }")
    assert fmt(old) == "train m on w {\n  lr_schedule warmup(2), cosine(9, 0.1)\n}\n"
    assert reparsed(fmt(old)) == old


# ---- trees at random

# Keywords too: each is a name wherever the grammar does not expect it.
NAMES = st.sampled_from(
    ["x", "y", "wte", "q_1", "batch", "mesh", "block", "seed", "on", "at", "auto", "GB", "s"]
)
# At the start of a statement these words begin another kind of statement.
TARGETS = st.sampled_from(["x", "y", "wte", "q_1", "batch", "mesh", "seed", "GB", "s"])
COMMENTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=6).map(
    lambda t: f"#{t}".rstrip()
)


def name(words: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[ast.Name]:
    return st.builds(ast.Name, words)


NUMBERS = st.builds(ast.Number, st.sampled_from(["0", "1", "12", "768", "0.5", "1.0", "3e-4", "1E+9", "007"]))


def _deeper(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    keywords = st.builds(ast.Keyword, name(), inner)
    return st.one_of(
        st.builds(ast.Binary, st.sampled_from("+-*/@"), inner, inner),
        st.builds(ast.Negative, inner),
        st.builds(ast.Call, name(), tuples(inner, 0, 2), tuples(keywords, 0, 2)),
    )


def tuples(of: st.SearchStrategy[T], least: int = 1, most: int = 3) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(of, min_size=least, max_size=most).map(tuple)


EXPRS: st.SearchStrategy[ast.Expr] = st.recursive(st.one_of(name(), NUMBERS), _deeper, max_leaves=6)
TRIVIA = st.builds(ast.Trivia, tuples(COMMENTS, 0, 2), st.one_of(st.just(""), COMMENTS), st.booleans())


def line(kind: Any, *parts: Any) -> st.SearchStrategy[Any]:
    return TRIVIA.flatmap(lambda trivia: st.builds(kind, *parts, trivia=st.just(trivia)))


def without_blank(node: Any) -> Any:
    return replace(node, trivia=replace(node.trivia, blank=False))


def body(
    lines: st.SearchStrategy[Any], most: int = 4, *, blanks: bool = True
) -> st.SearchStrategy[ast.Body[Any]]:
    """A body; its first line has no blank line before it."""

    def settle(nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(n if blanks and i else without_blank(n) for i, n in enumerate(nodes))

    opening = st.one_of(st.just(""), COMMENTS)
    return st.builds(ast.Body, tuples(lines, 0, most).map(settle), opening, tuples(COMMENTS, 0, 2))


STATEMENTS = st.one_of(
    line(ast.Input, name(), name(), tuples(EXPRS)),
    line(
        ast.Param,
        name(),
        tuples(EXPRS),
        st.builds(ast.Init, name(), st.one_of(st.none(), EXPRS)),
        st.one_of(st.none(), name(st.sampled_from(["on", "off", "x"]))),
    ),
    line(ast.Assign, tuples(name(TARGETS)), EXPRS),
    line(ast.Loss, EXPRS),
    line(ast.Return, tuples(EXPRS)),
)
NESTED = st.one_of(STATEMENTS, line(ast.Repeat, EXPRS, name(), body(STATEMENTS, 2)))
PARAMETERS = tuples(st.builds(ast.Parameter, name(), st.one_of(st.none(), EXPRS)), 0, 2)
QUANTITIES = st.builds(
    ast.Quantity, NUMBERS, st.sampled_from(["", "B", "KiB", "TB/s", "TFLOP/s/W", "ns", "pJ/bit"])
)
FIELDS = line(ast.Field, name(), QUANTITIES, st.one_of(st.none(), QUANTITIES))
COORDS = st.builds(ast.Coord, st.integers(0, 99), st.integers(0, 99))
ENTRIES = st.one_of(
    line(ast.Mesh, st.integers(1, 99), st.integers(1, 99)),
    line(ast.Fields, st.sampled_from(["die", "link"]), body(FIELDS, 5, blanks=False)),
    line(ast.DeadDie, COORDS),
    line(ast.DeadLink, COORDS, COORDS),
)
CALLS = EXPRS.filter(lambda e: isinstance(e, ast.Call))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("batch", "microbatch", "clip", "seed"), NUMBERS),
    "data": st.builds(
        ast.Text, st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"'))
    ),
    "validation": st.builds(ast.Quantity, NUMBERS, st.sampled_from(["%", "rows"])),
    "optimizer": st.builds(ast.Call, name(), tuples(EXPRS, 0, 2)),
    "lr_schedule": st.builds(ast.LrSchedule, tuples(st.builds(ast.Call, name(), tuples(EXPRS, 0, 2)))),
    "dtype": st.builds(ast.DTypes, tuples(st.builds(ast.Role, name(), name()))),
    **dict.fromkeys(("recompute", "decay"), name()),
    "parallel": st.builds(ast.Strategy, tuples(st.builds(ast.Axis, name(), NUMBERS), 1))
    | st.builds(
        ast.Strategy,
        st.just(()),
        tuples(st.builds(ast.Pin, name(), NUMBERS | st.builds(ast.Name, name())), 0),
    ),
}
SETTINGS = st.sampled_from(sorted(VALUES)).flatmap(lambda key: line(ast.Setting, st.just(key), VALUES[key]))
TEXTS = VALUES["data"]
# As a value, `x` is no name: it multiplies.
RATES = line(ast.Rate, name(), st.one_of(NUMBERS, name(st.sampled_from(["off", "on"]))), st.booleans())
GROUPS = line(ast.Group, TEXTS, body(RATES, 3, blanks=False).filter(lambda b: b.lines))
WAFERS = st.one_of(
    line(ast.Wafer, name(), st.none(), body(ENTRIES)),
    line(ast.Wafer, name(), TEXTS, st.one_of(st.none(), body(ENTRIES))),
)
ITEMS = st.one_of(
    WAFERS,
    line(ast.Model, name(), PARAMETERS, body(NESTED)),
    line(ast.Block, name(), PARAMETERS, body(NESTED)),
    line(ast.Train, name(), name(), body(st.one_of(SETTINGS, GROUPS))),
).map(without_blank)


@settings(max_examples=25, deadline=None)
@given(st.builds(ast.File, tuples(ITEMS, 0, 3), tuples(COMMENTS, 0, 2)))
def test_a_printed_tree_parses_to_itself_and_prints_the_same(file: ast.File) -> None:
    text = fmt(file)
    assert reparsed(text) == file
    assert fmt(reparsed(text)) == text


@settings(max_examples=50, deadline=None)
@given(EXPRS)
def test_an_expression_keeps_its_structure(expr: ast.Expr) -> None:
    tree = reparsed(f"model m {{ loss {expression(expr)} }}").items[0]
    assert isinstance(tree, ast.Model)
    assert tree.body.lines == (ast.Loss(expr),)


# ---- comments and layout

# Any break between two words may become a comment or a line break; a mesh is one word.
CODE = [word for line in TINY.replace("2 x 4", "2x4").splitlines() for word in line.split("#")[0].split()]


def comments(text: str) -> list[str]:
    """Sorted: a comment inside a statement moves before it."""
    return sorted(line[line.index("#") :].strip() for line in text.splitlines() if "#" in line)


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.integers(0, len(CODE)), st.sampled_from(["\n", "#a\n", "\n#b\n", "\n\n# c\n#d\n"])))
def test_comments_anywhere_survive_and_change_nothing(breaks: dict[int, str]) -> None:
    text = "".join(f"{breaks.get(i, ' ')}{word} " for i, word in enumerate(CODE)) + breaks.get(len(CODE), "")
    printed = fmt(reparsed(text))
    assert comments(printed) == comments(text)
    bare = fmt(reparsed("\n".join(line.split("#")[0] for line in printed.splitlines())))
    assert bare.split() == fmt(reparsed(" ".join(CODE))).split()
    assert fmt(reparsed(printed)) == printed


def test_line_breaks_mean_nothing() -> None:
    assert reparsed(" ".join(CODE)) == reparsed("\n".join(CODE))


def test_the_canonical_form_by_example() -> None:
    messy = """
    # first
    wafer w{mesh 4x8 # size
    die{peak 1 TFLOP/s,sram 1 MB,}link{# open
      latency 1ns, # short
    }}# closed
    model m(a=1,){x=(((a+1)))*-a-(a-a)   q,k = split( x )


    loss x # why
    # tail
    }   train m on w{parallel auto batch 4}
    """
    assert fmt(reparsed(messy)) == (
        "# first\n"
        "wafer w {\n"
        "  mesh 4 x 8  # size\n"
        "  die { peak 1 TFLOP/s, sram 1 MB }\n"
        "  link {  # open\n"
        "    latency 1 ns,  # short\n"
        "  }\n"
        "}  # closed\n"
        "\n"
        "model m(a = 1) {\n"
        "  x = (a + 1) * -a - (a - a)\n"
        "  q, k = split(x)\n"
        "\n"
        "  loss x  # why\n"
        "  # tail\n"
        "}\n"
        "\n"
        "train m on w {\n"
        "  parallel auto\n"
        "  batch 4\n"
        "}\n"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "samples").glob("*.wsl")), ids=lambda p: p.name)
def test_samples_are_in_canonical_form(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert fmt(reparsed(text)) == text


def test_an_empty_file_prints_as_nothing() -> None:
    assert fmt(reparsed("\n\n")) == ""
    assert fmt(reparsed("# only this")) == "# only this\n"
