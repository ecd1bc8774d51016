"""Passes of a user's own, put into the default pipeline behind one of its passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wscc.diagnostics import Code, fail
from wscc.passes.base import Pass


@dataclass(frozen=True, slots=True)
class Insertion:
    """A pass that runs right after the pass of the name `after`."""

    own: Pass
    after: str


def inserted(passes: Sequence[Pass], insertions: Iterable[Insertion]) -> list[Pass]:
    """The passes with those of a user in their places; of two in one place, the first given runs first.

    Raises W006 for a place that is no pass of this pipeline, W603 for a name that a pass has already.
    """
    out = list(passes)
    for insertion in insertions:
        names = [p.name for p in out]
        if insertion.own.name in names:
            raise fail(
                Code.PASS_ORDER, f"a pass `{insertion.own.name}` is in the pipeline already",
                help="give the pass a name of its own",
            )  # fmt: skip
        if insertion.after not in names:
            raise fail(
                Code.OPTION, f"the pipeline has no pass `{insertion.after}`", help=f"its passes are {', '.join(names)}"
            )  # fmt: skip
        place = names.index(insertion.after) + 1
        own = {i.own.name for i in insertions if i.after == insertion.after}
        while place < len(out) and out[place].name in own:
            place += 1
        out.insert(place, insertion.own)
    return out
