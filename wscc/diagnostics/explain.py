"""The explanation of a diagnostic code: its text for `wscc explain`."""

from __future__ import annotations

from difflib import get_close_matches

from wscc.diagnostics import CODES, Code, CompileError, Diagnostic
from wscc.diagnostics.render import visible


def explain(code: str) -> str:
    """The text of a code such as `W004` (case does not matter). Raises `CompileError` W006 if there is no such code."""
    name = code.strip().upper()
    for existing, text in CODES.items():
        if existing == name:
            return f"{existing}: {text}"
    close = get_close_matches(name, list(Code), n=1, cutoff=0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"codes run from {min(Code)} to {max(Code)}"
    raise CompileError(Diagnostic(Code.OPTION, f"unknown code `{visible(code)[:40]}`", help=hint))
