"""Construction of the syntax tree: one small function per rule of the grammar, applied bottom-up by `parse`.

Children arrive built: names as `Name`, numbers as `Number`, strings as `Text`, operators and units as `str`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Span
from wscc.frontend import ast
from wscc.frontend.builtins import SETTINGS
from wscc.frontend.comments import Attached

MAX_DEPTH: Final = 100  # levels of an expression; dataclass equality and the printer recurse over them
_MAX_DIGITS: Final = 40
_MAX_EXPONENT: Final = 300
_MAX_WORD: Final = 100
_MAX_TEXT: Final = 1000

Children = list[Any]  # nodes built from the parts of a rule, in the types that the grammar implies


@dataclass(slots=True)
class Builder:
    """The state that the rule functions share: comments, the depth of each expression, mistakes so far."""

    comments: Attached
    mistakes: list[Diagnostic] = field(default_factory=list)
    _depths: dict[int, int] = field(default_factory=dict)

    def trivia(self, span: Span) -> ast.Trivia:
        """The comments of the line node that begins at the span."""
        return self.comments.trivia.get(span.start, ast.NO_TRIVIA)

    def body(self, lines: Children, span: Span) -> ast.Body[Any]:
        """A body with its lines and the comments inside its braces."""
        opening, tail = self.comments.bodies.get(span.start, ("", ()))
        return ast.Body(tuple(lines), opening, tail, span=span)

    def mistake(self, code: Code, message: str, span: Span, help: str = "") -> None:
        """Note a mistake, and go on."""
        self.mistakes.append(Diagnostic(code, message, Label(span), help=help))

    def deeper(self, node: ast.Expr, *parts: ast.Expr) -> ast.Expr:
        """The new expression, with its depth noted. Raises W003 where more than `MAX_DEPTH` are nested."""
        depth = 1 + max((self._depths.get(id(p), 0) for p in parts), default=0)
        # Keyed by identity: every node stays alive as a child of `node` while this builder is used.
        self._depths[id(node)] = depth
        if depth > MAX_DEPTH:
            message = f"an expression has more than {MAX_DEPTH} operations inside one another"
            help = "give its parts names of their own"
            raise CompileError(Diagnostic(Code.LIMIT, message, Label(node.span), help=help))
        return node


def number(b: Builder, text: str, span: Span) -> ast.Number:
    """A literal; W003 is noted beyond the bounds, which keep every later computation with it small."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > _MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > _MAX_EXPONENT:
        limits = f"at most {_MAX_DIGITS} digits, exponents up to {_MAX_EXPONENT}"
        b.mistake(Code.LIMIT, "a number is too long or too large", span, limits)
        return ast.Number("1", span=span)
    return ast.Number(text, span=span)


def name(b: Builder, text: str, span: Span) -> ast.Name:
    """A name; W003 is noted for one that is too long."""
    if len(text) > _MAX_WORD:
        b.mistake(Code.LIMIT, f"a name has {len(text):,} characters", span, f"the limit is {_MAX_WORD}")
    return ast.Name(text[:_MAX_WORD], span=span)


def string(b: Builder, text: str, span: Span) -> ast.Text:
    """A string literal without its quotes; W003 is noted for one that is too long."""
    if len(text) > _MAX_TEXT:
        b.mistake(Code.LIMIT, f"a text has {len(text):,} characters", span, f"the limit is {_MAX_TEXT}")
    return ast.Text(text[1:-1], span=span)


# ---- the wafer


def _wafer(b: Builder, c: Children, span: Span) -> ast.Wafer:
    return ast.Wafer(c[0], None, c[1], span=span, trivia=b.trivia(span))


def _preset_wafer(b: Builder, c: Children, span: Span) -> ast.Wafer:
    return ast.Wafer(c[0], c[1], c[2] if len(c) > 2 else None, span=span, trivia=b.trivia(span))


def _mesh(b: Builder, c: Children, span: Span) -> ast.Mesh:
    *planes, rows, columns = (int(n[:_MAX_DIGITS]) for n in c[0].split("x"))
    torus = c[1] if len(c) > 1 else None
    return ast.Mesh(rows, columns, torus, planes[0] if planes else None, span=span, trivia=b.trivia(span))


def _all_to_all(b: Builder, c: Children, span: Span) -> ast.AllToAll:
    if c[0].value.denominator != 1:
        b.mistake(Code.NUMBER, f"a number of dies is an integer, not `{c[0].text}`", c[0].span)
    return ast.AllToAll(c[0], c[1] if len(c) > 1 else None, span=span, trivia=b.trivia(span))


def _system(b: Builder, c: Children, span: Span) -> ast.System:
    return ast.System(c[0], c[1], span=span, trivia=b.trivia(span))


