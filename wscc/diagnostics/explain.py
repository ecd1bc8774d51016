"""The meaning of a diagnostic code, in words."""

from __future__ import annotations

from difflib import get_close_matches

from wscc.diagnostics import CODES, Code, CompileError, Diagnostic
from wscc.diagnostics.render import visible


def explain(code: str) -> str:
    """The text of a code such as `W004` (case does not matter); `CompileError` W006 if there is none."""
    wanted = code.strip().upper()
    for known, text in CODES.items():
        if known == wanted:
            return f"{known}: {text}"
    close = get_close_matches(wanted, list(Code), n=1, cutoff=0.6)
    hint = f"did you mean `{close[0]}`?" if close else f"codes run from {min(Code)} to {max(Code)}"
    raise CompileError(Diagnostic(Code.OPTION, f"unknown code `{visible(code)[:40]}`", help=hint))
