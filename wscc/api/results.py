"""Results of the API: frozen, readable in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.files import write_file
from wscc.ir.module import Module
from wscc.ir.text.print import to_text

if TYPE_CHECKING:  # what is run, simulated or verified brings these; a program that is compiled needs none
    from wscc.driver.expert_load import ExpertLoad
    from wscc.driver.loaded import Finding, HbmTraffic, Result
    from wscc.driver.run_data import DataUse
    from wscc.host.verdict import Check

Arrays = dict[str, NDArray[Any]]
_ARRAYS_SHOWN: Final = 6


def table(rows: Sequence[tuple[str, str]]) -> str:
    """The text of labels and words in two columns."""
    width = max((len(label) for label, _ in rows), default=0) + 2
    return "\n".join(f"{label:<{width}}{words}".rstrip() for label, words in rows)


def html_table(rows: Sequence[tuple[str, ...]], head: Sequence[str] = ()) -> str:
    """Rows as an HTML table."""

    def row(cells: Sequence[str], tag: str) -> str:
        inside = "".join(f'<{tag} style="text-align:left">{escape(c)}</{tag}>' for c in cells)
        return f"<tr>{inside}</tr>"

    top = row(head, "th") if head else ""
    return f"<table>{top}{''.join(row(r, 'td') for r in rows)}</table>"


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture as SVG text; notebooks show it, and `save` writes it to a file."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write the picture to a file. Raises `CompileError` W002 if that cannot be done."""
        write_file(path, [self.svg])

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Picture({len(self.svg):,} characters of SVG; a notebook shows it, `.save(path)` writes it)"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassModule:
    """The module after a pass; `str` is its text in the IR."""

    name: str
    module: Module

    def __str__(self) -> str:
        return to_text(self.module)

    def __repr__(self) -> str:
        m = self.module
        return (
            f"<module after `{self.name}`: {m.level}, {len(m.procedures)} procedures, {len(m.arrays)} arrays>"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run:
    """A program that has run.

    `losses`: float64 `[steps]`. `weights`: after the last step, by the name of the parameter, `[layers..., *shape]` in
    its own type. `gradients`: of the first step, before clipping, likewise in the type of gradients. `check`: the
    verdict of the comparison with one device, None if it was not asked for. `seconds_per_step` of this computer;
    `peak_bytes_per_die_max` the most bytes of memory that a die has used. `data`: what was read. `validation`: the
    loss of the rows that are held out, by the number of steps before it. `notes`: what of a file of weights is unread.
    `experts`: the load of each router of each step.
    """

    losses: NDArray[np.float64]
    weights: Arrays
    gradients: Arrays
    seconds_per_step: float
    peak_bytes_per_die_max: int
    data: DataUse
    validation: dict[int, float]
    check: Check | None = None
    notes: tuple[str, ...] = ()
    experts: tuple[ExpertLoad, ...] = ()

    def __repr__(self) -> str:
        return table(self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        first, last = (f"{float(x):.6f}" for x in (self.losses[0], self.losses[-1]))
        steps = len(self.losses)
        rows = [("loss", f"{first} in step 1, {last} in step {steps}" if steps > 1 else first)]
        rows += [
            ("validation loss", f"{loss:.6f} after step {step}") for step, loss in self.validation.items()
        ]
        for name, arrays in (("weights", self.weights), ("gradients", self.gradients)):
            if arrays:
                rows.append((name, _named(arrays)))
        rows.append(("memory", f"{self.peak_bytes_per_die_max:,} bytes per die at most"))
        if self.check is not None:
            c = self.check
            rows.append(
                ("check", f"{'passed' if c.ok else 'FAILED'} in {c.types}; nearest to its limit: {c.worst}")
            )
        return rows


def _named(arrays: Arrays) -> str:
    shown = [f"{name} {list(a.shape)}" for name, a in list(arrays.items())[:_ARRAYS_SHOWN]]
    more = f" and {len(arrays) - len(shown)} more" if len(arrays) > len(shown) else ""
    return ", ".join(shown) + more


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """A simulated step. `figures` are all numbers, of which the properties are the ones most asked for; `hbm` has the
    bytes of the die with most traffic to its HBM, and the least that its calls need. `trace` is the text of a trace for
    Perfetto if it was asked for, and `trace_cut` says where it ends early, if it does. `alike_seconds`: where dies are
    not alike, the seconds if all were as the wafer's `die`."""

    figures: Result
    hbm: HbmTraffic
    link_model: str
    trace: str = field(default="", repr=False)
    trace_cut: str = ""
    alike_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.figures.step_seconds

    @property
    def mfu(self) -> float:
        """FLOPs of the model over what all live dies could do in that time: 0 to 1."""
        return self.figures.mfu

    @property
    def bound(self) -> float:
        """Seconds that no order of these instructions and messages can beat."""
        return self.figures.bound

    @property
    def bound_by(self) -> str:
        """What the bound comes from: `compute`, `hbm` or `links`."""
        return max(self.figures.bound_seconds, key=lambda name: self.figures.bound_seconds[name])

    @property
    def time(self) -> Mapping[str, Any]:
        """Where the time of all live dies goes: shares that add up to 1, waiting for messages by kind."""
        return self.figures.time

    @property
    def energy(self) -> Mapping[str, float]:
        """Joules of a step, of compute and of links."""
        return self.figures.energy

    @property
    def dies_busy(self) -> Mapping[str, float]:
        """Share of the step in which used dies compute: `mean` and `min`."""
        return self.figures.die_util

    @property
    def links_busy(self) -> Mapping[str, float]:
        """Share of the step in which live links are in use: `mean` and `max`."""
        return self.figures.link_util

    def __repr__(self) -> str:
        return table(self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        r = self.figures
        shares = {k: v for k, v in r.time.items() if not isinstance(v, dict)}
        shares |= {f"waiting for {kind}": v for kind, v in r.time["exposed"].items()}
        most = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:4]
        return [
            (
                "step",
                f"{r.step_seconds:.6g} s on {r.dies_used} of {r.live_dies} live dies, {self.link_model} links",
            ),
            ("MFU", f"{r.mfu:.2%}"),
            ("bound", f"{r.bound:.6g} s by {self.bound_by}"),
            ("HBM traffic", self.hbm.words),
            ("time goes to", ", ".join(f"{name} {share:.1%}" for name, share in most if share)),
            ("busy", f"dies {r.die_util['mean']:.1%}, links {r.link_util['mean']:.2%} on average"),
            ("energy", f"{r.energy_joules:.4g} J"),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The findings of a check of a compiled program: none, if it is right (`ok`; also as a truth value).

    `left_out` counts findings beyond those listed. `min_slot_depth` is how many messages a die must be able to expect
    at once, `messages` those of a step, `instructions` those of all programs in `calls` procedures, `seconds` the time
    of the check. `semantics`: how what is computed was compared with the model; empty: it was not.
    """

    findings: tuple[Finding, ...]
    left_out: int
    min_slot_depth: int | None
    messages: int
    instructions: int
    calls: int
    seconds: float
    semantics: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return table(self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        if self.findings:
            more = [("", f"and {self.left_out:,} more")] if self.left_out else []
            return [*((f.check, str(f).partition(": ")[2]) for f in self.findings), *more]
        rows = [
            ("verified", "nothing is wrong"),
            ("messages", f"{self.messages:,} per step, each with its slot"),
            ("instructions", f"{self.instructions:,} in {self.calls:,} calls"),
        ]
        return [*rows, ("semantics", self.semantics)] if self.semantics else rows


@dataclass(frozen=True, slots=True, repr=False)
class Placement:
    """Where the dies of a program lie: `dies[i]` is (row, column) of logical die i, which counts positions along `axes`
    row by row, the first axis slowest."""

    axes: tuple[tuple[str, int], ...]
    dies: tuple[tuple[int, int], ...]
    picture: Picture

    def __repr__(self) -> str:
        names = " x ".join(f"{a}={n}" for a, n in self.axes) or "one die"
        return f"Placement of {names} on {len(self.dies)} dies: {', '.join(map(str, self.dies[:8]))}" + (
            ", ..." if len(self.dies) > 8 else ""
        )

    def _repr_svg_(self) -> str:
        return self.picture.svg


@dataclass(frozen=True, slots=True)
class Ranked:
    """A plan of a search: `strategy` is what `parallel=` takes; of `settings` of the training, `changed` are those that
    differ from the program's. Seconds are None where the search did not come so far with it: `estimate_seconds` from
    its sharded module, `step_seconds` (with `mfu`) from a simulation; `least_seconds` is what it takes at least. None
    that was simulated beats one on the `front` in time, memory of a die and dies at once."""

    strategy: str
    settings: Mapping[str, str]
    changed: Mapping[str, str]
    dies_used: int
    given: bool
    bound_seconds: float
    least_seconds: float
    estimate_seconds: float | None = None
    step_seconds: float | None = None
    mfu: float | None = None
    peak_bytes_per_die_max: int | None = None
    front: bool = False

    @property
    def plan(self) -> str:
        """The strategy, and what differs from the program's settings: `tp=2,tatp=4 microbatch=2`."""
        return " ".join([self.strategy, *(f"{key}={value}" for key, value in self.changed.items())])

    @property
    def overrides(self) -> dict[str, str]:
        """The changed settings as `overrides=` takes them."""
        return {f"train.{key}": value for key, value in self.changed.items()}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Strategies or plans that are refused for one reason: its code, their number, and the first of them with its
    message."""

    code: str
    count: int
    example: str
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Ranking:
    """The ranking of a search: `rows` with the shortest simulated step first, then what was only compiled, then what
    was only estimated. No plan of the strategies looked at goes below `bound_seconds`; `summary` counts what was
    done."""

    rows: tuple[Ranked, ...]
    refusals: tuple[Refusal, ...]
    bound_seconds: float
    summary: Mapping[str, Any]

    @property
    def best(self) -> Ranked:
        """The winner: `compile(program, best.overrides, parallel=best.strategy)` makes its program."""
        return self.rows[0]

    @property
    def seconds(self) -> float:
        """Seconds of the best step."""
        return self.best.least_seconds

    def __repr__(self) -> str:
        cells = [self._head(), *map(_cells, self.rows[:10])]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        more = len(self.rows) - 10
        return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])

    def _repr_html_(self) -> str:
        return html_table([_cells(r) for r in self.rows[:20]], self._head())

    @staticmethod
    def _head() -> tuple[str, ...]:
        return "plan", "dies", "estimate", "simulated", "bound", "MFU"


def _cells(r: Ranked) -> tuple[str, ...]:
    step = f"{r.step_seconds:.4g} s" if r.step_seconds is not None else ""
    estimate = f"{r.estimate_seconds:.4g} s" if r.estimate_seconds is not None else ""
    mfu = f"{r.mfu:.2%}" if r.mfu is not None else ""
    return r.plan, str(r.dies_used), estimate, step, f"{r.bound_seconds:.4g} s", mfu
