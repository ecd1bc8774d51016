"""SVG text: elements, a frame with title and legend, and the colours that all pictures share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

INK: Final = "#1f2937"
FAINT: Final = "#6b7280"
LINE: Final = "#9ca3af"
PAPER: Final = "#ffffff"
BLANK: Final = "#f3f4f6"  # of what has no part
DEAD: Final = "#b91c1c"
ACCENT: Final = "#1d4ed8"
# Light enough to write on, and told apart by people who see red and green alike.
FILLS: Final = ("#cfe3ff", "#ffdfb8", "#cdeccd", "#f6cfe3", "#e3dafa", "#fff0ad", "#c6ecec", "#e6dacb")
_FONT: Final = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
MARGIN: Final = 20.0
HEAD: Final = 58.0  # height of title and subtitle
_LEGEND_ROW: Final = 22.0
_CHARACTER: Final = 0.56  # average width of a character, of its size


def number(value: float) -> str:
    """The number with at most two decimals, the same on every machine."""
    return f"{round(value, 2):.2f}".rstrip("0").rstrip(".") or "0"


def element(name: str, text: str | None = None, /, **attributes: object) -> str:
    """One element; `stroke_width=2` is written `stroke-width="2"`."""
    words = [name]
    for key, value in attributes.items():
        shown = number(value) if isinstance(value, float | int) else str(value)
        words.append(f"{key.rstrip('_').replace('_', '-')}={quoteattr(shown)}")
    head = " ".join(words)
    return f"<{head}/>" if text is None else f"<{head}>{text}</{name}>"


def rectangle(x: float, y: float, width: float, height: float, fill: str, **more: object) -> str:
    return element("rect", x=x, y=y, width=width, height=height, fill=fill, **more)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1, **more: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width, **more)


def text(
    x: float, y: float, words: str, size: float = 12, fill: str = INK, anchor: str = "start", **more: object
) -> str:
    return element("text", escape(words), x=x, y=y, font_size=size, fill=fill, text_anchor=anchor, **more)


def titled(shape: str, words: str) -> str:
    """A shape with words that a reader sees when pointing at it."""
    return f"<g>{element('title', escape(words))}{shape}</g>"


def width_of(words: str, size: float = 12) -> float:
    """The width of words of that font size, about."""
    return len(words) * size * _CHARACTER


def fitting(width: float, words: str, most: float = 12, least: float = 5) -> float:
    """The size at which the words fit into a width."""
    return max(least, min(most, width / (max(1, len(words)) * _CHARACTER)))


def legend(entries: Sequence[tuple[str, str]], x: float, y: float, width: float) -> tuple[list[str], float]:
    """SVG of marks (each drawn between 0, 0 and 16, 12) with their words in rows of at most `width`; and the height of
    all rows."""
    out: list[str] = []
    left, top = x, y
    for mark, words in entries:
        needed = 22 + width_of(words) + 18
        if left > x and left + needed > x + width:
            left, top = x, top + _LEGEND_ROW
        out.append(f'<g transform="translate({number(left)} {number(top)})">{mark}')
        out.append(f"{text(22, 10, words)}</g>")
        left += needed
    return out, (top - y + _LEGEND_ROW) if entries else 0.0


def swatch(fill: str) -> str:
    """A patch of colour for a legend."""
    return rectangle(0, 0, 16, 12, fill, stroke=LINE, stroke_width=0.75, rx=2)


def picture(width: float, height: float, title: str, subtitle: str, parts: Iterable[str]) -> str:
    """The text of an SVG file: background, title, parts."""
    size = fitting(width - 2 * MARGIN, subtitle, 12, 7)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" '
            f'viewBox="0 0 {number(width)} {number(height)}" font-family="{_FONT}" role="img">',
            element("title", escape(f"{title}: {subtitle}")),
            rectangle(0.5, 0.5, width - 1, height - 1, PAPER, stroke="#d1d5db", rx=8),
            text(MARGIN, 28, title, fitting(width - 2 * MARGIN, title, 16, 9), font_weight=600),
            text(MARGIN, 47, subtitle, size, FAINT),
            *parts,
            "</svg>\n",
        ]
    )
