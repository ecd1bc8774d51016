"""Names of arrays that the compiler makes of other names: they must not meet one that the program gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wscc.diagnostics import Code, CompileError, Diagnostic, Label
from wscc.ir.array import Array, Kind

# Behind the name of a parameter or carried value and a dot: its gradient, AdamW's moments, sums not yet complete.
DERIVED: Final = ("grad", "m", "v", "partial")


def refuse_derived(arrays: Iterable[Array]) -> None:
    """W007 if a parameter inside a `repeat` or block of the name of something else would be taken for its
    gradient or moments: `param m` in `repeat y`, where `y` is a value, is `y.m` as y's moment would be."""
    arrays = tuple(arrays)
    by_name = {a.name: a for a in arrays if a.kind in (Kind.PARAM, Kind.CARRIED)}
    for a in arrays:
        stem, _, last = a.name.rpartition(".")
        if last in DERIVED and stem in by_name:
            raise CompileError(
                Diagnostic(
                    Code.DUPLICATE,
                    f"`{a.name}`, parameter `{last}` inside `{stem}`, is also what belongs to the value `{stem}`",
                    Label(a.span),
                    (Label(by_name[stem].span, "the value"),),
                    f"rename the value, or the `repeat` or block `{stem}`",
                )
            )
