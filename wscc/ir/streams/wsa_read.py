"""The parser of `.wsa` text.

A long program is mostly lines that it has had before, since roles share their instructions: of a text that is laid
out as `to_wsa` does, each distinct line of a procedure is parsed once. Operands are one token each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, TypeVar, cast

import lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from wscc import grammar
from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import CompileError, Source, Span, fail
from wscc.ir.step import Affine
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import (
    Address,
    Code,
    Column,
    Field,
    Instruction,
    Operand,
    Program,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
)
from wscc.ir.types import DType
from wscc.ir.views import contiguous_strides

T = TypeVar("T")
_Parsed = tuple[tuple[Program, ...], tuple[ProgramStep, ...]]
# How `to_wsa` begins a procedure, and ends it.
_BEGINS, _ENDS = "\n  procedure ", "\n  }\n"
_HEADER = re.compile(r'  procedure (?:[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\.)*")\([0-9]+\) \{')
_OPERAND = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^];]*)(?:;(?P<strides>[^]]*))?\]@(?:a(?P<arg>\d+)\+?)?(?P<offset>.*)"
)


def parse_wsa(text: str, name: str = "<wsa>") -> tuple[tuple[Program, ...], tuple[ProgramStep, ...]]:
    """The programs and the step of each stage. `CompileError` W601, with line and column, if the text is not
    `.wsa` or an instruction is not as `INSTRUCTIONS` declares it."""
    builder, _ = _parser()
    builder.same.clear()
    try:
        return _by_lines(text) or _whole(text, name)
    finally:
        builder.same.clear()


def _whole(text: str, name: str) -> _Parsed:
    """The parts of a text of any layout, and its errors with their places."""
    source = Source(name, text)
    try:
        # lark does not type the results of a transformer.
        parsed: Any = _parser()[1].parse(text)
    except UnexpectedInput as error:
        raise _unexpected(error, source) from error
    except CompileError as error:
        raise _placed(error, source) from error
    return cast(_Parsed, parsed)


def _by_lines(text: str) -> _Parsed | None:
    """The parts of a text that has one instruction on each line of a procedure, and nothing else there; None if it has
    another layout or is wrong."""
    instructions, same = _Instructions(), dict[str, tuple[Instruction, ...]]()
    frame: list[str] = []  # the text without the bodies
    bodies: list[tuple[Instruction, ...]] = []
    at = 0
    try:
        while (head := text.find(_BEGINS, at)) >= 0:
            begin = text.find("\n", head + 1)
            end = text.find(_ENDS, begin) if begin >= 0 else -1
            if end < 0 or not _HEADER.fullmatch(text, head + 1, begin):
                return None
            frame.append(text[at:begin])
            if (body := text[begin:end]) not in same:
                same[body] = tuple(map(instructions.__getitem__, body.split("\n")[1:]))
            bodies.append(same[body])
            at = end
        parsed: Any = _parser()[1].parse("".join([*frame, text[at:]]))
    except (ValueError, UnexpectedInput, CompileError):
        return None
    programs, steps = cast(_Parsed, parsed)
    codes = [code for p in programs for code in p.procedures]
    if len(codes) != len(bodies):
        return None
    filled = iter(_filled(codes, bodies))
    return tuple(replace(p, procedures=tuple(islice(filled, len(p.procedures)))) for p in programs), steps


def _filled(codes: list[Code], bodies: list[tuple[Instruction, ...]]) -> Iterator[Code]:
    """The procedures with their bodies; those of one body are one object."""
    same: dict[tuple[str, int, int], Code] = {}
    for code, body in zip(codes, bodies, strict=True):
        key = code.name, code.args, id(body)
        if key not in same:
            same[key] = replace(code, body=body)
        yield same[key]


class _Instructions(dict[str, Instruction]):
    """Instructions by the line that each is; ValueError for a line that is none, or is not laid out as `to_wsa` does.
    Parts of a line are known by their places: of the grammar only the terminals are asked for."""

    def __missing__(self, line: str) -> Instruction:
        match, builder = _line().fullmatch(line), _parser()[0]
        if match is None:
            raise ValueError(line)
        items: list[Any] = [_opcode(match["opcode"])]
        if match["writes"]:
            items.append(builder.operands(match["writes"].split(", ")))
        if match["reads"]:
            items.append(builder.reads([builder.operands(match["reads"].split(", "))]))
        for attr in _attribute().finditer(match["attrs"]):
            items.append(("attr", builder.one(attr[0][1:], partial(_read_attribute, attr))))
        self[line] = builder.instruction(items)
        return self[line]


@lru_cache(maxsize=256)
def _opcode(text: str) -> lark.Token:
    return lark.Token("NAME", text)


def _read_attribute(match: re.Match[str], _: str) -> tuple[str, Any]:
    kind = match.lastgroup or ""
    return match["KEY"][:-1], _value(lark.Token(kind, match[kind]))


@cache
def _terminals() -> dict[str, str]:
    return {t.name: t.pattern.to_regexp() for t in _parser()[1].terminals}


@cache
def _line() -> re.Pattern[str]:
    """A line of a procedure."""
    name, operand, attr = _terminals()["NAME"], _terminals()["OPERAND"], _ungrouped(_attribute().pattern)
    operands = f"{operand}(?:, {operand})*"
    return re.compile(
        f" *(?P<opcode>{name})(?: (?P<writes>{operands}))?(?: <- (?P<reads>{operands}))?(?P<attrs>(?:{attr})*)"
    )


@cache
def _attribute() -> re.Pattern[str]:
    """An attribute; its last group is the terminal of its value, in the order in which the lexer tries them."""
    kinds = ("FLOAT", "BOOL", "INT", "COLUMN", "STRING")
    values = "|".join(f"(?P<{kind}>{_terminals()[kind]})" for kind in kinds)
    return re.compile(f" (?P<KEY>{_terminals()['KEY']})(?:{values})(?= |$)")


def _ungrouped(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


class _Build(lark.Transformer[lark.Token, Any]):
    """Builds bottom-up while parsing, so that no tree is ever held.

    Equal operands, attributes and instructions are one object (`same`, by their texts and parts): roles have most of
    theirs in common, and checks look at each once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.same: dict[object, Any] = {}

    def start(self, items: list[Any]) -> tuple[tuple[Program, ...], tuple[ProgramStep, ...]]:
        programs = tuple(i for i in items if isinstance(i, Program))
        return programs, tuple(items[len(programs) :])

    def role(self, items: list[Any]) -> Program:
        numbers = [int(i) for i in items if isinstance(i, lark.Token)]
        return Program(numbers[0], tuple(items[len(numbers) :]), *numbers[1:])

    def procedure(self, items: list[Any]) -> Code:
        return Code(items[0], int(items[1]), tuple(items[2:]))

    def instruction(self, items: list[Any]) -> Instruction:
        opcode, rest = items[0], items[1:]
        writes = rest.pop(0) if rest and isinstance(rest[0], tuple) and rest[0][0] == "operands" else ((), ())
        reads = rest.pop(0) if rest and rest[0][0] == "reads" else ((), ())
        parts = (*writes[1], *reads[1], *(v for _, v in rest))
        key = str(opcode), len(writes[1]), tuple(map(id, parts))
        if key not in self.same:
            instruction = Instruction(key[0], tuple(writes[1]), tuple(reads[1]), tuple(v for _, v in rest))
            if mistake := _mistake(instruction):
                raise fail(ErrorCode.BAD_IR, mistake, _span(opcode))
            self.same[key] = instruction
        return cast(Instruction, self.same[key])

    def operands(self, items: Sequence[str]) -> tuple[str, tuple[Operand, ...]]:
        return "operands", tuple(self.one(t, _operand) for t in items)

    def reads(self, items: list[Any]) -> tuple[str, tuple[Operand, ...]]:
        return "reads", items[0][1]

    def attr(self, items: list[lark.Token]) -> tuple[str, tuple[str, Any]]:
        return "attr", self.one(items[0] + items[1], lambda _: (str(items[0])[:-1], _value(items[1])))

    def one(self, text: str, make: Callable[[Any], T]) -> T:
        """The one object of all that have this text."""
        if text not in self.same:
            self.same[str(text)] = make(text)
        return cast(T, self.same[text])

    def step(self, items: list[Any]) -> ProgramStep:
        return tuple(items)

    def call(self, items: list[Any]) -> ProgramCall:
        return ProgramCall(items[0], tuple(items[1:]))

    def loop(self, items: list[Any]) -> ProgramLoop:
        return ProgramLoop(items[0], int(items[1]), tuple(items[2:]))

    def address(self, items: list[Any]) -> Address:
        return Address(int(items[0]), tuple(items[1:]))

    def indexed(self, items: list[Any]) -> tuple[Affine, int]:
        return items[1], int(items[0])

    def index(self, items: list[Any]) -> Affine:
        modulus = items.pop()[1] if isinstance(items[-1], tuple) and items[-1][0] == "%" else 0
        base = sum(int(i) for i in items if isinstance(i, lark.Token))
        return Affine(base, tuple(i[1] for i in items if isinstance(i, tuple)), modulus)

    def term(self, items: list[Any]) -> tuple[str, tuple[str, int]]:
        return "*", (items[-1], int(items[0]) if len(items) == 2 else 1)

    def modulus(self, items: list[lark.Token]) -> tuple[str, int]:
        return "%", int(items[0])

    def name(self, items: list[lark.Token]) -> str:
        (token,) = items
        return _string(token) if token.type == "STRING" else str(token)


