"""The diagnosis of syntax errors: the writer's probable mistake, from the place at which the parser stopped.

`expected` holds the words that could have stood there: literal ones as written (`batch`, `{`), classes of
words in capitals (NAME, NUMBER, STRING, UNIT, MESH, END).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wscc.diagnostics import Code, Diagnostic, Label, Source
from wscc.diagnostics.spelling import did_you_mean, spelling_of
from wscc.frontend.builtins import OLDER_SPELLINGS, SETTINGS
from wscc.frontend.scan import WORDS, span_at
from wscc.frontend.units import unit_meant

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_/]*")
_CLASSES: Final = {
    "NAME": "a name", "NUMBER": "a number", "STRING": 'a text in `"`', "UNIT": "a unit",
    "MESH": "a size such as `4 x 8`", "END": "the end of the file", "_DECAY": "`decay off`",
}  # fmt: skip
_OPERATORS: Final = frozenset("+-*/@")
_STATEMENT: Final = frozenset({"input", "param", "repeat", "loss", "return", "NAME"})
_EXPRESSION: Final = frozenset({"NAME", "NUMBER", "-", "("})
_MESH: Final = re.compile(r"\bmesh\s+\d+(\s*x\s*\d+){2}\s*\Z")
_SETTING: Final = frozenset({*SETTINGS, "group"})


@dataclass(frozen=True, slots=True)
class Stop:
    """The place at which the parser stopped: the word there (empty at the end of the text) and those around it."""

    source: Source
    start: int
    expected: frozenset[str]

    @property
    def word(self) -> str:
        word = WORDS.match(self.source.text, self.start)
        return word.group() if word else ""

    @property
    def next(self) -> str:
        """The word behind it; empty at the end of the text."""
        rest = WORDS.search(self.source.text, self.start + len(self.word))
        return rest.group() if rest else ""

    def before(self) -> list[tuple[int, str]]:
        """The three words before the stop (fewer at the start), comments left out, nearest first."""
        words = [
            (w.start(), w.group())
            for w in WORDS.finditer(self.source.text, 0, self.start)
            if not w.group().startswith("#")
        ]
        return words[:-4:-1]

    @property
    def previous(self) -> str:
        """The word before it; empty at the start of the text."""
        return next((w for _, w in self.before()), "")

    def error(
        self, message: str, label: str = "", help: str = "", *, code: Code = Code.SYNTAX, word: str = ""
    ) -> Diagnostic:
        """A diagnostic that marks `word`, or the word here."""
        span = span_at(self.source, self.start, self.start + max(1, len(word or self.word)))
        return Diagnostic(code, message, Label(span, label), help=help)


def diagnose(stop: Stop) -> Diagnostic:
    """The first mistake in the table that fits, or a plain account of what was expected."""
    for recognise in _MISTAKES:
        if diagnostic := recognise(stop):
            return diagnostic
    return _unexpected(stop)


def _unclosed_string(stop: Stop) -> Diagnostic | None:
    if stop.word.startswith('"') and (len(stop.word) == 1 or not stop.word.endswith('"')):
        return stop.error("this text is never closed", help='write `"` at its end, on the same line')
    return None


def _foreign_character(stop: Stop) -> Diagnostic | None:
    helps = {
        ";": "statements need nothing between them: remove it",
        "'": 'a text stands in double quotes: `"..."`',
        "^": "there is no power: multiply, or write the number",
        "%": "there is no remainder: divisions must be exact",
        "=": "one `=` gives a value to a name" if stop.previous == "=" else "",
        "*": "there is no power: multiply, or write the number" if stop.previous == "*" else "",
        ".": "write a digit before the point, as in `0.5`" if stop.next[:1].isdigit() else "",
    }
    if help := helps.get(stop.word, ""):
        return stop.error(f"unexpected `{stop.word}`", help=help)
    return None


def _mesh(stop: Stop) -> Diagnostic | None:
    if stop.word.startswith("x") and _MESH.search(stop.source.text[: stop.start]):
        help = "write it as in `mesh 4 x 8` or `mesh 4 x 4 x 4`"
        return stop.error("a mesh has two dimensions or three", "one more than three", help)
    if "MESH" in stop.expected:
        return stop.error("`mesh` needs rows and columns", "expected a size", "write it as in `mesh 4 x 8`")
    return None


def _repeat(stop: Stop) -> Diagnostic | None:
    """`repeat layer 2`: the name before the count; `repeat 2 {`: no name."""
    words = [word for _, word in stop.before()]
    if words[1:2] != ["repeat"]:
        return None
    if stop.word.isdigit():
        help = f"write `repeat {stop.word} as {words[0]}`"
        return stop.error("the count of `repeat` stands before the name of its turns", help=help)
    if stop.word == "{":
        return stop.error("the turns of `repeat` need a name", help=f"write `repeat {words[0]} as block {{`")
    return None


def _train(stop: Stop) -> Diagnostic | None:
    """`train {`, or `train gpt {`: what is trained, and where."""
    words = [word for _, word in stop.before()]
    if stop.word == "{" and "train" in words[:2]:
        return stop.error("`train` needs a model and a wafer", help="write it as in `train gpt on tray {`")
    return None


def _unit_or_comma(stop: Stop) -> Diagnostic | None:
    """The mistake behind a number of a field: `80 GBs`, or `tile 128 sram 80 MB`."""
    match = _WORD.match(stop.source.text, stop.start)
    if not match:
        return None
    word = match.group()
    unit = unit_meant(word) if "UNIT" in stop.expected else None
    if unit is None and stop.expected >= {",", "}"} and stop.next[:1].isdigit():
        return stop.error("expected `,` between fields", f"`,` is missing before `{word}`")
    if "UNIT" not in stop.expected:
        return None
    help = f"did you mean `{unit}`?" if unit else "write it as in `80 MB`, `4 TB/s`, `1800 TFLOP/s`, `200 ns`"
    return stop.error(f"unknown unit `{word}`", help=help, code=Code.UNIT, word=word)


def _misspelled_keyword(stop: Stop) -> Diagnostic | None:
    words = sorted(w for w in stop.expected if w.islower())
    if not _WORD.fullmatch(stop.word) or not words:
        return None
    present = {w: w for w in words} | {old: new for old, new in OLDER_SPELLINGS.items() if new in words}
    if meant := spelling_of(stop.word, present):
        help = f"did you mean `{present[meant]}`?"
        return stop.error(f"unknown word `{stop.word}`", help=help, code=Code.UNKNOWN_KEY)
    if stop.expected >= _SETTING:
        message = f"`train` has no setting `{stop.word}`"
        return stop.error(message, help=f"settings: {', '.join(sorted(_SETTING))}", code=Code.UNKNOWN_KEY)
    return None


def _misspelled_statement(stop: Stop) -> Diagnostic | None:
    """`parm w : ...` stops at the second word, since the first could have been a name."""
    before = stop.before()
    if "=" not in stop.expected or not before or not (_WORD.fullmatch(stop.word) or stop.word == "("):
        return None
    start, word = before[0]
    help = did_you_mean(word, _STATEMENT - {"NAME"})
    if not help or word in _STATEMENT:
        return None
    earlier = Stop(stop.source, start, stop.expected)
    return earlier.error(f"unknown word `{word}`", help=help, code=Code.UNKNOWN_KEY)


def _unfinished_line(stop: Stop) -> Diagnostic | None:
    """`x = a +` and, on the next line, `y = b`: the parser only stops at the second `=`."""
    before = stop.before()
    if stop.word != "=" or len(before) < 2 or "=" in stop.expected:
        return None
    (name_start, name), (start, operator) = before[:2]
    if operator not in _OPERATORS | {"=", ","} or "\n" not in stop.source.text[start:name_start]:
        return None
    earlier = Stop(stop.source, start, stop.expected)
    help = f"the next line, `{name} = ...`, begins another statement"
    return earlier.error(f"expected an expression after `{operator}`", "the line ends here", help)


def _keyword_as_name(stop: Stop) -> Diagnostic | None:
    if stop.word == "=" and stop.previous in _STATEMENT - {"NAME"}:
        help = f"a statement cannot assign to `{stop.previous}`: choose another name"
        return stop.error(f"`{stop.previous}` begins a statement of its own", help=help)
    return None


def _unexpected(stop: Stop) -> Diagnostic:
    expected = _words(stop.expected)
    if not stop.word:
        words = list(WORDS.finditer(stop.source.text))
        stop = Stop(stop.source, words[-1].end() if words else 0, stop.expected)
        return stop.error(f"expected {expected}, found the end of the text", "the text ends here")
    return stop.error(f"expected {expected}, found `{stop.word[:40]}`", f"expected {expected}")


def _words(expected: frozenset[str]) -> str:
    """`a`, `b` or `c`, with the usual groups said in one word."""
    rest, groups = set(expected), []
    for group, name in ((_SETTING, "the next setting"), (_STATEMENT, "the next statement")):
        if group <= rest:
            rest -= group
            groups.append(name)
    if rest >= _EXPRESSION:
        rest -= _EXPRESSION
        groups.append("an expression")
    if rest >= _OPERATORS:
        rest -= _OPERATORS
        groups.append("an operator")
    words = sorted(_CLASSES.get(w, f"`{w}`") for w in rest) + groups
    if not words:
        return "nothing more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_MISTAKES: Final[tuple[Callable[[Stop], Diagnostic | None], ...]] = (
    _unclosed_string,
    _foreign_character,
    _mesh,
    _repeat,
    _train,
    _unit_or_comma,
    _keyword_as_name,
    _unfinished_line,
    _misspelled_statement,
    _misspelled_keyword,
)
