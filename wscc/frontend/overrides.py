"""The options of the command line that change a program: `--set`, `--parallel`, `--dead`, `--dtype`; and `--pin`.

Each becomes a piece of syntax tree, read by the grammar's own rules, and replaces or joins what the file
says; so an overridden number is checked exactly as a written one, with a caret into the option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from wscc.diagnostics import Code, CompileError, Diagnostic, Label, Source, Span, UsageError
from wscc.frontend import ast
from wscc.frontend.builtins import OLDER_SPELLINGS, OPTIMIZERS, SETTINGS
from wscc.frontend.config import DTYPE_ROLES
from wscc.frontend.machine.wafers import SPECS
from wscc.frontend.parse import parse_fragment
from wscc.frontend.report import hint
from wscc.frontend.select import Selection
from wscc.ir.train import FLOATS

_SET: Final = re.compile(r"--set (\w+)((?:\.\w+)+)=(?=.)", re.DOTALL)
_PLACE: Final = r"[0-9]{1,9}(?:,[0-9]{1,9}){1,2}"
_DEAD_DIE: Final = re.compile(rf"--dead die:({_PLACE})")
_DEAD_LINK: Final = re.compile(rf"--dead link:({_PLACE})-({_PLACE})")
# Codes that, about the text of an option itself, mean that it is malformed, not that it asks for too much.
_MALFORMED: Final = frozenset(
    {Code.SYNTAX, Code.UNIT, Code.NUMBER, Code.OPTION, Code.DUPLICATE, Code.UNKNOWN_NAME, Code.UNKNOWN_KEY}
    | {Code.MISSING, Code.CHOICE, Code.ARGUMENTS}
)
COMMAND_LINE: Final = "<command line>"


def as_usage_error(error: CompileError) -> CompileError:
    """The error, as a `UsageError` where every mistake lies in the words of an option."""
    if all(d.code in _MALFORMED and d.label.span.file == COMMAND_LINE for d in error.diagnostics):
        return UsageError(*error.diagnostics)
    return error


@dataclass(frozen=True, slots=True)
class Overrides:
    """The options as typed, without their names: `sets=("train.batch=32",)`, `dead=("die:1,3",)`. A search alone
    reads `pins`."""

    sets: tuple[str, ...] = ()
    parallel: str | None = None
    dead: tuple[str, ...] = ()
    dtype: str | None = None
    pins: tuple[str, ...] = ()


NO_OVERRIDES: Final = Overrides()


def override(selection: Selection, overrides: Overrides) -> Selection:
    """The selection with every option applied: `--set` in order, then `--dtype`, `--parallel`, `--dead`."""
    for text in overrides.sets:
        selection = _set(selection, text)
    if overrides.dtype is not None:
        selection = _with_setting(selection, _dtype(overrides.dtype))
    if overrides.parallel is not None:
        selection = _with_setting(selection, _parallel(overrides.parallel))
    for text in overrides.dead:
        selection = _with_wafer(selection, dead(text))
    return selection


def dead(text: str) -> ast.DeadDie | ast.DeadLink:
    """The damage written as `die:R,C` or `link:R,C-R,C`, with a plane before rows where there are some. Raises
    `UsageError` for anything else."""
    source = _source(f"--dead {text}")
    span = _whole(source)
    if match := _DEAD_DIE.fullmatch(source.text):
        return ast.DeadDie(_coord(match[1], span), span=span)
    if match := _DEAD_LINK.fullmatch(source.text):
        return ast.DeadLink(_coord(match[1], span), _coord(match[2], span), span=span)
    return _usage(
        source, "malformed `--dead`", "write `--dead die:1,3` or `--dead link:0,0-0,1` (row, column)"
    )


def _coord(text: str, span: Span) -> ast.Coord:
    return ast.Coord.at([int(n) for n in text.split(",")], span)


# ---- reading an option


def _source(text: str) -> Source:
    return Source(COMMAND_LINE, text)


def _whole(source: Source) -> Span:
    start = source.text.index(" ") + 1
    return Span(source, start, len(source.text), 1, start + 1)


def _usage(source: Source, message: str, help: str) -> NoReturn:
    raise UsageError(Diagnostic(Code.OPTION, message, Label(_whole(source)), help=help))


def _fragment(source: Source, start: int, rule: str, text: str = "") -> Any:
    """The tree of the option from `start` on. Raises `UsageError` for mistakes, which are those of the command line."""
    try:
        return parse_fragment(source, start, rule, text)
    except CompileError as error:
        raise UsageError(*error.diagnostics) from None


def _unknown(
    source: Source, word: str, choices: Mapping[str, object] | tuple[str, ...], what: str
) -> NoReturn:
    _usage(source, f"{what} `{word}`", hint(word, choices))


def pin(text: str) -> ast.Pin:
    """The pin of a search written as `tatp=8`. Raises `UsageError` for anything else."""
    written: ast.Pin = _fragment(_source(f"--pin {text}"), len("--pin "), "pin")
    return written


def _parallel(text: str) -> ast.Setting:
    source = _source(f"--parallel {text}")
    setting: ast.Setting = _fragment(source, 0, "setting", f"  parallel {text}")
    return replace(setting, span=_whole(source))


def _dtype(text: str) -> ast.Setting:
    source = _source(f"--dtype {text}")
    if text not in FLOATS:
        _unknown(source, text, tuple(FLOATS), "unknown element type")
    span = _whole(source)
    name = ast.Name(text, span=span)
    roles = tuple(ast.Role(ast.Name(role, span=span), name, span=span) for role in DTYPE_ROLES)
    return ast.Setting("dtype", ast.DTypes(roles, span=span), span=span)


# ---- --set


def _set(selection: Selection, text: str) -> Selection:
    source = _source(f"--set {text}")
    match = _SET.match(source.text)
    if not match:
        examples = "`--set train.batch=32`, `--set model.layers=2`, `--set wafer.mesh=2x4`"
        _usage(source, "malformed `--set`", f"write {examples}")
    section, keys = match[1], tuple(match[2][1:].split("."))
    apply = _SECTIONS.get(section)
    if apply is None:
        _unknown(source, section, _SECTIONS, "`--set` knows no section")
    return apply(selection, keys, source, match.end())


def _set_model(selection: Selection, keys: tuple[str, ...], source: Source, value: int) -> Selection:
    model, parameters_by_name = selection.model, {p.name.id: p for p in selection.model.parameters}
    name = ".".join(keys)
    if name not in parameters_by_name:
        _unknown(source, name, parameters_by_name, f"model `{model.name.id}` has no parameter")
    # `model.layers=2` ends in `layers=2`, which is how a parameter is written.
    changed = _fragment(source, value - len(name) - 1, "parameter")
    parameters = tuple(changed if p.name.id == name else p for p in model.parameters)
    return replace(selection, model=replace(model, parameters=parameters))


def _set_train(selection: Selection, keys: tuple[str, ...], source: Source, value: int) -> Selection:
    key = OLDER_SPELLINGS.get(keys[0], keys[0])
    if key not in SETTINGS:
        _unknown(source, key, SETTINGS, "`train` has no setting")
    if len(keys) == 2 and key in _PARTS:
        return _with_setting(selection, _PARTS[key](_setting_of(selection, key), keys[1], source, value))
    if len(keys) != 1:
        _usage(source, f"`{'.'.join(keys)}` names no setting", f"write `--set train.{key}=...`")
    if key == "data" and '"' not in source.text:
        source = _source(f'{source.text[:value]}"{source.text[value:]}"')
    setting = _fragment(source, 0, "setting", _spaced(source.text, value, keys[0]))
    return _with_setting(selection, setting)


def _set_wafer(selection: Selection, keys: tuple[str, ...], source: Source, value: int) -> Selection:
    match keys:
        case ["mesh"]:
            mesh = _fragment(source, 0, "wafer_entry", _spaced(source.text, value, "mesh"))
            return _with_wafer(selection, mesh)
        case ["die" | "link" as kind, name]:
            if name not in SPECS[kind]:
                _unknown(source, name, tuple(SPECS[kind]), f"`{kind}` has no field")
            field = _fragment(source, 0, "field", _spaced(source.text, value, name))
            return _with_field(selection, kind, field)
    choices = ("mesh", *(f"{kind}.{name}" for kind, specs in SPECS.items() for name in specs))
    word = ".".join(keys)
    known = f"known here: {', '.join(choices)}"
    _usage(source, f"`--set wafer` cannot change `{word}`", hint(word, choices, known))


_Apply = Callable[[Selection, tuple[str, ...], Source, int], Selection]
_SECTIONS: Final[dict[str, _Apply]] = {"model": _set_model, "train": _set_train, "wafer": _set_wafer}


def _spaced(text: str, value: int, key: str) -> str:
    """The option as the grammar's `key value`, at the same columns."""
    head = f"{' ' * (value - len(key) - 1)}{key} "
    return head + text[value:]


