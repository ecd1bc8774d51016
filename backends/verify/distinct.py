"""Numbers of procedures: roles have most of theirs in common, and what is found for one need not be found again."""

from __future__ import annotations

from dataclasses import dataclass, field

from wscc.ir.streams.program import Code, Instruction


@dataclass(slots=True)
class Distinct:
    """Equal procedures have one number. Each object is compared once, as to hash a procedure takes long; the program
    must be kept meanwhile."""

    _number: dict[int, int] = field(default_factory=dict)  # by id of the procedure
    _numbers: dict[tuple[str, int, tuple[int, ...]], int] = field(default_factory=dict)
    _instruction: dict[int, int] = field(default_factory=dict)  # by id
    _instructions: dict[Instruction, int] = field(default_factory=dict)

    def number(self, code: Code) -> int:
        """The number of a procedure."""
        if id(code) not in self._number:
            alike = code.name, code.args, tuple(map(self._same, code.body))
            self._number[id(code)] = self._numbers.setdefault(alike, len(self._numbers))
        return self._number[id(code)]

    def _same(self, x: Instruction) -> int:
        if id(x) not in self._instruction:
            self._instruction[id(x)] = self._instructions.setdefault(x, len(self._instructions))
        return self._instruction[id(x)]
