"""Parts of arrays on the stages: the elements of one chunk, or a copy on each stage that accesses the array."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Module
from wscc.ir.naming import Names
from wscc.ir.step import Affine, Ref
from wscc.passes.stages.cut import Chunk, accessed_intervals, added_numbers
from wscc.passes.stages.slots import Slots

# Kinds that are live between the forward and the backward work of a micro-batch, with an element for each.
IN_FLIGHT = (Kind.CARRIED, Kind.RESIDUAL)


@dataclass(frozen=True, slots=True)
class Part:
    """Elements of an array from `first` on, on one stage; for `slots` micro-batches if the array is in flight."""

    array: Array
    first: int
    slots: int = 0

    def ref(self, index: tuple[Affine, ...], microbatch: Affine) -> Ref:
        """The element of the part that has `index` in the whole array."""
        if index and not index[0].modulus:
            index = (Affine(index[0].base - self.first, index[0].terms), *index[1:])
        if self.slots > 1:
            index = (Affine(microbatch.base, microbatch.terms, self.slots), *index)
        return Ref(self.array.name, index)


@dataclass(slots=True)
class Parts:
    """The parts of all arrays, by array and key.

    The key is the chunk for arrays that have an element for each layer or are in flight, and the stage for others. An
    array without parts is on all stages; so are the `sums`, numbers to which work of several stages adds.
    """

    module: Module
    stages: int
    chunks: list[Chunk]
    slots: list[Slots]
    of: dict[str, dict[int, Part]] = field(default_factory=dict)
    names: Names = field(init=False)
    sums: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(a.name for a in self.module.arrays)
        intervals = accessed_intervals(self.chunks, self.module)
        self.sums = tuple(
            name
            for name in added_numbers(self.chunks, self.module)
            if len({c % self.stages for c in intervals[name]}) > 1
        )
        for root, by_chunk in intervals.items():
            for a in self.module.arrays if root not in self.sums else ():
                if root in (a.name, a.storage):
                    self.of[a.name] = self._split(a, by_chunk)

    def is_layered(self, array: Array) -> bool:
        """Whether each chunk, and not each stage, has a part of the array."""
        return array.kind in IN_FLIGHT or (bool(array.extents) and array.kind is not Kind.INPUT)

    def key(self, array: Array, chunk: int) -> int:
        return chunk if self.is_layered(array) else chunk % self.stages

    def owner(self, name: str) -> int:
        """The stage that completes, counts and updates an array without an element for each layer."""
        return next(iter(self.of[name]))

    def _split(self, array: Array, by_chunk: dict[int, tuple[int, int]]) -> dict[int, Part]:
        parts: dict[int, Part] = {}
        several = len({self.key(array, c) for c in by_chunk}) > 1
        for c, (low, high) in by_chunk.items():
            key = self.key(array, c)
            if key in parts:
                continue
            if not self.is_layered(array) or (array.is_a(Role.GRADIENT) and array.kind is Kind.CARRIED):
                # Inputs are whole on each stage; double-buffered gradients keep both elements.
                low, high = 0, (array.extents[0] if array.extents else 1) - 1
            slots = self._slots(array, c)
            owned = not parts or self.is_layered(array)
            parts[key] = self._part(array, key, c, (low, high), slots, several, owned)
        return parts

    def _slots(self, array: Array, chunk: int) -> int:
        if array.kind not in IN_FLIGHT:
            return 0
        slots = self.slots[chunk]
        if array.is_a(Role.GRADIENT):
            return slots.gradients
        return slots.residuals if array.kind is Kind.RESIDUAL else slots.carried

    def _part(
        self, array: Array, key: int, chunk: int, interval: tuple[int, int], slots: int, several: bool, owned: bool
    ) -> Part:  # fmt: skip
        low, high = interval
        extents = (high - low + 1, *array.extents[1:]) if array.extents else ()
        if slots > 1:
            extents = (slots, *extents)
        # The gradient of a copy is only sent to the owner, so that it is no gradient to others.
        kind = Kind.CARRIED if array.kind is Kind.GRAD and not owned else array.kind
        part_array = replace(
            array,
            name=self.name(array.name, array, key) if several else array.name,
            kind=kind,
            extents=extents,
            storage=self.name(array.storage, array, key) if several and array.storage else array.storage,
            stage=chunk % self.stages,
            of=array.name if several and kind is array.kind else "",
            first=low if several else 0,
        )
        return Part(part_array, low, slots)

    def name(self, name: str, array: Array, key: int) -> str:
        holder = "chunk" if self.is_layered(array) else "stage"
        return self.names.of((name, holder, key), f"{name}.{holder}{key}")

    def add(self, array: Array, like: Array) -> None:
        """Give `array` the parts of `like`, as moments have those of their parameter."""
        for key, part in self.of[like.name].items():
            if key != self.owner(like.name) and not self.is_layered(array):
                continue
            several = len(self.of[like.name]) > 1 and self.is_layered(array)
            name = self.name(array.name, array, key) if several else array.name
            part_array = replace(
                array, name=name, extents=part.array.extents, stage=part.array.stage,
                of=array.name if several else "", first=part.first if several else 0,
            )  # fmt: skip
            self.of.setdefault(array.name, {})[key] = Part(part_array, part.first)

    def arrays(self) -> tuple[Array, ...]:
        """All parts, and arrays without parts, in the order of the module."""
        arrays: list[Array] = []
        for a in self.module.arrays:
            arrays += [p.array for p in self.of[a.name].values()] if a.name in self.of else [a]
        return tuple(arrays)
