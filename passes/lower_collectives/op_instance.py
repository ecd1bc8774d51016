"""Instance of an op to lower: its views on a die, and the builder of the body."""

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
class OpInstance:
    """An instance of an op: on its whole local operands, or on one chunk of a stream.

    `reads`, `writes`: views of operands and results, local shapes. `runs(f)`: the global coordinates of factor f, by
    die. `accumulate`: for each result, whether the instance adds to (or merges with) its contents, as further chunks
    do. `where`: mask of the dies that take part.
    """

    build: FabricBuilder
    op: Op
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    runs: Runs
    accumulate: tuple[bool, ...]
    where: Ints = 1

    @property
    def rule(self) -> Rule:
        """The rule of the op."""
        return self.op.rule

    def start(self, factor: str) -> Ints:
        """The global coordinate of the first index of a factor that is one run, by die."""
        (run,) = self.runs(factor)
        return run.start

    def kernel(self, opcode: str, writes: Sequence[View], reads: Sequence[View], **attrs: KernelAttr) -> None:
        """Append a kernel on the dies of the instance."""
        self.build.kernel(opcode, writes, reads, attrs, self.where)

    def size(self, factor: str) -> int:
        """The local size of a factor; KeyError if no operand or result has it."""
        for view, term in (
            *zip(self.reads, self.rule.ins, strict=False),
            *zip(self.writes, self.rule.outs, strict=True),
        ):
            if factor in term:
                return view.shape[term.index(factor)]
        raise KeyError(factor)

    def attrs(self) -> dict[str, KernelAttr]:
        """The attributes of the op, as those of a kernel."""
        return dict(self.op.attrs)

    def temporary(self, j: int) -> View:
        """The view to compute result j in: its own, or a local for `settle` to add to it."""
        if not self.accumulate[j]:
            return self.writes[j]
        return self.build.buffer(
            f"{self.op.results[j].name}.part", self.writes[j].shape, self.writes[j].dtype
        )

    def settle(self, j: int, part: View) -> None:
        """Add the temporary `part` to result j, if that accumulates."""
        if self.accumulate[j]:
            self.kernel("add", [self.writes[j]], [self.writes[j], part])


class Masked:
    """A scope whose kernels are all masked to the dies of an instance when it is closed."""

    def __init__(self, s: OpInstance) -> None:
        self.build = s.build
        self._first = len(s.build.body)
        self._where = s.where

    def close(self) -> None:
        """Mask the kernels that were built since the scope was opened."""
        if self._where == 1:
            return
        for i in range(self._first, len(self.build.body)):
            stmt = self.build.body[i]
            assert isinstance(stmt, Kernel)
            self.build.body[i] = replace(stmt, where=self._where)
