"""Where an op is lowered: its views on a die, and what a lowering builds with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wscc.analysis.index_ranges import Runs
from wscc.ir.fabric import Kernel, KernelAttr
from wscc.ir.op import Op
from wscc.ir.per_die import Ints
from wscc.ir.rule import Rule
from wscc.ir.views import View
from wscc.passes.lower_collectives.builder import FabricBuilder


@dataclass(frozen=True, slots=True)
class Site:
    """One lowering of an op: on its whole local operands, or on one chunk of a stream.

    `runs(f)` are the global coordinates of factor f here, by die. `more` says, by result, that this is a further
    chunk: add to (or merge with) what is there. `where` masks dies that sit out.
    """

    build: FabricBuilder
    op: Op
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    runs: Runs
    more: tuple[bool, ...]
    where: Ints = 1

    @property
    def rule(self) -> Rule:
        return self.op.rule

    def start(self, factor: str) -> Ints:
        """The global coordinate of the first index of a factor that lies in one run."""
        (run,) = self.runs(factor)
        return run.start

    def kernel(self, opcode: str, writes: Sequence[View], reads: Sequence[View], **attrs: KernelAttr) -> None:
        self.build.kernel(opcode, writes, reads, attrs, self.where)

    def size(self, factor: str) -> int:
        """Local size of a factor."""
        for view, term in (
            *zip(self.reads, self.rule.ins, strict=False),
            *zip(self.writes, self.rule.outs, strict=True),
        ):
            if factor in term:
                return view.shape[term.index(factor)]
        raise KeyError(factor)

    def attrs(self) -> dict[str, KernelAttr]:
        return dict(self.op.attrs)

    def temporary(self, j: int) -> View:
        """Where to compute result j: itself, or a local that is added to it afterwards."""
        if not self.more[j]:
            return self.writes[j]
        return self.build.buffer(
            f"{self.op.results[j].name}.part", self.writes[j].shape, self.writes[j].dtype
        )

    def settle(self, j: int, part: View) -> None:
        """Add a temporary to its result."""
        if self.more[j]:
            self.kernel("add", [self.writes[j]], [self.writes[j], part])


class Masked:
    """Lets a multi-instruction lowering build freely, then masks what it built."""

    def __init__(self, s: Site) -> None:
        self.build = s.build
        self._first = len(s.build.body)
        self._where = s.where

    def close(self) -> None:
        if self._where == 1:
            return
        for i in range(self._first, len(self.build.body)):
            stmt = self.build.body[i]
            assert isinstance(stmt, Kernel)
            self.build.body[i] = replace(stmt, where=self._where)
