"""The request that the arguments of `compile` and `search` make for the driver; what does not fit is a named error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wscc.api.arguments import each, one_of, refuse, whole
from wscc.api.training import Train
from wscc.diagnostics import Source
from wscc.driver.pipeline import Insertion
from wscc.driver.types import ALLGATHERS, DEFAULT, DEFAULT_MAPPER, MAPPERS, ROUTINGS, Choices
from wscc.files import read_source
from wscc.files.kinds import CALL_ORDER
from wscc.frontend.overrides import Overrides
from wscc.machine.links import CUT_THROUGH, LINK_MODELS

Model = str | os.PathLike[str] | Train
Values = Mapping[str, object]
Degrees = str | Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Request:
    """A program to compile: its text, changes of it, choices, and own passes."""

    source: Source
    overrides: Overrides
    choices: Choices
    insertions: tuple[Insertion, ...] = ()


def request(
    program: Model, overrides: Values | None, *, parallel: Degrees | None, dtype: str | None, dead: Sequence[str],
    mapper: str, routing: str, allgather: str, stagger: bool, call_order: str | os.PathLike[str] | None,
    passes: Iterable[Insertion], max_iter: int = DEFAULT.max_iter, enough: int = DEFAULT.enough,
    pins: Values | None = None,
) -> Request:  # fmt: skip
    """The request of these arguments. Raises `UsageError` W006, `CompileError` W002 for files that cannot be read."""
    one_of("mapper", mapper, MAPPERS)
    one_of("routing", routing, ("", *ROUTINGS))
    one_of("allgather", allgather, ALLGATHERS)
    if isinstance(dead, str):
        dead = (dead,)
    sets = tuple(f"{key}={_value(key, value)}" for key, value in _items(overrides))
    changed = Overrides(
        sets,
        _degrees(parallel),
        tuple(_word("dead", d) for d in each("dead", dead)),
        _optional("dtype", dtype),
        tuple(f"{key}={_value(key, value)}" for key, value in _items(pins)),
    )
    order = read_source(_path("call_order", call_order), CALL_ORDER) if call_order is not None else None
    choices = Choices(
        mapper, routing, allgather, CUT_THROUGH * bool(stagger), order, whole("max_iter", max_iter, 1, 1000),
        whole("enough", enough, 0, 100),
    )  # fmt: skip
    own = each("passes", passes)
    for p in own:
        if not isinstance(p, Insertion):
            refuse(
                "`passes` takes what `wscc.insert` makes",
                'write `passes=[wscc.insert(MyPass(), after="place")]`',
            )
    return Request(source_of(program), changed, choices, own)


def source_of(program: Model) -> Source:
    """The text of a program. Raises `CompileError` W002 if a file cannot be read."""
    if isinstance(program, Train):
        return program.source
    path = _path("program", program)
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "manifest.json")):
        refuse(f"`{path}` is compiled already", f"open it with `wscc.load({path!r})`")
    return read_source(path)


def link_model_of(value: str) -> str:
    """The name of a link model. Raises `UsageError` W006 for any other word."""
    one_of("link_model", value, LINK_MODELS)
    return value


def _items(overrides: Values | None) -> Iterable[tuple[str, object]]:
    if overrides is None:
        return ()
    if not isinstance(overrides, Mapping):
        refuse(f"`overrides` is a {type(overrides).__name__}", 'give a dict, such as {"model.layers": 2}')
    return [(_word("overrides", key), value) for key, value in overrides.items()]


def _value(key: str, value: object) -> str:
    """The value as a person would type it behind `--set KEY=`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        refuse(f"the value of `{key}` is {value!r}", "give a number, or a string as `--set` takes it")
    return value if isinstance(value, str) else repr(value)


def _degrees(parallel: Degrees | None) -> str | None:
    if parallel is None or isinstance(parallel, str):
        return parallel
    if not isinstance(parallel, Mapping):
        refuse(f"`parallel` is {parallel!r}", 'write parallel="dp=2,tp=2", or {"dp": 2, "tp": 2}')
    return ",".join(
        f"{_word('parallel', axis)}={whole(f'parallel[{axis!r}]', n, 1)}" for axis, n in parallel.items()
    )


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        refuse(f"`{name}` has {value!r}, and takes strings")
    return value


def _optional(name: str, value: object) -> str | None:
    return None if value is None else _word(name, value)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        refuse(f"`{name}` is a {type(value).__name__}", "give a path, or a `wscc.Train` built in Python")
    return os.fsdecode(value)


MAPPER, ALLGATHER = DEFAULT_MAPPER, ALLGATHERS[0]
