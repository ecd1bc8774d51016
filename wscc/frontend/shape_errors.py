"""Shapes that do not fit, told in the words of the source: every operand as it is written, and what would fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wscc.diagnostics import Code, CompileError, fail
from wscc.frontend import ast
from wscc.frontend.fmt import expression
from wscc.ir.op import Value

_LONGEST = 40  # characters of an operand that is shown as it is written

Operand = tuple[ast.Expr, Value]


def misfit(problem: str, e: ast.Expr, operands: Sequence[Operand]) -> CompileError:
    """W101 at the expression. `problem` speaks of values of the IR, by names that a user may never have seen."""
    for written, value in operands:
        problem = problem.replace(f"`{value.name}`", f"`{_short(written)}`")
    problem = re.sub(r"^`\w+`", f"`{_operation(e)}`", problem)
    shapes = [f"`{_short(written)}` is {list(value.type.shape)}" for written, value in operands]
    if all(line.replace(" is ", " ") in problem for line in shapes):
        shapes = []  # said already
    return fail(Code.SHAPE, problem, e.span, help="\n".join([*shapes, *_remedy(e, operands)]))


def _operation(e: ast.Expr) -> str:
    return e.function.id if isinstance(e, ast.Call) else e.op if isinstance(e, ast.Binary) else "-"


def _short(e: ast.Expr) -> str:
    text = expression(e)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _remedy(e: ast.Expr, operands: Sequence[Operand]) -> list[str]:
    """What would fit, where the operands suggest it."""
    shapes = [value.type.shape for _, value in operands]
    match _operation(e), shapes:
        case "@", [x, w] if len(w) == 2 and isinstance(e, ast.Binary):
            if isinstance(e.right, ast.Call) and e.right.function.id == "transpose":
                return ["without `transpose` it would fit"] if x[-1] == w[0] else []
            fits = f"`{_short(e.left)} @ transpose({_short(e.right)})` would fit"
            return [fits] if x[-1] == w[1] else []
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