@cache
def _parser() -> tuple[_Build, lark.Lark]:
    builder = _Build()
    return builder, lark.Lark(
        grammar.text("wsa"), parser="lalr", transformer=builder, maybe_placeholders=False,
        start="start",
    )  # fmt: skip


def _operand(text: str) -> Operand:
    operand = _read_operand(str(text))
    if isinstance(operand, str):
        raise fail(ErrorCode.BAD_IR, operand, _span(text))
    return operand


def _read_operand(text: str) -> Operand | str:
    """The operand, or the text of an error."""
    match = _OPERAND.fullmatch(text)
    assert match is not None, text
    if match["dtype"] not in tuple(DType):
        return f"`{match['dtype']}` is not an element type: {', '.join(DType)}"
    try:
        shape = _integers(match["shape"])
        strides = contiguous_strides(shape) if match["strides"] is None else _integers(match["strides"])
    except ValueError:
        return f"`{text}`: shape and strides are integers with commas between them"
    if len(shape) != len(strides) or any(n < 0 for n in shape):
        return f"`{text}`: each dimension takes one size and one stride"
    arg = -1 if match["arg"] is None else int(match["arg"])
    return Operand(arg, _field(match["offset"]), shape, strides, DType(match["dtype"]))


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",")) if text else ()


def _field(text: str) -> Field:
    return Column(int(text[1:])) if text.startswith("$") else int(text or "0")


