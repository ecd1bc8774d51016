"""Arrays as the stages hold them: parts with the elements of one chunk, or copies on each stage that reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Module
from wscc.ir.naming import Names
from wscc.ir.step import Affine, Ref
from wscc.passes.stages.cut import Chunk, touched
from wscc.passes.stages.slots import Slots

# What is in flight between the forward and the backward work of a micro-batch: one element a micro-batch.
IN_FLIGHT = (Kind.CARRIED, Kind.RESIDUAL)


@dataclass(frozen=True, slots=True)
class Part:
    """Elements of an array from `first` on, on one stage; `slots` micro-batches of them if it is in flight."""

    array: Array
    first: int
    slots: int = 0

    def ref(self, index: tuple[Affine, ...], microbatch: Affine) -> Ref:
        """The part's element at an index of the whole array."""
        if index and not index[0].modulus:
            index = (replace(index[0], base=index[0].base - self.first), *index[1:])
        if self.slots > 1:
            index = (replace(microbatch, modulus=self.slots), *index)
        return Ref(self.array.name, index)


@dataclass(slots=True)
class Parts:
    """All parts of all arrays, by array and key: the chunk for what has an element per layer or is in flight, the
    stage for the rest. An array without parts is on all stages."""

    module: Module
    stages: int
    chunks: list[Chunk]
    slots: list[Slots]
    of: dict[str, dict[int, Part]] = field(default_factory=dict)
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(a.name for a in self.module.arrays)
        for root, by_chunk in touched(self.chunks, self.module).items():
            for a in self.module.arrays:
                if root in (a.name, a.storage):
                    self.of[a.name] = self._split(a, by_chunk)

    def is_layered(self, array: Array) -> bool:
        """Whether chunks have parts of their own, and stages do not share one."""
        return array.kind in IN_FLIGHT or (bool(array.extents) and array.kind is not Kind.INPUT)

    def key(self, array: Array, chunk: int) -> int:
        return chunk if self.is_layered(array) else chunk % self.stages

    def owner(self, name: str) -> int:
        """The stage that completes, counts and updates an array of one element."""
        return next(iter(self.of[name]))

    def _split(self, array: Array, by_chunk: dict[int, tuple[int, int]]) -> dict[int, Part]:
        found: dict[int, Part] = {}
        several = len({self.key(array, c) for c in by_chunk}) > 1
        for c, (low, high) in by_chunk.items():
            key = self.key(array, c)
            if key in found:
                continue
            if not self.is_layered(array) or (array.is_a(Role.GRADIENT) and array.kind is Kind.CARRIED):
                # Inputs are whole on each stage; gradients that take turns in two slots stay as they are.
                low, high = 0, (array.extents[0] if array.extents else 1) - 1
            slots = self._slots(array, c)
            owned = not found or self.is_layered(array)
            found[key] = self._part(array, key, c, (low, high), slots, several, owned)
        return found

    def _slots(self, array: Array, chunk: int) -> int:
        if array.kind not in IN_FLIGHT:
            return 0
        needed = self.slots[chunk]
        if array.is_a(Role.GRADIENT):
            return needed.gradients
        return needed.residuals if array.kind is Kind.RESIDUAL else needed.carried

    def _part(
        self, array: Array, key: int, chunk: int, interval: tuple[int, int], slots: int, several: bool, owned: bool
    ) -> Part:  # fmt: skip
        low, high = interval
        extents = (high - low + 1,) if array.extents else ()
        if slots > 1:
            extents = (slots, *extents)
        # What a copy adds to a gradient is on its way to the owner: nobody else's business.
        kind = Kind.CARRIED if array.kind is Kind.GRAD and not owned else array.kind
        made = replace(
            array,
            name=self.name(array.name, array, key) if several else array.name,
            kind=kind,
            extents=extents,
            storage=self.name(array.storage, array, key) if several and array.storage else array.storage,
            stage=chunk % self.stages,
            of=array.name if several and kind is array.kind else "",
            first=low if several else 0,
        )
        return Part(made, low, slots)

    def name(self, name: str, array: Array, key: int) -> str:
        what = "chunk" if self.is_layered(array) else "stage"
        return self.names.of((name, what, key), f"{name}.{what}{key}")

    def add(self, array: Array, like: Array) -> None:
        """Give an array the parts of another: what an optimizer keeps for a parameter lies where that lies."""
        for key, part in self.of[like.name].items():
            if key != self.owner(like.name) and not self.is_layered(array):
                continue
            several = len(self.of[like.name]) > 1 and self.is_layered(array)
            name = self.name(array.name, array, key) if several else array.name
            made = replace(
                array, name=name, extents=part.array.extents, stage=part.array.stage,
                of=array.name if several else "", first=part.first if several else 0,
            )  # fmt: skip
            self.of.setdefault(array.name, {})[key] = Part(made, part.first)

    def arrays(self) -> tuple[Array, ...]:
        """Every part and every array of all stages, in the order of the module."""
        out: list[Array] = []
        for a in self.module.arrays:
            out += [p.array for p in self.of[a.name].values()] if a.name in self.of else [a]
        return tuple(out)
