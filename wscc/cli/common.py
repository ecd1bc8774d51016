"""Options that change a model, and the display of results and errors, for all commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from wscc.diagnostics import Source
from wscc.files import read_source
from wscc.files.kinds import CALL_ORDER
from wscc.frontend.overrides import Overrides
from wscc.machine.links import CUT_THROUGH
from wscc.passes.choices import ALLGATHERS, DEFAULT, DEFAULT_MAPPER, MAPPERS, ROUTINGS, Choices

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Changes of a model and choices for compiling it, from the command line; `option_names` are the options used."""

    overrides: Overrides
    choices: Choices
    option_names: tuple[str, ...]


_MODEL_OPTIONS: Final = (
    click.option("--dtype", metavar="T", help="f64, f32 or bf16 for compute, params and grads"),
    click.option("--dead", multiple=True, metavar="WHAT", help="die:R,C or link:R,C-R,C; may be repeated"),
    click.option("--parallel", metavar="AXES", help="replaces the file's strategy, e.g. dp=2,tp=2"),
    click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="e.g. train.batch=32, wafer.mesh=2x4"
    ),
    click.option(
        "--stagger",
        is_flag=True,
        help="clusters of dies that share hot links start apart, where the simulated step is then shorter",
    ),
    click.option(
        "--allgather",
        type=click.Choice(ALLGATHERS),
        help=f"how shards are gathered (default: {ALLGATHERS[0]})",
    ),
    click.option(
        "--routing", type=click.Choice(ROUTINGS), help="routes of messages (default: adaptive from -O2)"
    ),
    click.option(
        "--max-iter",
        type=click.IntRange(1, 1000),
        help=f"rounds of the search for routes (default: {DEFAULT.max_iter})",
    ),
    click.option(
        "--enough",
        type=click.IntRange(0, 100),
        metavar="PERCENT",
        help="routes stay where no link is busy for more of the time that the work beside it takes (default: 0)",
    ),
    click.option(
        "--call-order", metavar="FILE", help="calls in the order of this table; see `wscc call-order`"
    ),
    click.option("--schedule", "old_call_order", metavar="FILE", hidden=True, help="the old spelling"),
    click.option(
        "--mapper",
        type=click.Choice(MAPPERS),
        help=f"what places dies (default: {DEFAULT_MAPPER}; only it looks for rings)",
    ),
)


def model_options(command: F) -> F:
    """The command with `--set --parallel --dead --dtype --mapper --routing --max-iter --enough --allgather --stagger
    --call-order`, which it takes as one argument `options`."""

    @wraps(command)
    def collected(
        *, sets: tuple[str, ...], parallel: str | None, dead: tuple[str, ...], dtype: str | None,
        mapper: str | None, routing: str | None, allgather: str | None, stagger: bool,
        call_order: str | None, old_call_order: str | None, max_iter: int | None, enough: int | None, **others: object,
    ) -> object:  # fmt: skip
        call_order = call_order or old_call_order
        values = {
            "--set": sets, "--parallel": parallel, "--dead": dead, "--dtype": dtype, "--mapper": mapper,
            "--routing": routing, "--allgather": allgather, "--stagger": stagger, "--call-order": call_order,
            "--max-iter": max_iter, "--enough": enough,
        }  # fmt: skip
        options = ModelOptions(
            Overrides(sets=sets, parallel=parallel, dead=dead, dtype=dtype),
            Choices(
                mapper or DEFAULT_MAPPER,
                routing or "",
                allgather or ALLGATHERS[0],
                CUT_THROUGH * stagger,
                read_call_order_file(call_order) if call_order else None,
                max_iter or DEFAULT.max_iter,
                enough or DEFAULT.enough,
            ),
            tuple(name for name, value in values.items() if value),
        )
        return command(options=options, **others)

    decorated: Any = collected
    for option in _MODEL_OPTIONS:
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def read_call_order_file(path: str) -> Source:
    """The text of a call order. Raises `CompileError` W002 if the file cannot be read."""
    return read_source(path, CALL_ORDER)
