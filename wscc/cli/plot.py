"""Pictures, with matplotlib if it is installed."""

from __future__ import annotations

from typing import Any

from wscc.diagnostics import Code, fail


def new_figure() -> Any:
    """An empty matplotlib figure. Raises `CompileError` W006 without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise fail(
            Code.OPTION, "`--plot` needs matplotlib, which is not installed", help="pip install 'wscc[plot]'"
        ) from None
    return Figure(layout="constrained")


def save_figure(figure: Any, path: str) -> None:
    """Raises `CompileError` W002 if it cannot be written."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise fail(
            Code.UNREADABLE, f"cannot write `{path}`: {problem}", help="name a .png, .svg or .pdf"
        ) from None
