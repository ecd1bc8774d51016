"""The selection of the train section of a file, and of the model, wafer and blocks that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from wscc.diagnostics import Code
from wscc.frontend import ast
from wscc.frontend.builtins import BUILTINS
from wscc.frontend.report import Report, hint

Named = TypeVar("Named", ast.Model, ast.Wafer, ast.System)


@dataclass(frozen=True, slots=True)
class Selection:
    """One training run as written: the train section, what it names, and every block. On a system, `wafer` is what it
    is made of."""

    train: ast.Train
    model: ast.Model
    wafer: ast.Wafer
    blocks: Mapping[str, ast.Block]
    system: ast.System | None = None


def select(file: ast.File) -> Selection:
    """The only `train` of the file and what it names; Raises W010, W008 or W007 if that is not clear."""
    report = Report()
    trains = [i for i in file.items if isinstance(i, ast.Train)]
    models = [i for i in file.items if isinstance(i, ast.Model)]
    wafers = [i for i in file.items if isinstance(i, ast.Wafer)]
    systems = [i for i in file.items if isinstance(i, ast.System)]
    blocks = [i for i in file.items if isinstance(i, ast.Block)]
    for names, what in (
        ([m.name for m in models], "model"),
        ([*(w.name for w in wafers), *(s.name for s in systems)], "wafer"),
        ([b.name for b in blocks], "block"),
    ):
        report.unique(((n.id, n.span) for n in names), what)
    for b in blocks:
        if b.name.id in BUILTINS:
            message = f"`{b.name.id}` is an operation already"
            report.add(Code.DUPLICATE, message, b.name.span, "", "give the block another name")
    train = _only_train(file, trains, report)
    model = _named(train.model, models, "model", report) if train else None
    system = next((s for s in systems if train and s.name.id == train.wafer.id), None)
    wafer = _wafer_of(system or train, wafers, report) if train else None
    report.finish()
    assert train is not None
    assert model is not None
    assert wafer is not None
    return Selection(train, model, wafer, {b.name.id: b for b in blocks}, system)


def _wafer_of(of: ast.Train | ast.System, wafers: Iterable[ast.Wafer], report: Report) -> ast.Wafer | None:
    """The wafer that a system is made of, or that is trained on."""
    if isinstance(of, ast.Train):
        return _named(of.wafer, wafers, "wafer", report)
    entry = next((e for e in of.body.lines if isinstance(e, ast.Wafers)), None)
    if entry is None:
        example = "add, for example, `wafers 2 x 2 of temp`"
        report.add(Code.MISSING, f"system `{of.name.id}` has no `wafers`", of.name.span, "", example)
        return None
    return _named(entry.wafer, wafers, "wafer", report)


def _only_train(file: ast.File, trains: Sequence[ast.Train], report: Report) -> ast.Train | None:
    if not trains:
        message = "nothing to train: the file has no `train` section" if file.items else "the file is empty"
        help = "a program is a `wafer`, a `model` and `train MODEL on WAFER { ... }`"
        last = file.items[-1] if file.items else None
        span = file.span if last is None or isinstance(last, ast.Train) else last.name.span
        report.add(Code.MISSING, message, span, "", help)
        return None
    for extra in trains[1:]:
        message = "a file has one `train` section"
        report.add(Code.DUPLICATE, message, extra.model.span, "again", "keep one", trains[0].model.span)
    return trains[0]


def _named(name: ast.Name, among: Iterable[Named], what: str, report: Report) -> Named | None:
    by_name = {item.name.id: item for item in among}
    if name.id not in by_name:
        help = hint(name.id, by_name, f"define it: `{what} {name.id} ...`")
        report.add(Code.UNKNOWN_NAME, f"unknown {what} `{name.id}`", name.span, "", help)
    return by_name.get(name.id)
