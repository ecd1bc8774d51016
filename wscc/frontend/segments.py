"""The segments of a model, with the names whose values are carried from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wscc.frontend import ast


@dataclass(frozen=True, slots=True)
class Segment:
    """Straight statements, or the body of one `repeat` (then `repeat` is set).

    `carried` are the names whose values leave the segment, sorted: those that later segments, or its own next
    layer, read before they assign them.
    """

    name: str
    statements: tuple[ast.Statement, ...]
    repeat: ast.Repeat | None
    carried: tuple[str, ...] = ()


def chain(model: ast.Model) -> list[Segment]:
    """The model's statements between its declarations, cut at each `repeat`."""
    segments: list[Segment] = []
    run: list[ast.Statement] = []
    loops = [s for s in model.body.lines if isinstance(s, ast.Repeat)]
    for s in model.body.lines:
        if isinstance(s, ast.Repeat):
            if run:
                segments.append(Segment(_name(len(segments), loops, run), tuple(run), None))
                run = []
            segments.append(Segment(s.name.id, tuple(s.body.lines), s))
        elif isinstance(s, ast.Assign | ast.Loss):
            run.append(s)
    if run:
        segments.append(Segment(_name(len(segments), loops, run), tuple(run), None))
    return _with_carried(segments)


def _name(position: int, loops: list[ast.Repeat], run: list[ast.Statement]) -> str:
    """The name `prologue`, `epilogue` (it holds the loss), or `part.N`, changed where a `repeat` has it."""
    name = (
        "epilogue" if isinstance(run[-1], ast.Loss) else "prologue" if position == 0 else f"part.{position}"
    )
    return f"{name}.model" if name in {s.name.id for s in loops} else name


def _with_carried(segments: list[Segment]) -> list[Segment]:
    """The segments with their carried names, by liveness from the last segment to the first."""
    live: frozenset[str] = frozenset()
    backwards: list[Segment] = []
    for s in reversed(segments):
        exposed, assigned = _exposed(s.statements)
        live_out = live | exposed if s.repeat else live
        backwards.append(Segment(s.name, s.statements, s.repeat, tuple(sorted(live_out & assigned))))
        live = exposed | (live - assigned)
    return backwards[::-1]


def _exposed(statements: Sequence[ast.Statement]) -> tuple[frozenset[str], frozenset[str]]:
    """The upward-exposed names (read before they are assigned) and the assigned names."""
    exposed: set[str] = set()
    assigned: set[str] = set()
    for s in statements:
        if isinstance(s, ast.Assign | ast.Loss):
            exposed |= {n.id for n in names(s.value)} - assigned
        if isinstance(s, ast.Assign):
            assigned |= {t.id for t in s.targets}
    return frozenset(exposed), frozenset(assigned)


def names(expr: ast.Expr) -> Iterator[ast.Name]:
    """Every name that the expression reads, left to right."""
    match expr:
        case ast.Name():
            yield expr
        case ast.Binary():
            yield from names(expr.left)
            yield from names(expr.right)
        case ast.Negative():
            yield from names(expr.operand)
        case ast.Call():
            for part in (*expr.args, *(k.value for k in expr.keywords)):
                yield from names(part)
        case _:
            return
