"""A failing program made small: one simplification after another, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.fuzz.draw import Draw, Line, Part

PLAIN = Draw()


def shrunk(draw: Draw, still_fails: Callable[[Draw], bool], tries: int = 150) -> Draw:
    """The smallest found; `still_fails` is asked at most `tries` times."""
    while True:
        for smaller in simpler(draw):
            if tries == 0:
                return draw
            tries -= 1
            if still_fails(smaller):
                draw = smaller
                break
        else:
            return draw


def simpler(draw: Draw) -> Iterator[Draw]:
    """Programs with one thing less, the largest steps first."""
    for i, part in enumerate(draw.parts):
        yield replace(draw, parts=(*draw.parts[:i], *draw.parts[i + 1 :]))
        for smaller in _simpler_parts(part):
            yield replace(draw, parts=(*draw.parts[:i], smaller, *draw.parts[i + 1 :]))
    for i, (axis, n) in enumerate(draw.degrees):
        rest = (*draw.degrees[:i], *draw.degrees[i + 1 :])
        yield replace(draw, degrees=rest)
        if n > 2:
            yield replace(draw, degrees=tuple(sorted((*rest, (axis, (n + 1) // 2)))))
    for dead in ("dead_dies", "dead_links"):
        for gone in sorted(getattr(draw, dead)):
            yield replace(draw, **{dead: getattr(draw, dead) - {gone}})
    for f in fields(Draw):
        plain = getattr(PLAIN, f.name)
        if f.name not in ("parts", "degrees", "dead_dies", "dead_links") and getattr(draw, f.name) != plain:
            if f.name in ("rows", "cols"):
                plain = getattr(draw, f.name) - 1
            yield replace(draw, **{f.name: plain})


def _simpler_parts(part: Part) -> Iterator[Part]:
    for i, line in enumerate(part.lines):
        if len(part.lines) > 1:
            yield replace(part, lines=(*part.lines[:i], *part.lines[i + 1 :]))
        if line.is_shared:
            yield replace(part, lines=(*part.lines[:i], Line(line.piece), *part.lines[i + 1 :]))
    for layers in {0, 1, part.layers - 1}:
        if 0 <= layers < part.layers:
            yield replace(part, layers=layers)
