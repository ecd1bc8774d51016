"""Reader of flow files: a line for each flow, `row,column row,column bytes`, perhaps with a name of the content.

# the shard of (0, 0) for two others, and something for (1, 1)
0,0 0,1 1048576 shard
0,0 1,0 1048576 shard
0,1 1,1 4096
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Source, Span
from wscc.machine.topology import UNREACHABLE, Topology
from wscc.machine.wafer import Wafer
from wscc.routing.flows import MAX_BYTES, Flow

MAX_FLOWS: Final = 1 << 17
_SHOWN: Final = 20  # mistakes told in one run
_WORD: Final = re.compile(r"\S+")
_DIE: Final = re.compile(r"[0-9]{1,9}(,[0-9]{1,9}){1,2}")
_FORM: Final = (
    "a line is `row,column row,column bytes`, perhaps with a name of what is sent: `0,0 3,7 1048576`"
)


@dataclass(frozen=True, slots=True)
class FlowFile:
    """`lines[i]` is the line of the file, from 0, that flow i stands on."""

    flows: tuple[Flow, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    source: Source
    number: int
    start: int
    words: tuple[re.Match[str], ...]

    def span(self, word: int | None = None) -> Span:
        """The span of one word, or of all of them."""
        first, last = (0, -1) if word is None else (word, word)
        low, high = self.words[first].start(), self.words[last].end()
        return Span(self.source, self.start + low, self.start + high, self.number + 1, low + 1)

    def diagnostic(
        self, code: Code, message: str, word: int | None = None, label: str = "", help: str = ""
    ) -> Diagnostic:
        return Diagnostic(code, message, Label(self.span(word), label), help=help)


def read_flows(source: Source, wafer: Wafer, topology: Topology) -> FlowFile:
    """The flows of a text over the live part of a wafer. Raises `CompileError` with up to twenty mistakes: W001 a
    line of another form, W003 too many flows, W005 a number of bytes, W007 a content of two sizes, W302 a dead die
    or one out of reach, W304 a die off the mesh."""
    reader = _Reader(wafer, topology)
    for line in _lines(source):
        reader.read(line)
        if len(reader.diagnostics) >= _SHOWN or len(reader.flows) > MAX_FLOWS:
            break
    if len(reader.flows) > MAX_FLOWS:
        reader.diagnostics.append(
            Diagnostic(Code.LIMIT, f"`{source.name}` has more than {MAX_FLOWS:,} flows")
        )
    elif not reader.diagnostics and sum(f.bytes for f in reader.flows) > MAX_BYTES:
        reader.diagnostics.append(
            Diagnostic(Code.NUMBER, f"the flows move more than {MAX_BYTES:,} bytes together")
        )
    if reader.diagnostics:
        raise CompileError(*reader.diagnostics)
    return FlowFile(tuple(reader.flows), tuple(reader.numbers))


def _lines(source: Source) -> Iterator[_Line]:
    """The lines that say something, without their comments."""
    start = 0
    for number, text in enumerate(source.text.split("\n")):
        words = tuple(_WORD.finditer(text.partition("#")[0]))
        if words:
            yield _Line(source, number, start, words)
        start += len(text) + 1


class _Reader:
    """Flows and mistakes, line after line."""

    def __init__(self, wafer: Wafer, topology: Topology) -> None:
        self.wafer, self.topology = wafer, topology
        self.flows: list[Flow] = []
        self.numbers: list[int] = []
        self.diagnostics: list[Diagnostic] = []
        self.contents: dict[tuple[int, str], tuple[int, _Line]] = {}

    def read(self, line: _Line) -> None:
        mistakes = len(self.diagnostics)
        if len(line.words) not in (3, 4):
            message = f"expected 3 or 4 words, found {len(line.words)}"
            self.diagnostics.append(line.diagnostic(Code.SYNTAX, message, help=_FORM))
            return
        source, destination, amount = self._die(line, 0), self._die(line, 1), self._bytes(line)
        if len(self.diagnostics) > mistakes or source is None or destination is None or amount is None:
            return
        content = line.words[3].group() if len(line.words) == 4 else None
        if self._is_reachable(line, source, destination) and self._has_same_size(
            line, source, amount, content
        ):
            self.flows.append(Flow(source, destination, amount, content))
            self.numbers.append(line.number)

    def _die(self, line: _Line, word: int) -> int | None:
        text = line.words[word].group()
        match = _DIE.fullmatch(text)
        if not match:
            message = f"`{text[:40]}` is not a die"
            self.diagnostics.append(
                line.diagnostic(Code.SYNTAX, message, word, "expected `row,column`", _FORM)
            )
            return None
        place, wafer = tuple(map(int, text.split(","))), self.wafer
        coordinate = wafer.at(place)
        if coordinate is None:
            message = f"die {place} is not on the mesh"
            self.diagnostics.append(
                line.diagnostic(Code.OFF_MESH, message, word, help=wafer.what_places_are())
            )
            return None
        if coordinate in wafer.dead_dies:
            self.diagnostics.append(line.diagnostic(Code.DISCONNECTED, f"die {place} is dead", word))
            return None
        return wafer.number(coordinate)

    def _bytes(self, line: _Line) -> int | None:
        text = line.words[2].group()
        help = "a flow moves a whole number of bytes, at least 1"
        if not re.fullmatch("[0-9]+", text):
            self.diagnostics.append(
                line.diagnostic(Code.SYNTAX, f"`{text[:40]}` is no number of bytes", 2, help=help)
            )
        elif len(text.lstrip("0")) > 19 or int(text) > MAX_BYTES:
            self.diagnostics.append(
                line.diagnostic(Code.NUMBER, f"a flow moves at most {MAX_BYTES:,} bytes", 2)
            )
        elif int(text) == 0:
            self.diagnostics.append(
                line.diagnostic(Code.NUMBER, "a flow of 0 bytes moves nothing", 2, help=help)
            )
        else:
            return int(text)
        return None

    def _is_reachable(self, line: _Line, source: int, destination: int) -> bool:
        if self.topology.distance(source, destination) != UNREACHABLE:
            return True
        ends = " and ".join(str(self.wafer.place(d)) for d in (source, destination))
        parts = ", ".join(f"{len(p)} around {self.wafer.place(p[0])}" for p in self.topology.islands[:4])
        help = f"the live dies fall apart: {parts}"
        self.diagnostics.append(
            line.diagnostic(Code.DISCONNECTED, f"no live path joins dies {ends}", help=help)
        )
        return False

    def _has_same_size(self, line: _Line, source: int, amount: int, content: str | None) -> bool:
        if content is None:
            return True
        size, first = self.contents.setdefault((source, content), (amount, line))
        if size == amount:
            return True
        self.diagnostics.append(
            Diagnostic(
                Code.DUPLICATE,
                f"content `{content[:40]}` of die {self.wafer.place(source)} has {size} bytes, and here {amount}",
                Label(line.span(2)),
                (Label(first.span(2), "first given here"),),
                "flows of one source with the same content are the same bytes",
            )
        )
        return False