def _wafers(b: Builder, c: Children, span: Span) -> ast.Wafers:
    rows, columns, *more = (int(n[:_MAX_DIGITS]) for n in c[0].split("x"))
    if more:
        b.mistake(Code.NUMBER, "wafers lie in rows and columns alone", span)
    torus = c[2] if len(c) > 2 else None
    return ast.Wafers(rows, columns, c[1], torus, span=span, trivia=b.trivia(span))


def _network(b: Builder, c: Children, span: Span) -> ast.Network:
    fields = ast.Fields("network", c[-1], span=span)
    return ast.Network(c[0], c[1] if len(c) > 2 else None, fields, span=span, trivia=b.trivia(span))


def _ports(b: Builder, c: Children, span: Span) -> ast.Ports:
    for n in c:
        if isinstance(n, ast.Number) and n.value.denominator != 1:
            b.mistake(Code.NUMBER, f"a place is an integer, not `{n.text}`", n.span)
    word = c[0] if isinstance(c[0], ast.Name) else None
    return ast.Ports(word, () if word else tuple(c), span=span, trivia=b.trivia(span))


def _torus(b: Builder, c: Children, span: Span) -> ast.Torus:
    return ast.Torus(c[0] if c else None, span=span)


def _fields(kind: str) -> Rule:
    def build(b: Builder, c: Children, span: Span) -> ast.Fields:
        return ast.Fields(kind, c[0], span=span, trivia=b.trivia(span))

    return build


def _field(b: Builder, c: Children, span: Span) -> ast.Field:
    last = c[2] if len(c) > 2 else None
    rate, of = (None, last) if isinstance(last, ast.Number) else (last, None)
    return ast.Field(c[0], c[1], rate, of, span=span, trivia=b.trivia(span))


def _quantity(b: Builder, c: Children, span: Span) -> ast.Quantity:
    return ast.Quantity(c[0], c[1] if len(c) > 1 else "", span=span)


def _coord(b: Builder, c: Children, span: Span) -> ast.Coord:
    for n in c:
        if n.value.denominator != 1:
            b.mistake(Code.NUMBER, f"a coordinate is an integer, not `{n.text}`", n.span)
    return ast.Coord.at([int(n.value) for n in c], span)


def _die_class(b: Builder, c: Children, span: Span) -> ast.DieClass:
    fields = ast.Fields("die", c[-1], span=span)
    return ast.DieClass(c[0], c[-2], fields, span=span, trivia=b.trivia(span))


def _dead_die(b: Builder, c: Children, span: Span) -> ast.DeadDie:
    return ast.DeadDie(c[0], span=span, trivia=b.trivia(span))


def _dead_link(b: Builder, c: Children, span: Span) -> ast.DeadLink:
    return ast.DeadLink(c[0], c[1], span=span, trivia=b.trivia(span))


# ---- the model


def _model(b: Builder, c: Children, span: Span) -> ast.Model:
    parameters = c[1] if len(c) > 2 else ()
    return ast.Model(c[0], parameters, c[-1], span=span, trivia=b.trivia(span))


def _block(b: Builder, c: Children, span: Span) -> ast.Block:
    return ast.Block(c[0], c[1], c[2], span=span, trivia=b.trivia(span))


def _parameter(b: Builder, c: Children, span: Span) -> ast.Parameter:
    return ast.Parameter(c[0], c[1] if len(c) > 1 else None, span=span)


def _input(b: Builder, c: Children, span: Span) -> ast.Input:
    return ast.Input(c[0], c[1], c[2], span=span, trivia=b.trivia(span))


def _param(b: Builder, c: Children, span: Span) -> ast.Param:
    return ast.Param(*c, span=span, trivia=b.trivia(span))


def _init(b: Builder, c: Children, span: Span) -> ast.Init:
    return ast.Init(c[0], c[1] if len(c) > 1 else None, span=span)


def _assign(b: Builder, c: Children, span: Span) -> ast.Assign:
    return ast.Assign(tuple(c[:-1]), c[-1], span=span, trivia=b.trivia(span))


def _repeat(b: Builder, c: Children, span: Span) -> ast.Repeat:
    return ast.Repeat(c[0], c[1], c[2], span=span, trivia=b.trivia(span))


def _loss(b: Builder, c: Children, span: Span) -> ast.Loss:
    return ast.Loss(c[0], span=span, trivia=b.trivia(span))


def _return(b: Builder, c: Children, span: Span) -> ast.Return:
    return ast.Return(tuple(c), span=span, trivia=b.trivia(span))


# ---- expressions


def _chain(b: Builder, c: Children, span: Span) -> ast.Expr:
    """`a - b + c` is `(a - b) + c`."""
    left: ast.Expr = c[0]
    for op, right in zip(c[1::2], c[2::2], strict=True):
        place = Span(span.source, left.span.start, right.span.end, left.span.line, left.span.column)
        left = b.deeper(ast.Binary(op, left, right, span=place), left, right)
    return left


def _negative(b: Builder, c: Children, span: Span) -> ast.Expr:
    return b.deeper(ast.Negative(c[-1], span=span), c[-1])


