"""Messages as the user sees them: the errors of each `cases/errors/NAME.wsl` are the text of `NAME.expect`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.frontend_help import errors
from tests.support.paths import CASES
from wscc.diagnostics import CODES, NO_SPAN, Code, CompileError, Diagnostic, Label, Source, fail
from wscc.diagnostics.explain import explain
from wscc.diagnostics.render import one_line, render, render_rich
from wscc.driver.compile import compile_source
from wscc.frontend.scan import span_at

CASES = sorted((CASES / "errors").glob("*.wsl"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_wrong_program_is_explained(path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        compile_source(Source(path.name, path.read_text(encoding="utf-8")))
    shown = render(caught.value) + "\n"
    expected = path.with_suffix(".expect")
    if os.environ.get("WSCC_BLESS") == "1":
        expected.write_text(shown, encoding="utf-8")
    assert shown == expected.read_text(encoding="utf-8"), "if the new text is right, run with WSCC_BLESS=1"


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_messages_follow_the_style(path: Path) -> None:
    """Lowercase, no full stop, a place, and nothing of Python in them."""
    for d in errors(path.read_text(encoding="utf-8")).diagnostics:
        assert d.message[0] in "`(" or d.message[0].islower()
        assert not d.message.endswith(".")
        assert d.label.span.source is not None
        assert "\n" not in d.message
        assert not any(word in d.message + d.help for word in ("Traceback", "NoneType", "Error", "object at"))


# ---- codes


def test_every_code_has_what_an_example_and_what_to_do() -> None:
    assert list(CODES) == list(Code)
    for code, text in CODES.items():
        assert "\n\nExample:\n    " in text, code
        assert "\n\nFix: " in text, code
        assert all(len(line) <= 110 for line in text.splitlines())


def test_explain_finds_a_code_in_any_case_and_suggests_the_nearest() -> None:
    assert explain("w004") == f"W004: {CODES[Code.UNIT]}"
    with pytest.raises(CompileError, match="unknown code `W9`"):
        explain("W9")


# ---- rendering


def at(text: str, marked: str, name: str = "t.wsl") -> Label:
    start = text.index(marked)
    return Label(span_at(Source(name, text), start, start + len(marked)))


def caret_columns(shown: str) -> tuple[str, str]:
    """The source line and the line of carets under it, without the gutter."""
    lines = shown.splitlines()
    row = next(i for i, line in enumerate(lines) if "^" in line)
    gutter = lines[row].index("|") + 2
    return lines[row - 1][gutter:], lines[row][gutter:]


def under(shown: str) -> str:
    """The text above the carets, for text of single-column characters."""
    source, carets = caret_columns(shown)
    return source[carets.index("^") : carets.rindex("^") + 1]


def test_two_labels_and_help_by_hand() -> None:
    text = "a = 1\nb = 2\na = 3\n"
    again = text.rindex("a")
    source = Source("t.wsl", text)
    error = CompileError(
        Diagnostic(
            Code.DUPLICATE,
            "`a` is given twice",
            Label(span_at(source, again, again + 1), "again"),
            (Label(span_at(source, 0, 1), "first here"),),
            "keep one\nor the other",
        )
    )
    assert render(error) == (
        "error[W007]: `a` is given twice\n"
        " --> t.wsl:3:1\n"
        "  |\n"
        "3 | a = 3\n"
        "  | ^ again\n"
        " ::: t.wsl:1:1\n"
        "  |\n"
        "1 | a = 1\n"
        "  | - first here\n"
        "  |\n"
        "  = help: keep one\n"
        "          or the other"
    )
    assert render_rich(error).plain == render(error)
    assert one_line(error.diagnostics[0]) == "t.wsl:3:1: error[W007]: `a` is given twice"


def test_a_diagnostic_without_a_place_has_no_snippet() -> None:
    assert render(fail(Code.OPTION, "no", help="yes")) == "error[W006]: no\n  = help: yes"
    assert one_line(Diagnostic(Code.OPTION, "no", Label(NO_SPAN))) == "error[W006]: no"


@pytest.mark.parametrize("before", [0, 5, 60, 99, 100, 101, 1_000, 100_000])
@pytest.mark.parametrize("after", [0, 50, 100_000])
def test_the_caret_stays_under_its_word_however_long_the_line(before: int, after: int) -> None:
    text = "x\n" + "a" * before + "HERE" + "b" * after + "\ny"
    shown = render(CompileError(Diagnostic(Code.SYNTAX, "m", at(text, "HERE"))))
    assert under(shown) == "HERE"
    assert max(map(len, shown.splitlines())) < 130


def test_a_span_longer_than_the_screen_or_the_line_is_cut() -> None:
    for marked in ("a" * 5_000, "first\nsecond"):
        shown = render(CompileError(Diagnostic(Code.SYNTAX, "m", at(f"x {marked} y", marked))))
        assert max(map(len, shown.splitlines())) < 130
    assert under(shown) == "first"


def test_tabs_and_wide_characters_keep_the_caret_in_its_column() -> None:
    text = "\t数据e\u0301 HERE"
    source, carets = caret_columns(render(CompileError(Diagnostic(Code.SYNTAX, "m", at(text, "HERE")))))
    assert source == "    数据e\u0301 HERE"
    # A tab is four columns, each of the two characters two, e with its accent one.
    assert carets == " " * (4 + 4 + 1 + 1) + "^^^^"


def test_nothing_in_a_source_can_steer_the_terminal() -> None:
    text = "a\x1b[2J\x07\u202e\u2028\x85HERE"
    shown = render(fail(Code.SYNTAX, f"found `{text}`", at(text, "HERE", "na\x1bme").span))
    assert all(c == "\n" or c.isprintable() for c in shown)


def test_a_place_at_the_end_of_the_text_is_shown() -> None:
    for text in ("", "abc", "abc\n"):
        span = span_at(Source("t", text), len(text), len(text) + 1)
        assert "^" in render(fail(Code.SYNTAX, "m", span))
