"""The memory map of a die: its arena is [scratch of the running procedure][arrays of the step]."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of every address."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Placement:
    """The bytes of an array: its element i starts at `address + i * stride` of the arena."""

    array: str
    address: int
    stride: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory map, the same on every die.

    The locals of all procedures share `scratch_bytes` from address 0 on (calls do not nest), with a gap where some
    begin behind the fast memory; `live_bytes` of them are in use at the fullest moment. Arrays that calls hand on lie
    there too. The arena has `arena_bytes`. `arrays` is in the order of `Module.arrays`.
    """

    scratch_bytes: int
    live_bytes: int
    arena_bytes: int
    arrays: tuple[Placement, ...]

    def placement(self, array: str) -> Placement:
        """The placement of the array of this name."""
        return next(p for p in self.arrays if p.array == array)
