"""Phases of use of a local that is used at times far apart, and copies of it for each: its live range is split.

Register allocators split long ranges likewise (K. Cooper and L. Simpson, "Live Range Splitting in a Graph Coloring
Register Allocator", CC 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.access_cost import CumulativeWork
from wscc.analysis.statement_accesses import Access
from wscc.passes.promote.boxes import Argument, Box, boxes

DieMask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy named `name` of a box of an argument in a local, which serves some accesses to the argument, in order;
    with a transfer in before them if it `loads`, and one out after the last that writes if it `stores`."""

    name: str
    argument: Argument
    box: Box
    accesses: tuple[Access, ...]
    loads: bool
    stores: bool

    @property
    def first(self) -> int:
        """The position of the first access."""
        return self.accesses[0].position

    @property
    def last_write(self) -> int:
        """The last statement that writes the box, or -1."""
        return max((a.position for a in self.accesses if a.writes), default=-1)

    @property
    def bytes(self) -> int:
        """The size of the copy."""
        return self.box.view.bytes

    @property
    def times(self) -> int:
        """The number of transfers: in, out, or both."""
        return self.loads + self.stores


def by_box(argument: Argument, accesses: Sequence[Access]) -> Iterator[tuple[int, Box, list[Access]]]:
    """The boxes of an argument for these accesses, each with a number and its own."""
    found = boxes(argument, (a.view for a in accesses))
    inside: list[list[Access]] = [[] for _ in found.boxes]
    for a in accesses:
        inside[found.number_of[a.view]].append(a)
    yield from ((n, box, own) for n, (box, own) in enumerate(zip(found.boxes, inside, strict=True)))


def split_by_work(
    accesses: Sequence[Access], work: CumulativeWork, apart: float
) -> Iterator[Sequence[Access]]:
    """Clusters of accesses with more than `apart` seconds of work between one and the next."""
    start = 0
    for i, (a, b) in enumerate(pairwise(accesses), 1):
        if work.seconds[b.position] - work.seconds[a.position] > apart:
            yield accesses[start:i]
            start = i
    yield accesses[start:]


def copies_of_local(
    local: Argument,
    accesses: Sequence[Access],
    work: CumulativeWork,
    apart: float,
    at: Callable[[Access], DieMask],
) -> Iterator[Copy]:
    """Copies of the boxes of a local in each phase of its use, with more than `apart` seconds of work between one and
    the next; none if there is only one.

    `at`: the dies that access what an access says. The first phase must write all of the local, on each die that uses
    it, for what is not written can't be copied.
    """
    phases = list(split_by_work(accesses, work, apart))
    if len(phases) < 2 or not _written(local, phases[0], accesses, at):
        return
    for k, phase in enumerate(phases):
        for n, box, own in by_box(local, phase):
            stores = k < len(phases) - 1 and any(a.writes for a in own)
            yield Copy(f"{local.name}.{k}.{n}", local, box, tuple(own), k > 0, stores)


def _written(
    local: Argument, phase: Iterable[Access], accesses: Iterable[Access], at: Callable[[Access], DieMask]
) -> bool:
    """Whether a phase writes all elements of a local, on each die that accesses it at all."""
    writes = [a for a in phase if a.writes]
    found = list(by_box(local, writes))
    if sum(box.view.elements for _, box, _ in found) < local.elements:
        return False
    used = np.logical_or.reduce([at(a) for a in accesses])
    whole = ([at(a) for a in own if a.view.elements == box.view.elements] for _, box, own in found)
    return all(masks and not (used & ~np.logical_or.reduce(masks)).any() for masks in whole)
