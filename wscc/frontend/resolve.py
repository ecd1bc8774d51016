"""Resolution of a syntax tree to what elaboration needs, with every mistake of names, units and numbers reported.

file --select--> one train, its model, wafer and blocks --override--> the same, changed --resolve--> Resolved
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Final

from wscc.diagnostics import Code, CompileError
from wscc.frontend import ast
from wscc.frontend.blocks import check_expansion
from wscc.frontend.config import TrainConfig
from wscc.frontend.evaluate import number, positive
from wscc.frontend.machine.systems import resolve_system
from wscc.frontend.machine.wafers import resolve_wafer
from wscc.frontend.names import BATCH, NameCheck
from wscc.frontend.overrides import NO_OVERRIDES, Overrides, as_usage_error, override, pin
from wscc.frontend.report import Report
from wscc.frontend.select import Selection, select
from wscc.frontend.training import check_degrees, resolve_train
from wscc.machine.wafer import Wafer

MAX_REPEAT: Final = 100_000
MAX_DIMS: Final = 8
_MAX_ELEMENTS: Final = 2**48  # of one parameter


@dataclass(frozen=True, slots=True)
class Resolved:
    """One training run. `sizes` are the values of the model's parameters; dimensions may also name `batch`.

    Names, calls and structure of `model` and `blocks` are right (`names`), sizes of parameters and counts of
    repeats are positive integers; shapes are not checked yet.
    """

    model: ast.Model
    blocks: Mapping[str, ast.Block]
    sizes: Mapping[str, int]
    wafer: Wafer
    config: TrainConfig


def resolve(file: ast.File, overrides: Overrides = NO_OVERRIDES) -> Resolved:
    """The one training run of a file, with the options applied. Raises `CompileError` with all mistakes, `UsageError`
    for an option that is malformed."""
    try:
        return _resolve(override(select(file), overrides))
    except CompileError as error:
        raise as_usage_error(error) from None


def leaves_strategy_open(file: ast.File, overrides: Overrides = NO_OVERRIDES) -> bool:
    """Whether the program says `parallel auto`. Raises as `resolve` does for what cannot be selected or overridden."""
    try:
        selection = override(select(file), overrides)
    except CompileError as error:
        raise as_usage_error(error) from None
    settings = selection.train.settings
    return any(isinstance(s.value, ast.Strategy) and s.value.is_auto for s in settings)


def pins(file: ast.File, overrides: Overrides = NO_OVERRIDES) -> tuple[ast.Pin, ...]:
    """What a search must not vary: the pins of `parallel auto`, and those of the command line. Raises as `resolve`."""
    try:
        selection = override(select(file), overrides)
    except CompileError as error:
        raise as_usage_error(error) from None
    written = [s.value.pins for s in selection.train.settings if isinstance(s.value, ast.Strategy)]
    return (*(p for pins in written for p in pins), *map(pin, overrides.pins))


def _resolve(selection: Selection) -> Resolved:
    report = Report()
    wafer = resolve_wafer(selection.wafer, report)
    if wafer is not None and selection.system is not None:
        wafer = resolve_system(selection.system, wafer, report)
    config = resolve_train(selection.train, report)
    _check_names(selection, report)
    sizes = _sizes(selection.model, report)
    if not report.diagnostics:
        _check_sizes(selection.model, {**sizes, BATCH: 1}, report)
    if wafer and config:
        check_degrees(config, wafer, report)
    report.finish()
    assert wafer is not None
    assert config is not None
    return Resolved(selection.model, selection.blocks, sizes, wafer, config)


def _check_names(selection: Selection, report: Report) -> None:
    check = NameCheck(selection.blocks, report)
    for block in selection.blocks.values():
        check.block(block)
    check.model(selection.model)
    owners: dict[str, ast.Model | ast.Block] = {**selection.blocks}
    # A model cannot be called, so its name may be that of a block: it stands under one that is no name.
    owners[f"model {selection.model.name.id}"] = selection.model
    check_expansion(owners, report)


def _sizes(model: ast.Model, report: Report) -> dict[str, int]:
    """The values of the model's parameters, in order; a default may use those before it."""
    sizes: dict[str, int] = {}
    for p in model.parameters:
        name, default = p.name.id, p.default
        if default is None:
            help = f"write `{name} = ...`, or give `--set model.{name}=...`"
            report.add(Code.MISSING, f"`{name}` has no value", p.span, "", help)
            sizes[name] = 1
        else:
            sizes[name] = _positive(default, sizes, f"`{name}`", report)
    return sizes


def _check_sizes(model: ast.Model, sizes: Mapping[str, int], report: Report) -> None:
    """Note dimensions, initial values and repeats of the model that are wrong; those of blocks depend on arguments."""
    for s in model.body.lines:
        _check_tensor(s, sizes, report)
        if isinstance(s, ast.Repeat):
            count = _positive(s.count, sizes, "the count of `repeat`", report)
            if count > MAX_REPEAT:
                message = f"`repeat` of {count} is too many"
                report.add(Code.LIMIT, message, s.count.span, "", f"the limit is {MAX_REPEAT:,}")
            for inner in s.body.lines:
                _check_tensor(inner, sizes, report)


def _check_tensor(s: ast.Statement, sizes: Mapping[str, int], report: Report) -> None:
    if not isinstance(s, ast.Param | ast.Input):
        return
    if len(s.dims) > MAX_DIMS:
        help = f"the limit is {MAX_DIMS}"
        report.add(Code.LIMIT, f"`{s.name.id}` has {len(s.dims):,} dimensions", s.name.span, "", help)
        return
    elements = prod(_positive(dim, sizes, "a dimension", report) for dim in s.dims)
    if elements > _MAX_ELEMENTS:
        report.add(
            Code.LIMIT, f"`{s.name.id}` has {elements:,} elements", s.name.span, "", "the limit is 2^48"
        )
    argument = s.init.argument if isinstance(s, ast.Param) else None
    if argument is not None:
        deviation = report.attempt(lambda: number(argument, sizes), Fraction(1))
        if deviation <= 0:
            message = f"the deviation of `normal` must be above 0, not {float(deviation):g}"
            report.add(Code.NUMBER, message, argument.span, "", "`init zeros` makes zeros")


def _positive(expr: ast.Expr, sizes: Mapping[str, int], what: str, report: Report) -> int:
    return report.attempt(lambda: positive(expr, sizes, what), 1)
