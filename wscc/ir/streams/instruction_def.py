"""The declaration of an instruction of a die: its operands, attributes and types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class InstructionDef:
    """An opcode: `reads` and `writes` name the operands in order, `attrs` the scalars, in order.

    An operand is a name with the names of its dimensions, `x[*,d]`; a bare name has any. `integers` names the operands
    that hold integers (indices, labels, steps); all others hold floats, unless `any_type`. `sums` names those that are
    kept in the type in which numbers of computation are added up, `doubles` those in f64; it may read `gradients` of
    parameters. `indexed` names the operand of which only rows, or elements, that integers name are touched. `updates`:
    it is the step of an optimizer. `options` are attributes behind the others, all of them or none.
    """

    opcode: str
    writes: str
    reads: str
    attrs: str = ""
    semantics: str = ""
    integers: tuple[str, ...] = ()
    any_type: bool = False
    indexed: str = ""
    updates: bool = False
    options: str = ""
    sums: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    gradients: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands without their dimensions, writes first."""
        return _names(f"{self.writes} {self.reads}")

    @property
    def attr_names(self) -> tuple[str, ...]:
        return _names(self.attrs)

    def takes(self, names: tuple[str, ...]) -> bool:
        """Whether these are its attributes, in order: with all `options` or without any."""
        return names == self.attr_names or names == _names(f"{self.attrs} {self.options}")


@cache  # programs have a million instructions, of some fifty declarations
def _names(words: str) -> tuple[str, ...]:
    """Words without dimensions."""
    return tuple(word.partition("[")[0] for word in words.split())


def row(
    opcode: str,
    writes: str,
    reads: str,
    attrs: str = "",
    semantics: str = "",
    *,
    integers: str = "",
    any_type: bool = False,
    indexed: str = "",
    updates: bool = False,
    options: str = "",
    sums: str = "",
    doubles: str = "",
    gradients: bool = False,
) -> InstructionDef:
    """The declaration, with lists of names in one text each."""
    return InstructionDef(
        opcode, writes, reads, attrs, semantics, tuple(integers.split()), any_type, indexed, updates, options,
        _names(sums), _names(doubles), gradients,
    )  # fmt: skip
