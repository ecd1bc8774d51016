"""Errors of shapes that do not fit, in the words of the source: each operand as written, and what would fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wscc.diagnostics import Code, CompileError, Edit, Proposal, fail
from wscc.frontend import ast
from wscc.frontend.fmt import expression
from wscc.ir.builder import ShapeMismatch, WrongOption
from wscc.ir.op import Value

_LONGEST = 40  # characters of an operand that is shown as it is written

Operand = tuple[ast.Expr, Value]


def shape_error(mismatch: ShapeMismatch, e: ast.Expr, operands: Sequence[Operand]) -> CompileError:
    """A W101 at the expression, or at the number that is wrong. The mismatch names values of the IR, which a user may
    never have seen."""
    problem = str(mismatch)
    if isinstance(mismatch, WrongOption):
        return _wrong_option(mismatch, e)
    for written, value in operands:
        problem = problem.replace(f"`{value.name}`", f"`{_short(written)}`")
    problem = re.sub(r"^`\w+`", f"`{_operation(e)}`", problem)
    shapes = [f"`{_short(written)}` is {list(value.type.shape)}" for written, value in operands]
    if all(line.replace(" is ", " ") in problem for line in shapes):
        shapes = []  # said already
    help = "\n".join([*shapes, *_suggestions(e, operands)])
    return fail(Code.SHAPE, problem, e.span, help=help, candidates=_transposed(e, operands))


def _wrong_option(wrong: WrongOption, e: ast.Expr) -> CompileError:
    """A W101 at a number that is given by name, which proposes one that is in its range."""
    given = [k.value for k in e.keywords if k.name.id == wrong.option] if isinstance(e, ast.Call) else []
    edits = [
        Proposal(edit=Edit(number.span, f"{wrong.near:g}", f"{wrong.option} = {wrong.near:g}"))
        for number in given
        if number.span.source is not None
    ]
    return fail(Code.SHAPE, str(wrong), given[0].span if given else e.span, candidates=edits)


def _transposed(e: ast.Expr, operands: Sequence[Operand]) -> list[Proposal]:
    """The product with the other of `w` and `transpose(w)`, where that has a shape that fits."""
    shapes = [value.type.shape for _, value in operands]
    if not isinstance(e, ast.Binary) or e.op != "@" or len(shapes) != 2 or len(shapes[1]) != 2:
        return []
    right = e.right
    is_view = isinstance(right, ast.Call) and right.function.id == "transpose"
    if shapes[0][-1] != shapes[1][0 if is_view else 1] or right.span.source is None:
        return []
    other = right.args[0] if isinstance(right, ast.Call) and is_view else None
    text = _text(other) if other else f"transpose({_text(right)})"
    shown = _short(other) if other else f"transpose({_short(right)})"
    return [Proposal(edit=Edit(right.span, text, f"{_short(e.left)} @ {shown}"))]


def _text(e: ast.Expr) -> str:
    """The expression as it is written."""
    assert e.span.source is not None
    return e.span.source.text[e.span.start : e.span.end]


def _operation(e: ast.Expr) -> str:
    return e.function.id if isinstance(e, ast.Call) else e.op if isinstance(e, ast.Binary) else "-"


def _short(e: ast.Expr) -> str:
    """The text of an expression, cut after `_LONGEST` characters."""
    text = expression(e)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _suggestions(e: ast.Expr, operands: Sequence[Operand]) -> list[str]:
    """Lines of help on the shapes that the operation takes."""
    shapes = [value.type.shape for _, value in operands]
    match _operation(e), shapes:
        case "@", [_, w] if len(w) > 2:
            return ["`project(x, w)` takes weights with more than two dimensions"]
        case "attention", [q, k, v] if len(q) == len(k) == len(v) == 4 and q[2] > k[2] and q[2] % k[2] == 0:
            group = [*q[:2], k[2], q[2] // k[2], q[3]]
            return [
                f"where {q[2] // k[2]} query heads share one of k and v, q has a dimension for them: {group}, from a "
                "weight [d, kv, heads / kv, d / heads]"
            ]
        case "attention", _:
            return [
                "q is [batch, seq, heads, e] or [batch, seq, kv, group, e]; k and v are [batch, seq, kv, e]"
            ]
        case "project", _:
            return [
                "the weight begins with the last dimensions of what it multiplies, and holds no others of them"
            ]
        case "cross_entropy", _:
            return ["write `cross_entropy(logits, labels)`: logits [batch, seq, vocab], labels [batch, seq]"]
        case _:
            return []
