"""The check of views: buffers of the procedure, element types, bounds on every die that uses them; and of `Ints`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.ir.die_arrays import as_array
from wscc.ir.per_die import Ints, PerDie
from wscc.ir.types import DType
from wscc.ir.verify.finding import Findings, Place
from wscc.ir.views import View

Mask = NDArray[np.bool_]
# Far above any address, and sums of a few stay within 64 bits.
_LIMIT: Final = 1 << 56


@lru_cache(maxsize=8192)
def wrong_ints(ints: Ints, dies: int) -> str | None:
    """The reason why the integers are not those of so many dies, in words; None if they are."""
    if isinstance(ints, int):
        return None if abs(ints) < _LIMIT else f"{ints} is out of range"
    if len(ints.values) != dies:
        return f"{len(ints.values)} integers for {dies} dies"
    if max(map(abs, ints.values), default=0) >= _LIMIT:
        return "an integer is out of range"
    return None


@lru_cache(maxsize=8192)
def wrong_mask(where: Ints, dies: int) -> str | None:
    """The reason why the integers are no mask of so many dies, in words; None if they are."""
    values = {where} if isinstance(where, int) else set(where.values)
    return wrong_ints(where, dies) or (None if values <= {0, 1} else "a die has neither 0 nor 1")


@lru_cache(maxsize=8192)
def _ends(ints: Ints) -> tuple[int, int]:
    return (ints, ints) if isinstance(ints, int) else (min(ints.values), max(ints.values))


@lru_cache(maxsize=8192)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, bool]:
    """The least and the greatest element of a view from its offset on, and whether it repeats elements."""
    spans = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    repeats = any(s == 0 and n > 1 for n, s in zip(shape, strides, strict=True))
    return sum(min(0, s) for s in spans), sum(max(0, s) for s in spans), repeats


@dataclass(frozen=True, slots=True)
class Views:
    """The views of a procedure; `extents` has elements and element type of each of its buffers and arguments."""

    dies: int
    extents: dict[str, tuple[int, DType]]
    _seen: set[tuple[View, bool]] = field(default_factory=set, repr=False, compare=False)

    def check(self, place: Place, view: View, active: Mask | None, *, is_written: bool) -> Findings:
        """The mistakes of a view; `active` are the dies that use it, None is all. A view that all use is checked, and
        reported, once."""
        key = view, is_written
        if key in self._seen:
            return
        if active is None:
            self._seen.add(key)
        yield from self._check(place, view, active, is_written=is_written)

    def _check(self, place: Place, view: View, active: Mask | None, *, is_written: bool) -> Findings:
        extent = self.extents.get(view.buffer)
        name = f"`%{view.buffer}`"
        if extent is None:
            yield place.wrong(f"{name} is no buffer or argument of the procedure")
            return
        elements, dtype = extent
        if view.dtype is not dtype:
            yield place.wrong(f"{name} holds {dtype}, and the view reads {view.dtype}")
        if len(view.shape) != len(view.strides) or any(n < 1 for n in view.shape):
            yield place.wrong(
                f"a view of {name} has sizes {list(view.shape)} and strides {list(view.strides)}"
            )
            return
        before, behind, repeats = _reach(view.shape, view.strides)
        if is_written and repeats:
            yield place.wrong(f"{name} is written, and its view repeats elements")
        if wrong := wrong_ints(view.offset, self.dies):
            yield place.wrong(f"offset in {name}: {wrong}")
            return
        ends = self._offsets(view.offset, active)
        if ends is None:
            return
        low, high = ends[0] + before, ends[1] + behind
        if low < 0 or high >= elements:
            yield place.wrong(f"a view reaches elements {low} to {high} of {name}, which has {elements}")

    def _offsets(self, offset: Ints, active: Mask | None) -> tuple[int, int] | None:
        """The least and greatest offset on active dies; None if there are no such dies."""
        if active is None:
            return _ends(offset)
        if not active.any():
            return None
        if not isinstance(offset, PerDie):
            return offset, offset
        offsets = as_array(offset, self.dies)[active]
        return int(offsets.min()), int(offsets.max())
