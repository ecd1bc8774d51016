"""Statements of the fabric level: kernels on views of buffers, and transfers. Each holds for all dies of a stage.

No object stands for one die: where dies differ, a `PerDie` holds an integer for each logical die.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.per_die import NOBODY, Ints, PerDie, at
from wscc.ir.types import DType
from wscc.ir.views import View


@dataclass(frozen=True, slots=True)
class Buffer:
    """A local of a procedure: `elements` of `dtype` at `address` of the arena (-1: not planned yet)."""

    name: str
    elements: int
    dtype: DType
    address: int = -1
    slot: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def bytes(self) -> int:
        """Size of the buffer."""
        return self.elements * self.dtype.size


KernelAttr = bool | int | float | str | PerDie


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compute instruction, on the dies where `where` is 1.

    `source` names the op that was lowered to it.
    """

    opcode: str
    writes: tuple[View, ...]
    reads: tuple[View, ...]
    attrs: tuple[tuple[str, KernelAttr], ...] = ()
    where: Ints = 1
    source: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def attr(self, name: str) -> KernelAttr:
        """The value of an attribute that the kernel has."""
        return next(v for k, v in self.attrs if k == name)


# Asked of each statement again and again; there are few different receivers.
@lru_cache(maxsize=1024)
def _stays(to: Ints) -> bool:
    """Whether the first die that sends anything sends it to itself."""
    values = (to,) if isinstance(to, int) else to.values
    return next((i == j for i, j in enumerate(values) if j != NOBODY), False)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A partial permutation: die i sends `read` to die `to[i]` (`NOBODY`: it sends nothing), which receives
    it in `write`. `read.offset` is by sender, `write.offset` by receiver.

    `channel` is unique in the procedure; `group` names the collective or stream that the transfer belongs to.
    Transfers with one `content` (if any) send the same bytes of each die, so that their messages may be merged.
    The pass form_phases sets `phase`, the pass route sets `route` (an index of `Module.routes` for each sender).
    """

    channel: int
    to: Ints
    read: View
    write: View
    group: str = ""
    content: str = ""
    phase: int = -1
    route: Ints = NOBODY
    one_hop: bool = False
    source: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether every sender sends to itself: a copy within its memory that takes no link, and goes on while the
        die computes. A transfer is local on all its dies or on none."""
        return _stays(self.to)

    def pairs(self, dies: int) -> list[tuple[int, int]]:
        """(sender, receiver) of every message, in logical die order."""
        return [(i, at(self.to, i)) for i in range(dies) if at(self.to, i) != NOBODY]


@dataclass(frozen=True, slots=True)
class Post:
    """Grant a receive slot to the message of `channel` from die `sender` (`NOBODY`: expects none)."""

    channel: int
    sender: Ints
    write: View
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Send:
    """Start the message of `channel` to die `to`; `read` must stay as it is until `wait sent`. `source` names the op
    that was lowered to it."""

    channel: int
    to: Ints
    read: View
    route: Ints
    source: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def is_local(self) -> bool:
        """As `Transfer.is_local`."""
        return _stays(self.to)


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the message of `channel` has arrived (`received`) or left (`sent`), on dies of `where`."""

    channel: int
    sent: bool
    where: Ints = 1
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


FabricStmt = Kernel | Transfer | Post | Send | Wait


def with_views(stmt: FabricStmt, view: Callable[[View], View]) -> FabricStmt:
    """The statement with `view(v)` for each of its views v."""
    match stmt:
        case Kernel():
            return replace(stmt, writes=tuple(map(view, stmt.writes)), reads=tuple(map(view, stmt.reads)))
        case Transfer():
            return replace(stmt, read=view(stmt.read), write=view(stmt.write))
        case Post():
            return replace(stmt, write=view(stmt.write))
        case Send():
            return replace(stmt, read=view(stmt.read))
    return stmt
