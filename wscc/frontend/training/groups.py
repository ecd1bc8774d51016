"""Parameter groups: which parameters decay, and numbers of the optimizer for those whose names fit a pattern.

`decay on | off` on a parameter, else `decay all | matrices` of the training, says *whether* a parameter decays; the
`decay` of its group, else that of the optimizer, says *how much*. No parameter is in two groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Final

from wscc.analysis.matrices import matrices
from wscc.diagnostics import Code
from wscc.diagnostics.limits import limits_of, shown
from wscc.frontend import ast
from wscc.frontend.builtins import SWITCH
from wscc.frontend.config import Group
from wscc.frontend.report import Report, hint
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module
from wscc.ir.ops import OPS
from wscc.ir.train import Optimizer, Rates

_MAX_NAME: Final = 64  # of a pattern that is compared: the time grows with the square
_SHOWN: Final = 6
# The word in a group -> the field of the optimizer.
FIELDS: Final = {"lr": "lr", "decay": "weight_decay"}


def resolve_groups(groups: tuple[ast.Group, ...], optimizer: Optimizer, report: Report) -> tuple[Group, ...]:
    """The groups as numbers; mistakes in them are noted (W005, W007, W009, W011)."""
    report.unique(((g.pattern.value, g.pattern.span) for g in groups), "group")
    return tuple(_group(g, optimizer, report) for g in groups)


def _group(group: ast.Group, optimizer: Optimizer, report: Report) -> Group:
    report.unique(((r.name.id, r.name.span) for r in group.body.lines), "number")
    values: dict[str, float] = {}
    for rate in group.body.lines:
        if rate.name.id not in FIELDS:
            message = f"a group has no number `{rate.name.id}`"
            report.add(Code.UNKNOWN_KEY, message, rate.name.span, "", hint(rate.name.id, FIELDS))
            continue
        value = _value(rate, optimizer, report)
        if value is not None:
            values[FIELDS[rate.name.id]] = value
    return Group(group.pattern.value, span=group.pattern.span, **values)


def _value(rate: ast.Rate, optimizer: Optimizer, report: Report) -> float | None:
    """A number of a group; `off` is a decay of 0, and `x` multiplies that of the optimizer as it is written."""
    name, field = rate.name.id, FIELDS[rate.name.id]
    if isinstance(rate.value, ast.Name):
        if name == "decay" and rate.value.id == "off" and not rate.times:
            return 0.0
        usage = {"lr": "`lr 1e-5` or `lr x 0.1`", "decay": "`decay 0.01`, `decay x 0.1` or `decay off`"}
        report.add(
            Code.CHOICE, f"`{rate.value.id}` is no `{name}`", rate.value.span, "", f"write {usage[name]}"
        )
        return None
    value = rate.value.value
    if rate.times:
        value *= Fraction(str(getattr(optimizer, field)))
    if not limits_of(Rates)[field].admit(value):
        message = f"`{name}` must be {limits_of(Rates)[field]}, not {shown(value)}"
        report.add(Code.NUMBER, message, rate.value.span)
        return None
    if field == "weight_decay" and value and field not in OPS[optimizer.kind].attrs:
        report.add(
            Code.UNKNOWN_KEY, f"`{optimizer.kind}` has no weight decay", rate.span, "", "leave `decay` out"
        )
        return None
    return float(value)


# ---- the parameters of a model


def with_rates(module: Module, decay: str, groups: tuple[Group, ...], switches: Mapping[str, str]) -> Module:
    """The forward module with the `rates` of each parameter that has other numbers than the optimizer.

    `switches` has the words of `decay` on parameters, by name. Raises `CompileError`: W008 for a pattern that no
    parameter fits, W007 for a parameter in two groups, W005 for a decay of parameters none of which decays.
    """
    parameters = [a for a in module.arrays if a.kind is Kind.PARAM]
    report = Report()
    group_of = _members(parameters, groups, report)
    decaying = {a.name for a in parameters}
    if decay == "matrices":
        decaying = set(matrices(module))
    decaying |= {n for n, word in switches.items() if SWITCH[word]}
    decaying -= {n for n, word in switches.items() if not SWITCH[word]}
    _refuse_idle_decays(groups, group_of, decaying, report)
    report.finish()
    rates = dict(_rates(module, group_of, decaying))
    if not rates:
        return module
    return module.with_(arrays=tuple(replace(a, rates=rates.get(a.name)) for a in module.arrays))


def _members(parameters: Iterable[Array], groups: tuple[Group, ...], report: Report) -> dict[str, Group]:
    """The group of each parameter that is in one."""
    names = [a.name for a in parameters]
    group_of: dict[str, Group] = {}
    for group in groups:
        members = [n for n in names if group.fits(n)]
        if not members:
            message = f"no parameter fits `{group.pattern}`"
            report.add(Code.UNKNOWN_NAME, message, group.span, "", _nearest(group.pattern, names))
        twice = next((n for n in members if n in group_of), None)
        if twice is not None:
            message = f"`{twice}` is in two groups, `{group_of[twice].pattern}` and `{group.pattern}`"
            help = "each parameter is in one group at most: narrow one of the patterns"
            report.add(Code.DUPLICATE, message, group.span, "again", help, group_of[twice].span)
        group_of.update((n, group) for n in members)
    return group_of


def _nearest(pattern: str, names: list[str]) -> str:
    """Help with the names that are most like a pattern."""
    near = get_close_matches(pattern[:_MAX_NAME], names, n=_SHOWN, cutoff=0.0)
    return hint(pattern, names, f"parameters, the nearest first: {', '.join(near)}")


def _refuse_idle_decays(
    groups: tuple[Group, ...], group_of: Mapping[str, Group], decaying: set[str], report: Report
) -> None:
    for group in groups:
        members = [n for n, g in group_of.items() if g is group]
        if group.weight_decay and members and decaying.isdisjoint(members):
            message = f"none of the parameters that fit `{group.pattern}` decays"
            help = f"leave its `decay` out, or write `decay on` on a parameter: {', '.join(members[:5])}"
            report.add(Code.NUMBER, message, group.span, "", help)


def _rates(module: Module, group_of: Mapping[str, Group], decaying: set[str]) -> Iterator[tuple[str, Rates]]:
    """Parameters with other rates than the optimizer's."""
    usual, has_decay = module.train.rates, "weight_decay" in OPS[module.train.optimizer.kind].attrs
    for a in module.arrays:
        if a.kind is not Kind.PARAM:
            continue
        group = group_of.get(a.name, Group(""))
        lr = usual.lr if group.lr is None else group.lr
        decay = usual.weight_decay if group.weight_decay is None else group.weight_decay
        rates = Rates(lr, decay if a.name in decaying and has_decay else 0.0)
        if rates != usual:
            yield a.name, rates