def _keyword(b: Builder, c: Children, span: Span) -> ast.Keyword:
    return ast.Keyword(c[0], c[1], span=span)


def _call(b: Builder, c: Children, span: Span) -> ast.Expr:
    keywords = tuple(a for a in c[1:] if isinstance(a, ast.Keyword))
    args = tuple(a for a in c[1:] if not isinstance(a, ast.Keyword))
    if keywords and any(a.span.start > keywords[0].span.start for a in args):
        misplaced = next(a for a in args if a.span.start > keywords[0].span.start)
        message = "an argument without a name follows one with a name"
        b.mistake(Code.SYNTAX, message, misplaced.span, "move it forward")
    return b.deeper(ast.Call(c[0], args, keywords, span=span), *args, *(k.value for k in keywords))


# ---- training


def _train(b: Builder, c: Children, span: Span) -> ast.Train:
    return ast.Train(c[0], c[1], c[2], span=span, trivia=b.trivia(span))


def _setting(key: str) -> Rule:
    def build(b: Builder, c: Children, span: Span) -> ast.Setting:
        return ast.Setting(key, c[0], span=span, trivia=b.trivia(span))

    return build


def _several(key: str, node_type: Callable[..., ast.SettingValue]) -> Rule:
    def build(b: Builder, c: Children, span: Span) -> ast.Setting:
        return ast.Setting(key, node_type(tuple(c), span=span), span=span, trivia=b.trivia(span))

    return build


def _parallel(b: Builder, c: Children, span: Span) -> ast.Setting:
    axes = tuple(x for x in c if isinstance(x, ast.Axis))
    pins = tuple(x for x in c if isinstance(x, ast.Pin))
    return ast.Setting("parallel", ast.Strategy(axes, pins, span=span), span=span, trivia=b.trivia(span))


def _group(b: Builder, c: Children, span: Span) -> ast.Group:
    return ast.Group(c[0], c[1], span=span, trivia=b.trivia(span))


def _rate(b: Builder, c: Children, span: Span) -> ast.Rate:
    return ast.Rate(c[0], c[-1], len(c) > 2, span=span, trivia=b.trivia(span))


def _file(b: Builder, c: Children, span: Span) -> ast.File:
    _, tail = b.comments.bodies.get(-1, ("", ()))
    return ast.File(tuple(c), tail, span=span)


Rule = Callable[[Builder, Children, Span], object]

RULES: Final[dict[str, Rule]] = {
    "start": _file,
    # the wafer
    "wafer": _wafer, "preset_wafer": _preset_wafer, "wafer_body": Builder.body, "mesh": _mesh,
    "all_to_all": _all_to_all, "switch": _fields("switch"), "network": _network,
    "torus": _torus, "system": _system, "system_body": Builder.body, "wafers": _wafers,
    "joined": _fields("joined"), "ports": _ports,
    "die": _fields("die"), "link": _fields("link"), "fields": Builder.body, "field": _field,
    "of": lambda b, c, span: c[0],
    "quantity": _quantity, "coord": _coord, "dead_die": _dead_die, "die_class": _die_class, "dead_link": _dead_link,
    # the model
    "model": _model, "block": _block, "parameters": lambda b, c, span: tuple(c), "parameter": _parameter,
    "body": Builder.body, "input": _input, "param": _param, "dims": lambda b, c, span: tuple(c),
    "init": _init, "assign": _assign, "repeat": _repeat, "loss": _loss, "return": _return,
    # expressions
    "expr": _chain, "product": _chain, "negative": _negative, "keyword": _keyword,
    "call": _call, "choice": _call,
    # training
    "train": _train, "train_body": Builder.body,
    **{k: _setting(k) for k in SETTINGS},
    "lr_schedule": _several("lr_schedule", ast.LrSchedule), "dtype": _several("dtype", ast.DTypes),
    "parallel": _parallel, "stages": _several("stages", ast.Stages),
    "group": _group, "rates": Builder.body, "rate": _rate,
    "share": _quantity,
    "role": lambda b, c, span: ast.Role(c[0], c[1], span=span),
    "axis": lambda b, c, span: ast.Axis(c[0], c[1], span=span),
    "pin": lambda b, c, span: ast.Pin(c[0], c[1], span=span),
}  # fmt: skip

BODIES: Final = frozenset({"wafer_body", "system_body", "fields", "body", "train_body", "rates"})
LINES: Final = frozenset(
    {
        "wafer",
        "preset_wafer",
        "mesh",
        "die",
        "die_class",
        "link",
        "field",
        "dead_die",
        "dead_link",
        "model",
        "block",
    }
    | {"system", "wafers", "joined", "ports", "network", "all_to_all"}
    | {"input", "param", "assign", "repeat", "loss", "return", "train", "group", "rate", *SETTINGS}
)
WITHOUT_BLANKS: Final = frozenset(
    {"field", "rate", "wafer", "preset_wafer", "system", "model", "block", "train"}
)
