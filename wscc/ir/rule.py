"""Index rules: the dimensions of an op's operands and results, as named factors.

    b s k, k n -> b s n          matmul: `b s n` parallel, `k` contracted
    b s d!, d, d -> b s d        layernorm: no axis may split `d`
    b q h e!, b k~ h e! ...      attention: `k` may be streamed (merged chunk by chunk), not split
    b s, v@ d -> b s d           embedding: the kernel needs the coordinates of its rows of `v`

A factor absent from a result is contracted: where an axis splits it, that result is partial (`OpDef.combine`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

_FACTOR = re.compile(r"([a-z][a-z0-9]*)([!~@]*)")


@dataclass(frozen=True, slots=True)
class Rule:
    """The factors of each operand and result, and which factors are whole, streamable or indexed.

    Invariant: `parse_rule(str(rule)) == rule`.
    """

    ins: tuple[tuple[str, ...], ...]
    outs: tuple[tuple[str, ...], ...]
    whole: frozenset[str] = frozenset()
    streamed: frozenset[str] = frozenset()
    indexed: frozenset[str] = frozenset()

    @property
    def factors(self) -> tuple[str, ...]:
        """Every factor once, in order of first appearance."""
        return tuple(dict.fromkeys(chain.from_iterable((*self.ins, *self.outs))))

    @property
    def contracted(self) -> tuple[str, ...]:
        """Factors of operands that no result has."""
        in_results = {f for term in self.outs for f in term}
        return tuple(f for f in self.factors if f not in in_results)

    def may_split(self, factor: str) -> bool:
        """Whether an axis may split the factor outright; a streamable one may only be streamed."""
        return factor not in self.whole and factor not in self.streamed

    def __str__(self) -> str:
        def term(factors: tuple[str, ...]) -> str:
            return " ".join(f + self._marks(f) for f in factors)

        return f"{', '.join(map(term, self.ins))} -> {', '.join(map(term, self.outs))}".strip()

    def _marks(self, f: str) -> str:
        return "!" * (f in self.whole) + "~" * (f in self.streamed) + "@" * (f in self.indexed)


def parse_rule(text: str) -> Rule:
    """The rule that the text spells; a mark on one occurrence of a factor holds for all. Raises `ValueError`."""
    left, arrow, right = text.partition("->")
    if not arrow or _FACTOR.sub("", text).strip(" ,->"):
        raise ValueError(f"`{text}` is not an index rule")
    marks: dict[str, set[str]] = {"!": set(), "~": set(), "@": set()}
    for name, suffix in _FACTOR.findall(text):
        for mark in suffix:
            marks[mark].add(name)

    def terms(side: str) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(name for name, _ in _FACTOR.findall(term)) for term in side.split(","))

    return Rule(terms(left), terms(right), *(frozenset(marks[m]) for m in "!~@"))
