"""Kinds of access of calls to the array elements bound to their arguments."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from wscc.ir.module import Mode, Procedure


class AccessKind(StrEnum):
    """`ADD` reads and writes; two of them commute."""

    READ = "read"
    ADD = "add"
    WRITE = "write"


_OF_MODE: Final = {Mode.WRITE: AccessKind.WRITE, Mode.ADD: AccessKind.ADD}


def argument_accesses(procedure: Procedure) -> tuple[AccessKind, ...]:
    """The kind of access of a call to each of its arguments, in their order."""
    return *(AccessKind.READ for _ in procedure.inputs), *(_OF_MODE[o.mode] for o in procedure.outputs)
