"""A wafer built in Python, from a preset or from its numbers in the spelling of the language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wscc.api.arguments import each, fields_of
from wscc.api.expressions import name as checked_name
from wscc.diagnostics import Code, Source, fail
from wscc.frontend import ast
from wscc.frontend.overrides import dead as dead_entry
from wscc.frontend.parse import parse_fragment

Values = Mapping[str, str | int | float]
Place = tuple[int, ...]


class Wafer:
    """A mesh of dies: `Wafer("tray", mesh=(2, 4), die={"hbm": "72 GB at 1 TB/s"}, link={"latency": "200 ns"})`.

    `preset` names a machine to start from, such as `temp-4x8`; `die` and `link` are fields as the language spells
    them, numbers with their units; `dead` has places `(row, column)` or `(plane, row, column)` of dead dies, or what
    `--dead` takes.
    Without a preset, `mesh`, `die` and `link` are needed. Raises `CompileError` for what the language refuses,
    `UsageError` W006 for an argument of another kind.
    """

    def __init__(
        self, name: str = "wafer", *, mesh: tuple[int, ...] | str | None = None, preset: str | None = None,
        die: Values | None = None, link: Values | None = None, dead: Sequence[str | Place] = (),
    ) -> None:  # fmt: skip
        self.name = checked_name(name)
        entries: list[ast.WaferEntry] = []
        if mesh is not None:
            words = mesh if isinstance(mesh, str) else " x ".join(map(str, each("mesh", mesh)))
            entries.append(_fragment("wafer_entry", f"mesh {words}"))
        for kind, values in (("die", die), ("link", link)):
            if values:
                fields = ", ".join(f"{key} {value}" for key, value in fields_of(kind, values).items())
                entries.append(_fragment("wafer_entry", f"{kind} {{ {fields} }}"))
        entries += [_dead(d) for d in ([dead] if isinstance(dead, str) else each("dead", dead))]
        body = ast.Body(tuple(entries)) if entries or preset is None else None
        self.item = ast.Wafer(ast.Name(self.name), ast.Text(preset) if preset is not None else None, body)


def _dead(what: str | Place) -> ast.WaferEntry:
    if isinstance(what, str):
        return dead_entry(what)
    if len(each("dead", what)) not in (2, 3):
        raise fail(Code.OPTION, f"{what!r} is no place of a die", help="write `(row, column)`")
    return dead_entry(f"die:{','.join(map(str, what))}")


def _fragment(rule: str, text: str) -> ast.WaferEntry:
    entry: ast.WaferEntry = parse_fragment(Source("<wafer>", text), 0, rule)
    return entry