# ---- parts of a setting


def _optimizer_part(previous: ast.Setting | None, name: str, source: Source, value: int) -> ast.Setting:
    if previous is None or not isinstance(previous.value, ast.Call):
        _usage(source, "the file has no `optimizer`", "write `--set 'train.optimizer=adamw(lr = 3e-4)'`")
    call = previous.value
    names = OPTIMIZERS.get(call.function.id, ("lr",))
    if name not in names:
        _unknown(source, name, names, f"`{call.function.id}` has no argument")
    keyword = _fragment(source, value - len(name) - 1, "argument")
    args = dict(zip(names, call.args, strict=False))
    named = [ast.Keyword(ast.Name(n, span=a.span), a, span=a.span) for n, a in args.items()]
    others = tuple(k for k in (*named, *call.keywords) if k.name.id != name)
    return replace(previous, value=replace(call, args=(), keywords=(*others, keyword)))


def _dtype_part(previous: ast.Setting | None, name: str, source: Source, value: int) -> ast.Setting:
    role = _fragment(source, 0, "role", _spaced(source.text, value, name))
    roles = previous.value.roles if previous is not None and isinstance(previous.value, ast.DTypes) else ()
    others = tuple(r for r in roles if r.role.id != name)
    return ast.Setting("dtype", ast.DTypes((*others, role), span=role.span), span=role.span)


