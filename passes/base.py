"""The interface of passes: pure functions from module to module whose dataclass fields are their options."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import Field, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from wscc.ir.module import Module

# In the metadata of a field of a pass that is no option: the pipeline that the pass runs in sets it.
OF_THE_PIPELINE: Final = "of the pipeline"


class Fact(StrEnum):
    """A property of a module; passes require and provide facts, so that the runner can check their order."""

    DIFFERENTIATED = "differentiated"
    PADDED = "padded"
    PARTITIONED = "partitioned"
    STAGED = "cut into stages"
    PLACED = "placed"
    LOWERED = "lowered to the fabric"
    PROMOTED = "promoted to SRAM"
    PHASED = "grouped in phases"
    ROUTED = "routed"
    STAGGERED = "staggered"
    SCHEDULED = "scheduled"
    PLANNED = "planned in memory"


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the pipeline: valid module in, valid module out.

    `run` raises `CompileError` when the program cannot be compiled.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[Fact]] = frozenset()
    provides: ClassVar[frozenset[Fact]] = frozenset()

    @abstractmethod
    def run(self, module: Module) -> Module:
        """The module after the pass; `module` itself does not change."""


def options_of(cls: type[Pass]) -> list[Field[Any]]:
    """The options of a pass."""
    return [f for f in fields(cls) if OF_THE_PIPELINE not in f.metadata]
