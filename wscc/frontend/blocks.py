"""A check of the graph of calls between blocks: no cycles, and a bounded size once every call is written out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from wscc.diagnostics import Code
from wscc.frontend import ast
from wscc.frontend.report import Report

MAX_STATEMENTS: Final = 20_000  # of a model or block, all calls written out
MAX_CHAIN: Final = 40  # blocks that call one another in a row


def calls(node: ast.Statement | ast.Expr) -> Iterator[ast.Call]:
    """Every call in a statement or expression, outermost first, left to right."""
    match node:
        case ast.Assign() | ast.Loss():
            yield from calls(node.value)
        case ast.Return():
            for value in node.values:
                yield from calls(value)
        case ast.Repeat():
            for statement in node.body.lines:
                yield from calls(statement)
        case ast.Binary():
            yield from calls(node.left)
            yield from calls(node.right)
        case ast.Negative():
            yield from calls(node.operand)
        case ast.Call():
            yield node
            for part in (*node.args, *(k.value for k in node.keywords)):
                yield from calls(part)
        case _:
            return


def check_expansion(owners: Mapping[str, ast.Model | ast.Block], report: Report) -> None:
    """Note cycles (W104), chains of more than `MAX_CHAIN` blocks and sizes over `MAX_STATEMENTS` (W003).

    Walks the graph of calls with an explicit stack: each block is measured once, however often it is called.
    """
    uses = {
        name: [c for s in b.body.lines for c in calls(s) if c.function.id in owners]
        for name, b in owners.items()
    }
    size: dict[str, int] = {}
    chain: dict[str, int] = {}
    for root in owners:
        path: list[str] = [root] if root not in size else []
        cursors, on_path = [0], set(path)
        while path:
            name, position = path[-1], cursors[-1]
            if position < len(uses[name]):
                cursors[-1] += 1
                callee = uses[name][position].function.id
                if callee in on_path:
                    _cycle(owners, uses[name][position], path[path.index(callee) :], report)
                elif callee not in size:
                    path.append(callee)
                    cursors.append(0)
                    on_path.add(callee)
                continue
            inner = [c.function.id for c in uses[name] if c.function.id in size]
            size[name] = _statements(owners[name].body) + sum(size[c] for c in inner)
            chain[name] = 1 + max((chain[c] for c in inner), default=0)
            _check_size(owners[name], size[name], chain[name], report)
            on_path.discard(path.pop())
            cursors.pop()


def _statements(body: ast.Body[ast.Statement]) -> int:
    return sum(1 + (_statements(s.body) if isinstance(s, ast.Repeat) else 0) for s in body.lines)


def _cycle(
    owners: Mapping[str, ast.Model | ast.Block], call: ast.Call, path: list[str], report: Report
) -> None:
    cycle = " -> ".join(f"`{name}`" for name in (*path[:6], *(["..."] if len(path) > 6 else []), path[0]))
    message = f"block `{path[0]}` calls itself: {cycle}".replace("`...`", "...")
    report.add(Code.CYCLE, message, call.span, "closes the cycle", "use `repeat` to do a thing several times")


def _check_size(owner: ast.Model | ast.Block, size: int, chain: int, report: Report) -> None:
    """Note the first owner that is too large, and none beside a cycle: one cause, one error."""
    if any(d.code in (Code.LIMIT, Code.CYCLE) for d in report.diagnostics):
        return
    name = owner.name
    if size > MAX_STATEMENTS:
        shown = f"{size:,}" if size < 10**9 else "more than a billion"
        message = f"`{name.id}` becomes {shown} statements when its calls are written out"
        report.add(Code.LIMIT, message, name.span, "", f"the limit is {MAX_STATEMENTS:,}; use `repeat`")
    elif chain > MAX_CHAIN + 1:
        message = f"`{name.id}` calls blocks more than {MAX_CHAIN} deep"
        report.add(Code.LIMIT, message, name.span, "", "use `repeat`, or join some blocks")
