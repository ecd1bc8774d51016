"""A model as a chain of segments: which names cross from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wscc.frontend import ast


@dataclass(frozen=True, slots=True)
class Segment:
    """Straight statements, or the body of one `repeat` (then `repeat` is set).

    `carried` are the names whose values the segment hands on, sorted: what later segments, or its own next
    layer, read before they assign it.
    """

    name: str
    statements: tuple[ast.Statement, ...]
    repeat: ast.Repeat | None
    carried: tuple[str, ...] = ()


def chain(model: ast.Model) -> list[Segment]:
    """The model's statements between its declarations, cut at each `repeat`."""
    cut: list[Segment] = []
    run: list[ast.Statement] = []
    loops = [s for s in model.body.lines if isinstance(s, ast.Repeat)]
    for s in model.body.lines:
        if isinstance(s, ast.Repeat):
            if run:
                cut.append(Segment(_name(len(cut), loops, run), tuple(run), None))
                run = []
            cut.append(Segment(s.name.id, tuple(s.body.lines), s))
        elif isinstance(s, ast.Assign | ast.Loss):
            run.append(s)
    if run:
        cut.append(Segment(_name(len(cut), loops, run), tuple(run), None))
    return _with_carried(cut)


def _name(position: int, loops: list[ast.Repeat], run: list[ast.Statement]) -> str:
    """`prologue`, `epilogue` (it holds the loss), or `part.N`; out of the way of names of repeats."""
    plain = (
        "epilogue" if isinstance(run[-1], ast.Loss) else "prologue" if position == 0 else f"part.{position}"
    )
    return f"{plain}.model" if plain in {s.name.id for s in loops} else plain


def _with_carried(cut: list[Segment]) -> list[Segment]:
    """Liveness from the last segment to the first."""
    live: frozenset[str] = frozenset()
    done: list[Segment] = []
    for s in reversed(cut):
        exposed, assigned = _exposed(s.statements)
        wanted = live | exposed if s.repeat else live
        done.append(Segment(s.name, s.statements, s.repeat, tuple(sorted(wanted & assigned))))
        live = exposed | (live - assigned)
    return done[::-1]


def _exposed(statements: Sequence[ast.Statement]) -> tuple[frozenset[str], frozenset[str]]:
    """(names read before they are assigned, names assigned)."""
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