def _axis_part(previous: ast.Setting | None, name: str, source: Source, value: int) -> ast.Setting:
    axis = _fragment(source, value - len(name) - 1, "axis")
    axes = previous.value.axes if previous is not None and isinstance(previous.value, ast.Strategy) else ()
    if name in {a.name.id for a in axes}:
        changed = tuple(axis if a.name.id == name else a for a in axes)
    else:
        changed = (*axes, axis)
    return ast.Setting("parallel", ast.Strategy(changed, span=axis.span), span=axis.span)


_PARTS: Final = {"optimizer": _optimizer_part, "dtype": _dtype_part, "parallel": _axis_part}


# ---- putting a piece in its place


def _setting_of(selection: Selection, key: str) -> ast.Setting | None:
    return next((s for s in selection.train.settings if s.key == key), None)


def _with_setting(selection: Selection, setting: ast.Setting) -> Selection:
    body = selection.train.body
    lines = tuple(s for s in body.lines if not isinstance(s, ast.Setting) or s.key != setting.key)
    return replace(selection, train=replace(selection.train, body=replace(body, lines=(*lines, setting))))


def _with_wafer(selection: Selection, entry: ast.WaferEntry) -> Selection:
    """The selection with an entry of the wafer: a mesh or section replaces that of the file, damage is added, to the
    system if there is one."""
    if selection.system is not None and isinstance(entry, ast.DeadDie | ast.DeadLink):
        within = selection.system.body
        damaged = replace(within, lines=(*within.lines, entry))
        return replace(selection, system=replace(selection.system, body=damaged))
    wafer = selection.wafer
    body: ast.Body[ast.WaferEntry] = wafer.body or ast.Body()

    def is_replaced(other: ast.WaferEntry) -> bool:
        match entry:
            case ast.Mesh():
                return isinstance(other, ast.Mesh)
            case ast.Fields(kind=kind):
                return isinstance(other, ast.Fields) and other.kind == kind
        return False

    lines = tuple(e for e in body.lines if not is_replaced(e))
    return replace(selection, wafer=replace(wafer, body=replace(body, lines=(*lines, entry))))


def _with_field(selection: Selection, kind: str, field: ast.Field) -> Selection:
    """The selection with a field, which replaces that of the file but for its `at ...`, unless it has one too."""
    entries = selection.wafer.body.lines if selection.wafer.body else ()
    section = next((e for e in entries if isinstance(e, ast.Fields) and e.kind == kind), None)
    section = section or ast.Fields(kind, ast.Body(()), span=field.span)
    previous = next((f for f in section.body.lines if f.name.id == field.name.id), None)
    if previous is not None and field.rate is None:
        field = replace(field, rate=previous.rate)
    fields = tuple(f for f in section.body.lines if f.name.id != field.name.id)
    return _with_wafer(selection, replace(section, body=replace(section.body, lines=(*fields, field))))
