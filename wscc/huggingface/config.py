"""A `config.json` as checked fields, read by name and kind; an error has its place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from wscc.diagnostics import NO_SPAN, Code, CompileError, Source, Span, fail
from wscc.files.json import JsonMistake, NumberMistake, RepeatedName, TooDeep, parse_json
from wscc.frontend.scan import span_at

T = TypeVar("T")
_ANOTHER: Final = "import another variant of the model, or change the field if you mean to train that"
_AS_IT_CAME: Final = "give the config.json of a checkpoint as it came"
_MAX_SIZE: Final = 2**31 - 1  # of an integer field; no model comes near
_KINDS: Final[dict[type, str]] = {
    bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object",
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """The fields of an object; a field that is null counts as missing. `asked` are the names that were read."""

    source: Source
    fields: dict[str, Any]
    asked: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """True if the config has the field, which then counts as read."""
        self.asked.add(name)
        return self.fields.get(name) is not None

    def size(self, *names: str, default: int | None = None) -> int:
        """A positive integer, under any of the names; W010 if there is none and no default."""
        values = {n: self._size(n) for n in names if self.has(n)}
        if not values:
            if default is None:
                raise self.missing(names[0])
            return default
        return self._same(values)

    def _size(self, name: str) -> int:
        value = self.fields[name]
        if type(value) is not int or not 0 < value <= _MAX_SIZE:
            raise self._wrong(Code.NUMBER, name, "an integer from 1 to 2^31 - 1", value)
        return value

    def positive(self, name: str, default: float) -> float:
        """A finite number above 0."""
        value = self.fields[name] if self.has(name) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_positive(value):
            raise self._wrong(Code.NUMBER, name, "a number between 1e-30 and 1e30", value)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.fields[name] if self.has(name) else default
        if not isinstance(value, bool):
            raise self._wrong(Code.CHOICE, name, "true or false", value)
        return value

    def word(self, *names: str, default: str | None = None) -> str:
        """A text, under any of the names; W010 if there is none and no default."""
        values = {n: self._word(n) for n in names if self.has(n)}
        if not values and default is None:
            raise self.missing(names[0])
        return self._same(values) if values else str(default)

    def _word(self, name: str) -> str:
        value = self.fields[name]
        if not isinstance(value, str):
            raise self._wrong(Code.CHOICE, name, "a text", value)
        return value

    def _same(self, values: Mapping[str, T]) -> T:
        """The value that fields of one meaning agree on; W105 if they do not."""
        (first, value), *others = values.items()
        for name, other in others:
            if other != value:
                self.refuse(
                    name,
                    f"`{name}` is {_shown(other)} and `{first}`, of the same meaning, is {_shown(value)}",
                )
        return value

    def section(self, name: str) -> Config | None:
        """The fields of an inner object, or None; its errors have the place of its name."""
        if not self.has(name):
            return None
        value = self.fields[name]
        if not isinstance(value, dict):
            raise self._wrong(Code.CHOICE, name, "an object", value)
        return Config(self.source, value)

    def _wrong(self, code: Code, name: str, expected: str, value: object) -> CompileError:
        return fail(
            code, f"`{name}` must be {expected}, not {_shown(value)}", self.span(name), help=_AS_IT_CAME
        )

    def missing(self, name: str) -> CompileError:
        return fail(
            Code.MISSING, f"`{self.source.name}` has no field `{name}`",
            help=f'add `"{name}": ...`, or give the config.json that came with the checkpoint',
        )  # fmt: skip

    def refuse(self, name: str, message: str, help: str = _ANOTHER) -> NoReturn:
        """Raise W105 at a field."""
        raise fail(Code.CONFIG, message, self.span(name), help=help)

    def only(self, name: str, value: bool, why: str) -> None:
        """Refuse a flag that is not `value`, which is its default."""
        if self.flag(name, value) is not value:
            self.refuse(name, f"`{name}` is {_shown(not value)}, which cannot be said: {why}")

    def span(self, name: str) -> Span:
        """The span of the name of the field."""
        match = re.search(rf'"{re.escape(name)}"(?=\s*:)', self.source.text)
        return span_at(self.source, *match.span()) if match else NO_SPAN


def _is_positive(value: float) -> bool:
    return 1e-30 <= value <= 1e30  # false for NaN and infinities


def _shown(value: object) -> str:
    if isinstance(value, list | dict):
        return _KINDS[type(value)]
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def read_config(source: Source) -> Config:
    """The config in a source. `CompileError` W001 if it is not JSON, W007 for a field given twice, W003 for an object
    nested too deep, W005 for a number that is not finite, W105 if it is no object."""
    try:
        value = parse_json(source.text)
    except JsonMistake as problem:
        raise _mistaken(source, problem) from None
    if not isinstance(value, dict):
        raise fail(
            Code.CONFIG, f"`{source.name}` holds {_KINDS.get(type(value), 'nothing')}, not an object of fields",
            help=_AS_IT_CAME,
        )  # fmt: skip
    return Config(source, value)


def _mistaken(source: Source, problem: JsonMistake) -> CompileError:
    match problem:
        case RepeatedName(name=name):
            place = Config(source, {}).span(name)
            return fail(Code.DUPLICATE, str(problem), place, help="remove one of the two")
        case TooDeep():
            return fail(Code.LIMIT, f"`{source.name}` is nested too deep", help=_AS_IT_CAME)
        case NumberMistake():
            words = f"`{source.name}` holds a number that is not finite or too long: {problem}"
            return fail(Code.NUMBER, words, help=_AS_IT_CAME)
        case _:
            place = span_at(source, problem.position, problem.position + 1)
            return fail(Code.SYNTAX, f"`{source.name}` is not JSON: {problem}", place, help=_AS_IT_CAME)
