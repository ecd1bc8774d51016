"""The memory of one die through the whole step: writes of the host, summaries of all calls, reads of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

from wscc.backends.interpreter.host_io import FILLED
from wscc.backends.verify.body import DTYPES
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.ledger import UNWRITTEN, Ledger, Object
from wscc.backends.verify.places import LOCAL
from wscc.backends.verify.summary import Summary
from wscc.ir.array import Kind, Role
from wscc.ir.streams.artifact import HostTensor, Manifest

# A call: its procedure, the summary of it, and the address of each of its spaces.
Line = tuple[str, Summary, tuple[int, ...]]

WRITTEN: Final = (*FILLED, Kind.INPUT, Kind.EDGES)
READ: Final = (Kind.PARAM, Kind.STATE, Kind.GRAD)


@dataclass(slots=True)
class Walk:
    """The check of the step of one die, named `die`, of `stage`; errors become findings."""

    die: str
    stage: int
    manifest: Manifest
    findings: Findings
    ledger: Ledger = field(default_factory=Ledger)
    # By incomplete sum, the complete array: it may be a second name of those bytes.
    complete: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.complete = {part: whole for whole, part in self.manifest.related(Role.PARTIAL).items()}

    def run(self, lines: tuple[Line, ...]) -> None:
        for t in self.manifest.tensors:
            if t.kind in WRITTEN:
                self._host_writes(t)
        for name, summary, spaces in lines:
            self._call(name, summary, spaces)
        for t in self.manifest.tensors:
            if t.kind in READ or t.name == "loss":
                self._host_reads(t)

    def _elements(self, t: HostTensor) -> Iterator[tuple[int, int, int]]:
        """(number, start, end) of the elements of an array on this die."""
        size = prod(t.type.local_shape(dict(self.manifest.axes))) * t.type.dtype.size
        for part in t.parts:
            if part.stage in (-1, self.stage):
                for i in range(part.count):
                    start = part.address + i * part.stride
                    yield part.first + i, start, start + size

    def _host_writes(self, t: HostTensor) -> None:
        kind = DTYPES.index(t.type.dtype)
        for element, low, high in self._elements(t):
            held = sorted({n for _, _, n in self.ledger.pieces(low, high)} - {UNWRITTEN})
            for other in map(self.ledger.objects.__getitem__, held):
                if self._whole(other.tensor) == self._whole(t.name):
                    continue
                words = (
                    f"`{t.name}` element {element} shares bytes with `{other.tensor}` element {other.element}"
                )
                self._tell(f"{words}, from {low} on")
            self.ledger.write(low, high, self.ledger.add(Object(low, high, kind, t.name, element)))

    def _whole(self, tensor: str) -> str:
        return self.complete.get(tensor, tensor)

    def _host_reads(self, t: HostTensor) -> None:
        for element, low, high in self._elements(t):
            for a, b, n in self.ledger.pieces(low, high):
                if n == UNWRITTEN:
                    self._tell(
                        f"the host reads `{t.name}` element {element}, of which bytes {a} to {b} are not written"
                    )

    def _call(self, name: str, summary: Summary, spaces: tuple[int, ...]) -> None:
        base = {LOCAL: 0, **dict(enumerate(spaces))}
        for space, low, high, kind in summary.needs:
            self._read(name, base[space] + low, base[space] + high, kind)
        for low, high in summary.local:
            self.ledger.destroy(low, high)
        for space, low, high, _ in summary.loses:
            self.ledger.destroy(base[space] + low, base[space] + high)
        for space, low, high, kind in summary.leaves:
            low, high = base[space] + low, base[space] + high
            self.ledger.write(low, high, self.ledger.add(Object(low, high, kind)))

    def _read(self, name: str, low: int, high: int, kind: int) -> None:
        tensors: dict[tuple[str, int], None] = {}
        for a, b, n in list(self.ledger.pieces(low, high)):
            if n == UNWRITTEN:
                self._tell(f"reads bytes {a} to {b}, which hold nothing that was written for it", name)
                self.ledger.write(a, b, self.ledger.add(Object(a, b, kind)))  # reported once
                continue
            o = self.ledger.objects[n]
            if o.kind != kind:
                self._tell(
                    f"reads bytes {a} to {b} as {DTYPES[kind]}, which were written as {DTYPES[o.kind]}", name
                )
            if o.tensor:
                tensors[o.tensor, o.element] = None
        if len(tensors) > 1:
            words = " and ".join(f"`{t}` element {i}" for t, i in tensors)
            self._tell(f"reads bytes {low} to {high} as one, which are of {words}", name)

    def _tell(self, words: str, procedure: str = "") -> None:
        self.findings.add(Finding("step", words, self.die, procedure))
