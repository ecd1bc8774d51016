"""Kinds of access of the calls of a step to the elements of arrays that they are given."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from wscc.ir.module import Mode, Procedure


class AccessKind(StrEnum):
    """`ADD` reads and writes, and changes places with another one."""

    READ = "read"
    ADD = "add"
    WRITE = "write"


_OF_MODE: Final = {Mode.WRITE: AccessKind.WRITE, Mode.ADD: AccessKind.ADD}


def argument_accesses(procedure: Procedure) -> tuple[AccessKind, ...]:
    """How a call of the procedure accesses each of its arguments."""
    return *(AccessKind.READ for _ in procedure.inputs), *(_OF_MODE[o.mode] for o in procedure.outputs)
