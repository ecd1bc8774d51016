"""Programs for the tests of the front end, and one way to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.support.paths import CASES
from wscc.diagnostics import CompileError, Source
from wscc.diagnostics.render import render
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import Resolved, resolve

T = TypeVar("T")
TINY = (CASES / "tiny.wsl").read_text(encoding="utf-8")


def program(body: str, before: str = "", sizes: str = "d = 4", train: str = "") -> str:
    """A whole program around the statements of a model that has `tokens` and `labels`."""
    return f"""{before}
wafer w = preset "temp-4x8"
model m({sizes}) {{
  input tokens : i32[batch, 8]
  input labels : i32[batch, 8]
  {body}
}}
train m on w {{ batch 4 microbatch 4 optimizer sgd(lr = 0.1) parallel dp = 1 {train} }}
"""


def run(text: str, overrides: Overrides = NO_OVERRIDES) -> Resolved:
    return resolve(parse(Source("t.wsl", text)), overrides)


def errors(text: str, overrides: Overrides = NO_OVERRIDES) -> CompileError:
    """The error that the text must give."""
    with pytest.raises(CompileError) as caught:
        run(text, overrides)
    return caught.value


def messages(text: str, overrides: Overrides = NO_OVERRIDES) -> list[str]:
    return [d.message for d in errors(text, overrides).diagnostics]


def outcome(compute: Callable[[], T]) -> T | CompileError:
    """The result, or the error of the program."""
    try:
        return compute()
    except CompileError as error:
        return error


def is_shown(error: CompileError) -> bool:
    """Whether the error can be shown, with nothing in it that could steer a terminal."""
    shown = render(error)
    return len(shown) > 0 and all(c == "\n" or c.isprintable() for c in shown)
