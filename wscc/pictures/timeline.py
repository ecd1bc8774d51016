"""The timeline of a step: a row for each pipeline stage, a bar for each stretch of work."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor, log10
from typing import Final

from wscc.pictures.facts import Bar, Timeline
from wscc.pictures.svg import (
    BLANK,
    FAINT,
    HEAD,
    LINE,
    MARGIN,
    fitting,
    legend,
    line,
    number,
    picture,
    rectangle,
    swatch,
    text,
    titled,
    width_of,
)  # fmt: skip

_WIDE: Final = 860.0  # of the time axis
_HIGH: Final = 30.0
_GAP: Final = 8.0
_THIN: Final = 0.35  # bars below it are left out where there are very many
_MANY: Final = 4000
_COLOURS: Final = ("#7fb3ff", "#ffb35c", "#8fd694", "#b9a6e0", "#f2d45c", "#b7bcc6")
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def timeline_svg(facts: Timeline) -> str:
    """The timeline as SVG text; where a row is blank, its dies wait."""
    left = MARGIN + max(map(width_of, facts.rows), default=0.0) + 10
    bottom = HEAD + len(facts.rows) * (_HIGH + _GAP)
    width = left + _WIDE + MARGIN + 10
    entries = [(swatch(_colour(facts, kind)), kind) for kind in facts.kinds]
    marks, height = legend([*entries, (swatch(BLANK), "waiting")], MARGIN, bottom + 32, width - 2 * MARGIN)
    parts = [*_rows(facts, left), *_bars(facts, left), *_axis(facts, left, bottom), *marks]
    return picture(width, bottom + 32 + height + MARGIN - 8, facts.title, facts.subtitle, parts)


def _colour(facts: Timeline, kind: str) -> str:
    return _COLOURS[facts.kinds.index(kind) % len(_COLOURS)]


def _top(row: int) -> float:
    return HEAD + row * (_HIGH + _GAP)


def _rows(facts: Timeline, left: float) -> Iterator[str]:
    for i, name in enumerate(facts.rows):
        yield text(left - 10, _top(i) + _HIGH / 2 + 4, name, anchor="end")
        yield rectangle(left, _top(i), _WIDE, _HIGH, BLANK, stroke="#e5e7eb", stroke_width=0.75)


def _bars(facts: Timeline, left: float) -> Iterator[str]:
    scale = _WIDE / facts.seconds if facts.seconds else 0.0
    least = _THIN if len(facts.bars) > _MANY else 0.0
    for bar in facts.bars:
        width = (bar.end - bar.begin) * scale
        if width > least:
            yield _bar(bar, left + bar.begin * scale, width, _colour(facts, bar.kind))


def _bar(bar: Bar, x: float, width: float, colour: str) -> str:
    edge = {"stroke": "#ffffff", "stroke_width": 0.5} if width > 3 else {}
    shape = rectangle(x, _top(bar.row), width, _HIGH, colour, **edge)
    if bar.label and width > width_of(bar.label, 9) + 2:
        size = fitting(width - 2, bar.label, 12, 9)
        shape += text(x + width / 2, _top(bar.row) + _HIGH / 2 + 4, bar.label, size, anchor="middle")
    words = f"{bar.kind} {bar.label}".strip()
    return titled(shape, f"{words}: {time(bar.begin)} to {time(bar.end)}")


def _axis(facts: Timeline, left: float, bottom: float) -> Iterator[str]:
    yield line(left, bottom, left + _WIDE, bottom, LINE)
    if not facts.seconds:
        return
    step = tick(facts.seconds)
    unit, name = _unit(facts.seconds)
    for i in range(int(facts.seconds / step) + 1):
        x = left + _WIDE * i * step / facts.seconds
        yield line(x, bottom, x, bottom + 5, LINE)
        label = f"{number(i * step / unit)} {name}" if i == 0 else number(i * step / unit)
        yield text(x, bottom + 18, label, 11, FAINT, "middle")


def tick(seconds: float) -> float:
    """The distance of ticks in seconds: 1, 2 or 5 times a power of ten, for about eight of them."""
    rough = seconds / 8
    power = 10.0 ** floor(log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough)


def _unit(seconds: float) -> tuple[float, str]:
    return next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])


def time(seconds: float) -> str:
    """Words for a time: four digits and a unit."""
    unit, name = _unit(seconds)
    return f"{seconds / unit:.4g} {name}"
