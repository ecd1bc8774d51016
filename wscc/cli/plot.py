"""Plots of facts of a simulation, with matplotlib if it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from wscc.diagnostics import Code, fail
from wscc.files import replace_file
from wscc.machine.wafer import Wafer

_FORMATS: Final = "name a .png, .svg or .pdf"


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
    """Write a figure to a file. Raises `CompileError` W002 if it cannot be written."""

    def save(new: Path) -> None:
        try:
            figure.savefig(new, format=Path(path).suffix[1:] or "png")
        except ValueError as problem:
            raise fail(Code.UNREADABLE, f"cannot write `{path}`: {problem}", help=_FORMATS) from None

    replace_file(path, save, help=_FORMATS)


Facts = Mapping[str, Any]


def plot(path: str, wafer: Wafer, facts: Facts) -> None:
    """Plot facts to a file: memory over time, else a map of dies or links.

    Raises `CompileError` W006 without matplotlib, W002 if it cannot write."""
    figure = new_figure()
    if facts["metric"] == "memory":
        _over_time(figure, facts)
    else:
        _map(figure, wafer, facts)
    save_figure(figure, path)


def _map(figure: Any, wafer: Wafer, facts: Facts) -> None:
    """Draw dies as squares and links as arrows between them, coloured by the share of the step that they are busy."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = figure.add_subplot()
    items = facts.get("links") or facts["dies"]
    scale = ScalarMappable(Normalize(0, max((f["util"] for f in items), default=0) or 1), "inferno")
    colors = {tuple(f["die"]): scale.to_rgba(f["util"]) for f in facts.get("dies", ())}
    for r in range(wafer.rows):
        for c in range(wafer.cols):
            face = colors.get((r, c), "black" if (r, c) in wafer.dead_dies else "lightgrey")
            axes.plot(c, r, "s", color=face, markersize=16, markeredgecolor="black")
    for f in facts.get("links", ()):
        (r, c), (r2, c2) = f["from"], f["to"]
        aside = 0.09 * np.array([r2 - r, c - c2])  # the two directions side by side
        start, end = np.array([c, r]) + aside, np.array([c2, r2]) + aside
        arrow = {"arrowstyle": "->", "color": scale.to_rgba(f["util"]), "lw": 2, "shrinkA": 9, "shrinkB": 9}
        axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
    axes.set(
        title=f"{facts['metric']} over a step of {facts['step_seconds']:.4g} s", xlabel="column", ylabel="row"
    )
    axes.set(xlim=(-0.6, wafer.cols - 0.4), ylim=(wafer.rows - 0.4, -0.6), aspect="equal")
    figure.colorbar(scale, ax=axes, label="share of the step")


def _over_time(figure: Any, facts: Facts) -> None:
    """Draw the live bytes of each stage over time, stacked by kind."""
    parts = ("resident", "kept", "locals")
    rows = figure.subplots(len(facts["stages"]), 1, squeeze=False, sharex=True)[:, 0]
    for axes, stage in zip(rows, facts["stages"], strict=True):
        points = stage["over_time"]
        times = [p["seconds"] for p in points] + [facts["step_seconds"]]
        heights = [[p[part] / 1e9 for p in points] + [points[-1][part] / 1e9] for part in parts]
        axes.stackplot(times, heights, labels=parts, step="post")
        axes.axhline(facts["capacity"] / 1e9, color="black", ls="--", label="capacity")
        axes.set(ylabel=f"GB, stage {stage['stage']}")
    rows[0].legend(loc="upper right")
    rows[-1].set(xlabel="seconds")
