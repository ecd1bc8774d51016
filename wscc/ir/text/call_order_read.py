"""Reading of a call order; every mistake in its form is W204 with the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from wscc.diagnostics import Code, Source, Span, fail
from wscc.ir.text.call_order import CallLine, CallOrder, Lines, LoopLines, Number, Numbered, Range

_NUMBER = r"\d{1,18}|[A-Za-z_]\w*(?:[+-]\d{1,18})?|\d{1,18}-[A-Za-z_]\w*"
_RANGE = re.compile(rf"({_NUMBER})(?:\.\.({_NUMBER})(?::([1-9]\d{{0,17}}))?)?")
_LOOP = re.compile(r"loop\s+([A-Za-z_]\w*)\s*=\s*(\S+)")
_STAGE = re.compile(r"stage\s+(\d{1,18})")
_WORD = re.compile(r"[A-Za-z_][\w.:#]*")
_FORM = (
    "a line is `stage 0`, `loop m = 0..3`, `end`, or a call: `block.fwd 0..3 m` (`-` in a column it lacks)"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_MOST_LOOPS = 16


@dataclass(slots=True)
class _Open:
    """A loop whose `end` has not come yet, or a stage."""

    span: Span
    variable: str = ""
    over: Range | None = None
    lines: list[Numbered] = field(default_factory=list)


def read_call_order(source: Source) -> CallOrder:
    """The call order in a text. Raises W204, with the line, for what is none."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.stages: list[Lines] = []
        self.ends: list[Span] = []
        self.open: list[_Open] = []
        self.here = Span(source, 0, 0, 1, 1)

    def read(self) -> CallOrder:
        at = 0
        for number, raw in enumerate(self.source.text.split("\n"), 1):
            text = _COMMENT.sub("", raw)
            start = at + len(text) - len(text.lstrip())
            at += len(raw) + 1
            if text.strip():
                end = start + len(text.strip())
                self.here = Span(self.source, start, end, number, start - (at - len(raw) - 1) + 1)
                self._line(text.strip())
        self._close_stage()
        if not self.stages:
            self._wrong("the table has no stage", _FORM)
        return CallOrder(tuple(self.stages), tuple(self.ends))

    def _line(self, text: str) -> None:
        if found := _STAGE.fullmatch(text):
            self._close_stage()
            if int(found[1]) != len(self.stages):
                message = f"stage {found[1]} stands where stage {len(self.stages)} belongs"
                self._wrong(message, "stages are numbered from 0, in order")
            self.open.append(_Open(self.here))
        elif not self.open:
            self._wrong(f"`{text[:40]}` stands before the first stage", "begin with a line `stage 0`")
        elif found := _LOOP.fullmatch(text):
            self._open_loop(found[1], found[2])
        elif text == "end":
            self._close_loop()
        else:
            self._call(text.split())

    def _open_loop(self, variable: str, over: str) -> None:
        if variable in self._variables():
            self._wrong(f"a loop around this one has the variable `{variable}` already", "take another name")
        if len(self.open) > _MOST_LOOPS:
            self._wrong(f"loops more than {_MOST_LOOPS} deep", "merge some of them")
        self.open.append(_Open(self.here, variable, self._range(over)))

    def _close_loop(self) -> None:
        loop = self.open.pop()
        if loop.over is None:
            self._wrong("`end` without a loop", "leave it out")
        if not loop.lines:
            self._wrong(
                f"the loop over `{loop.variable}` holds no call", "leave it out, or put calls into it"
            )
        self.open[-1].lines.append(
            Numbered(LoopLines(loop.variable, loop.over, tuple(loop.lines)), loop.span)
        )

    def _close_stage(self) -> None:
        if len(self.open) > 1:
            loop = self.open[-1]
            message = f"the loop over `{loop.variable}` of line {loop.span.line} has no `end`"
            self._wrong(message, "write `end` after its calls")
        if self.open:
            self.stages.append(tuple(self.open.pop().lines))
            self.ends.append(self.here)

    def _call(self, words: list[str]) -> None:
        if len(words) != 3 or not _WORD.fullmatch(words[0]):
            self._wrong(f"`{' '.join(words)[:60]}` is no call of three columns", _FORM)
        name, layers, micro = words
        ranges = [None if w == "-" else self._range(w) for w in (layers, micro)]
        self.open[-1].lines.append(Numbered(CallLine(name, *ranges), self.here))

    def _range(self, text: str) -> Range:
        found = _RANGE.fullmatch(text)
        if found is None:
            forms = "write `-`, `3`, `m`, `m+1`, `0..3`, `3..0` or `0..6:2`"
            self._wrong(f"`{text[:40]}` is no number and no range", forms)
        first = self._number(found[1])
        return Range(first, self._number(found[2]) if found[2] else first, int(found[3] or 1))

    def _number(self, text: str) -> Number:
        if re.fullmatch(r"\d+", text):
            return Number(int(text))
        if found := re.fullmatch(r"(\d+)-(\w+)", text):
            number = Number(int(found[1]), found[2], -1)
        else:
            found = re.fullmatch(r"(\w+?)([+-]\d+)?", text)
            assert found is not None
            number = Number(int(found[2] or 0), found[1])
        if number.variable not in self._variables():
            known = ", ".join(f"`{v}`" for v in self._variables()) or "none"
            message = f"no loop around this line has the variable `{number.variable}`"
            self._wrong(message, f"known here: {known}")
        return number

    def _variables(self) -> list[str]:
        return [o.variable for o in self.open if o.variable]

    def _wrong(self, message: str, help: str) -> NoReturn:
        raise fail(Code.CALL_TABLE, message, self.here, help=help)
