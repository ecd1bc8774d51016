"""Families of models: the names of their tensors in a checkpoint, and of the parameters of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from wscc.huggingface.axes import Axes
from wscc.ir.types import TensorType

HEAD: Final = "head"  # the output matrix where it is not the embedding; in a file it never has a prefix


class Parameter(Protocol):
    """An array of a module or of a manifest."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> TensorType: ...
    @property
    def extents(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Mapped:
    """One parameter of a family. `theirs` is the checkpoint's name without the family's prefix; `{}` is the number of
    the layer, and `{n}` of what has a tensor each there (experts, heads): our first `apart` dimensions, of which `axes`
    says nothing. An `optional` parameter (a bias, a separate head) is in some models of the family only. Rows of
    `positions` do not depend on how many there are: of a longer table the first are those of a shorter sequence.
    Element i of our array is layer `first` + `step` i."""

    ours: str
    theirs: str
    axes: Axes
    optional: bool = False
    positions: bool = False
    apart: int = 0
    first: int = 0
    step: int = 1

    @property
    def rank(self) -> int:
        """The dimensions of our tensor."""
        return self.apart + self.axes.rank

    @property
    def layered(self) -> bool:
        return "{}" in self.theirs


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models, those of the names `kinds` before all others. `prefixes` of the names in a file: the first is
    written, any is read. `unused` matches names, without prefix, of tensors in a checkpoint that are no weights (masks,
    frequencies)."""

    name: str
    prefixes: tuple[str, ...]
    tensors: tuple[Mapped, ...]
    unused: re.Pattern[str]
    kinds: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The name of the head in a file, which has no prefix."""
        return self.by_name[HEAD].theirs

    @property
    def by_name(self) -> Mapping[str, Mapped]:
        return {m.ours: m for m in self.tensors}

    def fits(self, parameters: Iterable[Parameter]) -> bool:
        """True if these are the parameters of a model of this family."""
        declared, actual = self.by_name, {p.name: p for p in parameters}
        required = {m.ours for m in self.tensors if not m.optional}
        return required <= set(actual) <= set(declared) and all(
            len(p.type.shape) == declared[name].rank and len(p.extents) == int(declared[name].layered)
            for name, p in actual.items()
        )


_IN_TURN: Final = re.compile(r"(block|rest)\.layer(?:\.(\d+))?\.\w+")


def in_turn(family: Family, parameters: Iterable[Parameter]) -> Family:
    """The family as it is, or for a model whose `repeat`s, `block` and `rest`, call a block `layer` several times:
    layer l is call l mod n of round l div n, and those behind the last round are in `rest`."""
    calls = {(m[1], int(m[2] or 0)): p for p in parameters if (m := _IN_TURN.fullmatch(p.name))}
    if not calls or any(len(p.extents) != 1 for p in calls.values()):
        return family
    counts = {part: sum(1 for name, _ in calls if name == part) for part in ("block", "rest")}
    rounds = next((p.extents[0] for (part, _), p in calls.items() if part == "block"), 0)
    firsts = {"block": 0, "rest": rounds * counts["block"]}
    layered = [
        replace(
            m, ours=f"{part}.layer{f'.{n}' if n else ''}{m.ours.removeprefix('block')}", first=firsts[part] + n,
            step=counts[part],
        )
        for part, n in sorted(calls)
        for m in family.tensors
        if m.layered
    ]  # fmt: skip
    return replace(family, tensors=(*(m for m in family.tensors if not m.layered), *layered))