def _value(token: lark.Token) -> Any:
    match token.type:
        case "BOOL":
            return token == "true"
        case "INT":
            return int(token)
        case "FLOAT":
            return float(token)
        case "COLUMN":
            return Column(int(token[1:]))
        case _:
            return _string(token)


def _string(token: lark.Token) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise fail(ErrorCode.BAD_IR, "a string is written as in JSON", _span(token)) from None


def _mistake(x: Instruction) -> str:
    """The text of an error in the instruction, or the empty text."""
    row = INSTRUCTIONS.get(x.opcode)
    if row is None:
        return f"unknown opcode `{x.opcode}`"
    writes, reads = len(row.writes.split()), len(row.reads.split())
    if (len(x.writes), len(x.reads)) != (writes, reads):
        return f"`{x.opcode}` writes {writes} and reads {reads}, not {len(x.writes)} and {len(x.reads)}"
    names = tuple(name for name, _ in x.attrs)
    if not row.takes(names):
        return f"`{x.opcode}` has the attributes ({' '.join(row.attr_names)}), not ({' '.join(names)})"
    return ""


def _span(token: str) -> Span:
    """The place of a token; of other texts none."""
    if not isinstance(token, lark.Token):
        return Span(None, 0, 0, 0, 0)
    return Span(None, token.start_pos or 0, token.end_pos or 0, token.line or 0, token.column or 0)


def _placed(error: CompileError, source: Source) -> CompileError:
    """The error with its span in the source, which the builder cannot see."""
    d = error.diagnostics[0]
    s = d.label.span
    return fail(d.code, d.message, Span(source, s.start, s.end, s.line, s.column))


def _unexpected(error: UnexpectedInput, source: Source) -> CompileError:
    text = source.text
    ended = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    start = len(text) if ended or error.pos_in_stream is None else error.pos_in_stream
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    words = text[start : start + 20].split()
    message = f"unexpected `{words[0]}`" if words else "unexpected end of the text"
    return fail(ErrorCode.BAD_IR, message, Span(source, start, min(start + 1, len(text)), line, column))
