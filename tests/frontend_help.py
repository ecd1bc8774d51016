"""Programs for the tests of the front end, and one way to run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wscc.diagnostics import CompileError, Source
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import Resolved, resolve

ROOT = Path(__file__).parent.parent
TINY = (ROOT / "samples" / "gpt-tiny.wsl").read_text(encoding="utf-8")


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
