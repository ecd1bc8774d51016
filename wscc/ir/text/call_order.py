"""The call order of a step, as a table that a person can read and edit: one line per call or loop, stage by stage.

    stage 0
    # call             layers     micro-batches
    begin              -          -
    loop m = 0..6
      block.fwd        0..3       m+1
      block.bwd        3..0       m
    end

A column is `-`, a number, or a range `first..last` or `first..last:step`, both ends included and in that order;
micro-batches turn slower than layers where both are ranges. Numbers may be those of a loop around: `m`, `m+1`, `3-m`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from wscc.diagnostics import NO_SPAN, Code, Span, fail

# Calls of an edited table that are looked at one by one.
MOST_CALLS = 20_000


@dataclass(frozen=True, slots=True)
class Number:
    """`base + sign x variable`; without a variable, `base`."""

    base: int
    variable: str = ""
    sign: int = 1

    def at(self, variables: dict[str, int]) -> int:
        return self.base + (self.sign * variables[self.variable] if self.variable else 0)

    def __str__(self) -> str:
        if not self.variable:
            return str(self.base)
        if self.sign < 0:
            return f"{self.base}-{self.variable}"
        return self.variable + (f"{self.base:+d}" if self.base else "")


@dataclass(frozen=True, slots=True)
class Range:
    """From `first` to `last`, both included, up or down in steps of `step`."""

    first: Number
    last: Number
    step: int = 1

    def values(self, variables: dict[str, int]) -> range:
        first, last = self.first.at(variables), self.last.at(variables)
        return range(first, last + 1, self.step) if first <= last else range(first, last - 1, -self.step)

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}..{self.last}" + (f":{self.step}" if self.step != 1 else "")


def numbers(first: int, last: int, step: int = 1) -> Range:
    return Range(Number(first), Number(last), step)


def only(n: Number) -> Range:
    return Range(n, n)


@dataclass(frozen=True, slots=True)
class CallLine:
    """Calls of one name; a column that the call does not have is None."""

    call: str
    layers: Range | None
    microbatches: Range | None


@dataclass(frozen=True, slots=True)
class LoopLines:
    variable: str
    over: Range
    body: Lines


@dataclass(frozen=True, slots=True)
class Numbered:
    """A line or loop and where it stands, which is no part of what it says."""

    item: CallLine | LoopLines
    span: Span = NO_SPAN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbered) and self.item == other.item

    def __hash__(self) -> int:
        return hash(self.item)


Lines: TypeAlias = tuple[Numbered, ...]


@dataclass(frozen=True, slots=True)
class CallOrder:
    """Lines of each stage in order; `ends` are the places behind them, for what is missing there."""

    stages: tuple[Lines, ...]
    ends: tuple[Span, ...] = ()

    def same_as(self, other: CallOrder) -> bool:
        return self.stages == other.stages


@dataclass(frozen=True, slots=True)
class One:
    """One call, with its layer and micro-batch if it has them."""

    call: str
    layer: int | None = None
    microbatch: int | None = None

    def __str__(self) -> str:
        columns = (("layer", self.layer), ("micro-batch", self.microbatch))
        words = [f"{word} {n}" for word, n in columns if n is not None]
        return f"`{self.call}`" + (f" of {', '.join(words)}" if words else "")


def one_by_one(order: CallOrder) -> list[list[tuple[One, Span]]]:
    """By stage, its calls in order, with the lines that make them. W003 for more than `MOST_CALLS`."""
    out: list[list[tuple[One, Span]]] = []
    left = MOST_CALLS
    for lines in order.stages:
        calls: list[tuple[One, Span]] = []
        for call in _unrolled(lines, {}):
            calls.append(call)
            if len(calls) > left:
                raise fail(
                    Code.LIMIT, f"the table has more than {MOST_CALLS:,} calls", call[1],
                    help="an edited order is checked call by call; take fewer micro-batches or layers",
                )  # fmt: skip
        left -= len(calls)
        out.append(calls)
    return out


def _unrolled(lines: Lines, variables: dict[str, int]) -> Iterator[tuple[One, Span]]:
    for line in lines:
        match line.item:
            case LoopLines() as loop:
                for value in loop.over.values(variables):
                    yield from _unrolled(loop.body, {**variables, loop.variable: value})
            case CallLine() as call:
                for m in call.microbatches.values(variables) if call.microbatches else (None,):
                    for layer in call.layers.values(variables) if call.layers else (None,):
                        yield One(call.call, layer, m), line.span


def to_call_order_text(order: CallOrder, title: str) -> str:
    """The text of a call order, which `read_call_order` reads back."""
    width = max([len("# call"), *(len(c.call) + 2 * depth for c, depth in _calls(order))]) + 2
    out = [f"# {title}"]
    for stage, lines in enumerate(order.stages):
        out += ["", f"stage {stage}", f"{'# call':<{width}}{'layers':<12}micro-batches"]
        out += _texts(lines, 0, width)
    return "\n".join(out) + "\n"


def _calls(order: CallOrder) -> Iterator[tuple[CallLine, int]]:
    def inside(lines: Lines, depth: int) -> Iterator[tuple[CallLine, int]]:
        for line in lines:
            if isinstance(line.item, LoopLines):
                yield from inside(line.item.body, depth + 1)
            else:
                yield line.item, depth

    for lines in order.stages:
        yield from inside(lines, 0)


def _texts(lines: Lines, depth: int, width: int) -> Iterator[str]:
    space = "  " * depth
    for line in lines:
        match line.item:
            case LoopLines() as loop:
                yield f"{space}loop {loop.variable} = {loop.over}"
                yield from _texts(loop.body, depth + 1, width)
                yield f"{space}end"
            case CallLine() as call:
                layers, micro = (str(r) if r else "-" for r in (call.layers, call.microbatches))
                yield f"{space + call.call:<{width}}{layers:<12}{micro}"
