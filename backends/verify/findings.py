"""The findings of `verify`: an error in a program, with the name of its check and its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# One mistake may lead to a thousand findings: this many of each check are kept.
LIMIT: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names the check; `die` is a place on the wafer; `instruction` counts from 0, -1: none in particular."""

    check: str
    message: str
    die: str = ""
    procedure: str = ""
    instruction: int = -1

    def __str__(self) -> str:
        place = [f"die {self.die}"] if self.die else []
        if self.procedure:
            number = f" instruction {self.instruction}" if self.instruction >= 0 else ""
            place.append(f"`{self.procedure}`{number}")
        return f"{self.check}: {': '.join([', '.join(place), self.message] if place else [self.message])}"


@dataclass(slots=True)
class Findings:
    """Collects findings, each once, at most `LIMIT` of a check; `left_out` counts the rest."""

    found: dict[Finding, None] = field(default_factory=dict)
    left_out: int = 0
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        if finding in self.found:
            return
        count = self._counts[finding.check] = self._counts.get(finding.check, 0) + 1
        if count > LIMIT:
            self.left_out += 1
        else:
            self.found[finding] = None

    def __bool__(self) -> bool:
        return bool(self.found)
