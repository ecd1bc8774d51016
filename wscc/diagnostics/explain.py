"""The explanation of a diagnostic code: its text for `wscc explain`."""

from __future__ import annotations

from wscc.diagnostics import CODES, Code, CompileError, Diagnostic
from wscc.diagnostics.render import visible


def explain(code: str) -> str:
    """The text of a code such as `W004` (case does not matter). Raises `CompileError` W006 if there is no such code."""
    name = code.strip().upper()
    for existing, text in CODES.items():
        if existing == name:
            return f"{existing}: {text}"
    hint = f"codes run from {min(Code)} to {max(Code)}"
    raise CompileError(Diagnostic(Code.OPTION, f"unknown code `{visible(code)[:40]}`", help=hint))
