"""The pins of a search, which it does not vary: `parallel auto, tatp = 8, recompute = full`, or `--pin tatp=8`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wscc.diagnostics import Code
from wscc.diagnostics.limits import MAX_COUNT, Limits
from wscc.frontend import ast
from wscc.frontend.config import AXES
from wscc.frontend.report import Report, hint
from wscc.search.space import CHOICES, Choice, Pins

_POSITIVE: Final = Limits(least=1, most=MAX_COUNT, whole=True)


def pins_of(written: Sequence[ast.Pin]) -> Pins:
    """The pins, as they are written. Raises `CompileError` with all mistakes: W007, W008, W005 and W010."""
    report, by_key = Report(), {choice.key: choice for choice in CHOICES}
    report.unique(((p.name.id, p.name.span) for p in written), "pin")
    degrees, settings = {}, {}
    for p in written:
        key = p.name.id
        if key in AXES:
            degrees[key] = _number(p, report)
        elif key in by_key:
            settings[key] = _value(p, by_key[key], report)
        else:
            names = [*AXES, *by_key]
            help = hint(key, names, f"axes and settings: {', '.join(names)}")
            report.add(Code.UNKNOWN_KEY, f"`{key}` cannot be pinned", p.name.span, "", help)
    report.finish()
    return Pins(degrees, settings)


def _value(p: ast.Pin, choice: Choice, report: Report) -> str:
    text = p.value.id if isinstance(p.value, ast.Name) else p.value.text
    if not choice.words:
        return str(_number(p, report))
    if text not in choice.words:
        report.add(Code.CHOICE, f"`{choice.key}` is not `{text}`", p.value.span, "", hint(text, choice.words))
    return text


def _number(p: ast.Pin, report: Report) -> int:
    """The positive integer that is written; 1, with the mistake noted, for anything else."""
    if isinstance(p.value, ast.Number) and _POSITIVE.admit(p.value.value):
        return int(p.value.value)
    report.add(Code.NUMBER, f"`{p.name.id}` must be {_POSITIVE}", p.value.span)
    return 1
