"""The canonical text of a syntax tree.

Invariants: `parse(fmt(tree)) == tree`, comments included, and `fmt(parse(fmt(tree))) == fmt(tree)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never

from wscc.frontend import ast

_WIDTH: Final = 100  # a `die { ... }` longer than this is printed one field to a line
_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2}
_HIGHEST: Final = 4
_HEADS: Final = {"joined": "joined edge to edge"}


def fmt(file: ast.File) -> str:
    """The canonical text, with a final newline; empty for an empty file."""
    out: list[str] = []
    for item in file.items:
        if out:
            out.append("")
        out += _line(item)
    if file.tail:
        out += ["", *file.tail] if out else file.tail
    return "".join(f"{text}\n" for text in out)


def _line(node: ast.Line) -> Iterator[str]:
    """The lines of a node with its comments; a blank line before it is left to the body around it."""
    yield from node.trivia.before
    *first, last = _code(node)
    yield from first
    yield f"{last}  {node.trivia.after}" if node.trivia.after else last


def _code(node: ast.Line) -> list[str]:
    match node:
        case ast.Wafer():
            preset = f' = preset "{node.preset.value}"' if node.preset else ""
            return _braced(f"wafer {node.name.id}{preset}", node.body)
        case ast.System():
            return _braced(f"system {node.name.id}", node.body)
        case ast.Model() if not node.parameters:
            return _braced(f"model {node.name.id}", node.body)
        case ast.Model() | ast.Block():
            kind = "model" if isinstance(node, ast.Model) else "block"
            return _braced(f"{kind} {node.name.id}({_join(map(_parameter, node.parameters))})", node.body)
        case ast.Repeat():
            return _braced(f"repeat {expression(node.count)} as {node.name.id}", node.body)
        case ast.Train():
            return _braced(f"train {node.model.id} on {node.wafer.id}", node.body)
        case ast.Fields():
            return _list(_HEADS.get(node.kind, node.kind), node.body)
        case ast.Network():
            of = f" of {node.of.text}" if node.of else ""
            return _list(f"joined through {node.word.id}{of}", node.fields.body)
        case ast.DieClass():
            last = f"..{_coord(node.last)}" if node.last != node.first else ""
            return _list(f"die {_coord(node.first)}{last}", node.fields.body)
        case ast.Group():
            return _list(f'group "{node.pattern.value}"', node.body)
        case _:
            return [_simple(node)]


def _simple(node: ast.Line) -> str:
    """The text of a line node without a body."""
    if isinstance(node, ast.WaferEntry | ast.SystemEntry | ast.Field):
        return _of_machine(node)
    match node:
        case ast.Input():
            return f"input {node.name.id} : {node.dtype.id}{_dims(node.dims)}"
        case ast.Param():
            argument = f"({expression(node.init.argument)})" if node.init.argument else ""
            decay = f" decay {node.decay.id}" if node.decay else ""
            return f"param {node.name.id} : {_dims(node.dims)} init {node.init.kind.id}{argument}{decay}"
        case ast.Assign():
            return f"{_join(t.id for t in node.targets)} = {expression(node.value)}"
        case ast.Loss():
            return f"loss {expression(node.value)}"
        case ast.Return():
            return f"return {_join(map(expression, node.values))}"
        case ast.Setting():
            return f"{node.key} {_setting(node.value)}"
        case ast.Rate():
            return f"{node.name.id} {'x ' if node.times else ''}{expression(node.value)}"
        case _:
            raise AssertionError(f"{type(node).__name__} has no text")


def _of_machine(node: ast.WaferEntry | ast.SystemEntry | ast.Field) -> str:
    """The text of a line of a wafer or a system."""
    match node:
        case ast.Mesh():
            return f"mesh {' x '.join(map(str, node.extents))}{_torus(node.torus)}"
        case ast.AllToAll():
            return f"dies {node.dies.text} all to all{_switch(node.switch)}"
        case ast.Wafers():
            return f"wafers {node.rows} x {node.columns} of {node.wafer.id}{_torus(node.torus)}"
        case ast.Ports():
            return f"ports {node.word.id if node.word else _join(p.text for p in node.places)}"
        case ast.Field():
            rate = f" at {_quantity(node.rate)}" if node.rate else f" of {node.of.text}" if node.of else ""
            return f"{node.name.id} {_quantity(node.value)}{rate}"
        case ast.DeadDie():
            return f"dead die {_coord(node.die)}"
        case ast.DeadLink():
            return f"dead link {_coord(node.a)} - {_coord(node.b)}"
        case ast.Fields() | ast.DieClass() | ast.Network():
            raise AssertionError("sections have lines of their own")


def _switch(switch: ast.Fields | None) -> str:
    return f" through switch {{ {_join(map(_simple, switch.body.lines))} }}" if switch else ""


def _torus(torus: ast.Torus | None) -> str:
    if torus is None:
        return ""
    return f" torus along {torus.along.id}" if torus.along else " torus"


def _braced(head: str, body: ast.Body[ast.Line] | None) -> list[str]:
    if body is None:
        return [head]
    if not body.lines and not body.opening and not body.tail:
        return [f"{head} {{ }}"]
    return [f"{head} {{{_suffix(body.opening)}", *_indented(_lines(body.lines)), *_indented(body.tail), "}"]


def _lines(nodes: Sequence[ast.Line]) -> Iterator[str]:
    for node in nodes:
        if node.trivia.blank:
            yield ""
        yield from _line(node)


def _list(head: str, body: ast.Body[ast.Line]) -> list[str]:
    """The lines of a `die`, `link` or `group`: one if it fits there and has no comments."""
    short = f"{head} {{ {_join(map(_simple, body.lines))} }}"
    is_bare = not body.opening and not body.tail and all(f.trivia == ast.NO_TRIVIA for f in body.lines)
    if is_bare and (len(short) <= _WIDTH or not body.lines):
        return [short if body.lines else f"{head} {{ }}"]
    rows: list[str] = []
    for field in body.lines:
        rows += [*field.trivia.before, f"{_simple(field)},{_suffix(field.trivia.after)}"]
    return [f"{head} {{{_suffix(body.opening)}", *_indented(rows), *_indented(body.tail), "}"]


def _indented(rows: Iterable[str]) -> Iterator[str]:
    return (f"  {row}" if row else row for row in rows)


def _suffix(comment: str) -> str:
    return f"  {comment}" if comment else ""


def _join(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _quantity(q: ast.Quantity) -> str:
    return f"{q.number.text} {q.unit}".rstrip()


def _coord(c: ast.Coord) -> str:
    return str(c.place)


def _dims(dims: tuple[ast.Expr, ...]) -> str:
    return f"[{_join(map(expression, dims))}]"


def _parameter(p: ast.Parameter) -> str:
    return f"{p.name.id} = {expression(p.default)}" if p.default else p.name.id


def _setting(value: ast.SettingValue) -> str:
    match value:
        case ast.Text():
            return f'"{value.value}"'
        case ast.Quantity():
            return _quantity(value)
        case ast.LrSchedule():
            return _join(map(expression, value.calls))
        case ast.DTypes():
            return _join(f"{r.role.id} {r.dtype.id}" for r in value.roles)
        case ast.Strategy():
            if value.is_auto:
                return _join(["auto", *(f"{p.name.id} = {expression(p.value)}" for p in value.pins)])
            return _join(f"{a.name.id} = {a.degree.text}" for a in value.axes)
        case ast.Stages():
            return " ".join(n.text for n in value.layers) or "auto"
        case ast.Name() | ast.Number() | ast.Call():
            return expression(value)
        case _:
            assert_never(value)


def expression(expr: ast.Expr) -> str:
    """The text of an expression, with the parentheses that it needs and no others."""
    match expr:
        case ast.Name():
            return expr.id
        case ast.Number():
            return expr.text
        case ast.Binary():
            precedence = _PRECEDENCE[expr.op]
            return f"{_operand(expr.left, precedence)} {expr.op} {_operand(expr.right, precedence + 1)}"
        case ast.Negative():
            return f"-{_operand(expr.operand, _HIGHEST)}"
        case ast.Call():
            named = (f"{k.name.id} = {expression(k.value)}" for k in expr.keywords)
            return f"{expr.function.id}({_join([*map(expression, expr.args), *named])})"
        case _:
            assert_never(expr)


def _operand(expr: ast.Expr, least: int) -> str:
    """The text of an operand, in parentheses where its precedence is below `least`."""
    match expr:
        case ast.Binary():
            precedence = _PRECEDENCE[expr.op]
        case ast.Negative():
            precedence = _HIGHEST - 1
        case _:
            precedence = _HIGHEST
    return expression(expr) if precedence >= least else f"({expression(expr)})"
