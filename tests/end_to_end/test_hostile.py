"""Input made to break the compiler gives one clear error; nothing hangs, recurses or shows Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frontend_help import TINY, errors, is_shown, outcome, program, run
from wscc.diagnostics import Code, CompileError, Source
from wscc.diagnostics.render import render
from wscc.files import read_source
from wscc.files.kinds import MAX_CHARACTERS
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.frontend.scan import check_text

HUGE = "*".join(["9999999999"] * 90)
VANISHING = " / ".join(["1e300"] * 90)
LOSS = " loss cross_entropy(x, labels)"
CALLS_BLOCK = program("x = b{n}(tokens)" + LOSS)


def chained(n: int, body: str) -> str:
    """Block i is `body` with `{}` for block i - 1; the last one is used."""
    blocks = "".join(
        f"block b{i}(x) {{ y = {body.replace('{}', f'b{i - 1}')} return y }}\n" for i in range(1, n)
    )
    return "block b0(x) { y = x return y }\n" + blocks + CALLS_BLOCK.replace("{n}", str(n - 1))


HOSTILE = {
    "nested parentheses": (program("x = " + "(" * 10_000 + "d" + ")" * 10_000), Code.LIMIT),
    "nested braces": ("model m {" * 10_000, Code.LIMIT),
    "closing only": ("}" * 10_000, Code.SYNTAX),
    "long sum": (program("x = " + " + ".join(["d"] * 20_000) + LOSS), Code.LIMIT),
    "long product in a size": (program(f"param w : [{'*'.join(['9'] * 20_000)}] init ones"), Code.LIMIT),
    "minus signs": (program("x = " + "-" * 10_000 + "d"), Code.SYNTAX),
    "ten megabytes": (TINY * (10_000_000 // len(TINY)), Code.LIMIT),
    "repeat 1e12": (program("repeat 1e12 as l { } x = tokens" + LOSS), Code.LIMIT),
    "huge exponent": (program("param w : [1e999999999] init ones x = tokens" + LOSS), Code.LIMIT),
    "huge literal": (program(f"param w : [{'9' * 5_000}] init ones x = tokens" + LOSS), Code.LIMIT),
    "huge size": (program("param w : [1e300] init ones x = tokens" + LOSS), Code.NUMBER),
    "huge product": (program(f"param w : [{HUGE}] init ones x = d" + LOSS), Code.NUMBER),
    "huge tensor": (program("param w : [1e9, 1e9] init ones x = tokens" + LOSS), Code.LIMIT),
    "many dimensions": (program(f"param w : [{', '.join('d' * 20_000)}] init ones x = d" + LOSS), Code.LIMIT),
    "vanishing number": (program(f"param w : [d] init normal({VANISHING}) x = d" + LOSS), Code.NUMBER),
    "many arguments": (program(f"x = gelu({', '.join('d' * 20_000)})" + LOSS), Code.ARGUMENTS),
    "long name": (program("x = " + "t" * 100_000 + LOSS), Code.LIMIT),
    "long text": (f'wafer w = preset "{"a" * 100_000}"', Code.LIMIT),
    "unclosed text": (f'wafer w = preset "{"a" * 100_000}', Code.SYNTAX),
    "huge mesh": (TINY.replace("mesh 2 x 4", f"mesh {'9' * 5_000} x 9"), Code.LIMIT),
    "escape sequence": (TINY.replace("gelu", "g\x1b]0;title\x07"), Code.SYNTAX),
    "nul": (TINY.replace("gelu", "ge\0lu"), Code.UNREADABLE),
    "lone surrogate": (TINY.replace("gelu", "ge\ud800lu"), Code.SYNTAX),
    "empty": ("", Code.MISSING),
    "only comments": ("#\n" * 60_000, Code.MISSING),
    "blocks that double": (chained(60, "{}(x) + {}(x)"), Code.LIMIT),
    "long chain of blocks": (chained(2_500, "{}(x)"), Code.LIMIT),
    "block calls itself": (chained(2, "{}(x)").replace("y = x return", "y = b1(x) return"), Code.CYCLE),
    "long cycle": (chained(2_500, "{}(x)").replace("y = x return", "y = b2499(x) return"), Code.CYCLE),
    "many unknown names": (program("\n".join(f"x{i} = u{i}" for i in range(7_000))), Code.UNKNOWN_NAME),
    "thousands of mistakes": ("block b(x) { y = = x }\n" * 4_000, Code.SYNTAX),
    "thousands of duplicates": (program("param w : [d] init ones\n" * 5_000), Code.DUPLICATE),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gives_a_short_named_error(name: str) -> None:
    text, code = HOSTILE[name]
    error = errors(text)
    assert error.diagnostics[0].code is code
    assert len(error.diagnostics) <= 20
    assert is_shown(error)
    assert len(render(error)) < 8_000


def test_one_cause_is_one_error() -> None:
    for name in (
        "nested parentheses",
        "ten megabytes",
        "repeat 1e12",
        "nul",
        "long cycle",
        "blocks that double",
    ):
        assert len(errors(HOSTILE[name][0]).diagnostics) == 1, name


def test_the_largest_accepted_text_is_accepted() -> None:
    text = program("x = tokens" + LOSS)
    padded = text + "#" * (MAX_CHARACTERS - len(text))
    assert run(padded).sizes == {"d": 4}
    with pytest.raises(CompileError):
        check_text(Source("t", padded + "#"))


@pytest.mark.parametrize("inner", ["({})", "gelu({})", "gelu(d + {})"])
def test_the_deepest_accepted_expression_survives_everything(inner: str) -> None:
    expression = "tokens"
    for _ in range(37):
        expression = inner.replace("{}", expression)
    text = program(f"x = {expression}" + LOSS)
    # As deep in the stack as a caller may well be.
    for _ in range(2):
        tree = parse(Source("t", text))
        assert parse(Source("t", fmt(tree))) == tree
        assert hash(tree) == hash(parse(Source("t", text)))
        assert len(repr(tree)) > 0
        run(text)


def test_recursion_of_the_front_end_fits_the_default_limit_with_room() -> None:
    sums = " + ".join(["d"] * 101)
    text = program(f"param w : [{sums}] init ones x = {sums}" + LOSS)
    limit = sys.getrecursionlimit()

    def deeper(n: int) -> object:
        return deeper(n - 1) if n else (run(text).model == run(text).model, fmt(parse(Source("t", text))))

    assert deeper(limit // 4)


# ---- files


def unreadable(path: str) -> str:
    with pytest.raises(CompileError) as caught:
        read_source(path)
    assert [d.code for d in caught.value.diagnostics] == [Code.UNREADABLE]
    return str(caught.value)


def test_a_directory_a_missing_file_and_an_impossible_path_are_named(tmp_path: Path) -> None:
    assert "is a directory" in unreadable(str(tmp_path))
    assert "no such file" in unreadable(str(tmp_path / "none.wsl"))
    assert "not a valid path" in unreadable("a\0b")
    assert "too long" in unreadable("x" * 5_000)
    assert "not a directory" in unreadable(str(Path(__file__) / "x.wsl"))


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wsl")
    assert "not a regular file" in unreadable(str(tmp_path / "pipe.wsl"))


def test_a_file_without_read_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.wsl"
    path.write_text(TINY)
    path.chmod(0)
    if os.access(path, os.R_OK):  # a superuser reads everything: let the open fail as it would for others

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
    assert "permission denied" in unreadable(str(path))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"wafer \xff\xfe", "not UTF-8: byte 6"),
        (b"wafer\0", "byte 5 is NUL"),
        ("ü".encode("utf-16"), "not UTF-8"),
    ],
)
def test_bytes_that_are_not_text_are_named(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "bad.wsl"
    path.write_bytes(data)
    assert words in unreadable(str(path))


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "large.wsl"
    path.write_bytes(b"#" * 10_000_000)
    with pytest.raises(CompileError, match="too large"):
        read_source(str(path))


def test_a_byte_order_mark_and_windows_line_ends_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "windows.wsl"
    path.write_bytes(b"\xef\xbb\xbf" + TINY.replace("\n", "\r\n").encode())
    assert parse(read_source(str(path))) == parse(Source("t", TINY))


# ---- noise

WORDS = [
    "wafer",
    "model",
    "train",
    "block",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "w",
    "=",
    "+",
    "-",
    ",",
    ":",
    "1",
    "80 MB",
]
WORDS += [
    "x",
    "param",
    "init",
    "ones",
    "repeat",
    "as",
    "loss",
    "return",
    "batch",
    "mesh",
    "4 x 8",
    '"',
    "#",
    "\n",
    "$",
]


@settings(max_examples=75, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words_parse_or_give_a_rendered_error(words: list[str]) -> None:
    text = " ".join(words)
    tree = outcome(lambda: parse(Source("t", text)))
    if isinstance(tree, CompileError):
        assert is_shown(tree)
    else:
        assert parse(Source("t", fmt(tree))) == tree


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(TINY) - 1), st.integers(0, 40), st.text(max_size=5))
def test_a_damaged_program_resolves_or_gives_a_rendered_error(at: int, cut: int, put: str) -> None:
    result = outcome(lambda: run(TINY[:at] + put + TINY[at + cut :]))
    assert not isinstance(result, CompileError) or is_shown(result)
