"""The data of a run: its rows, and what of them it has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wscc.backends.artifact.files import Artifact
from wscc.diagnostics import Code, fail
from wscc.driver.edges import in_order
from wscc.host.data import Batch, counted
from wscc.host.data_file import ORDER, DataFile
from wscc.host.inputs import LABELS, Input
from wscc.host.rows import Data, Rows, rows_of
from wscc.ir.module import Module


def rows_of_run(
    artifact: Artifact, inputs: tuple[Input, ...], given: Data | None, graph: Module
) -> Rows | None:
    """The rows of the data given, or of the program's own; None if tokens come from the seed.
    `CompileError` W503 where they do not fit, or there are none to hold out."""
    train, data = artifact.manifest.train, given
    if artifact.data is not None and (given is None or graph.contents):
        own = DataFile(train.data, artifact.data)
        data = own if given is None else _in_order(graph, given, own)
    if data is not None:
        return rows_of(data, inputs, train, graph.contents)
    if train.validation_rows or train.validation_percent:
        raise fail(
            Code.DATA, "`validation` holds out rows of a file, and the program has no data",
            help="write `data` in the `train` section, or run it with `--data FILE`",
        )  # fmt: skip
    return None


def _in_order(graph: Module, given: Data, own: DataFile) -> Data:
    """Data given with nodes in the order that the program's own data have, if they have one."""
    arrays = given.arrays() if isinstance(given, DataFile) and given.has_arrays else given
    order = own.arrays().get(ORDER)
    if order is None or not isinstance(arrays, Mapping):
        return given
    return in_order(graph, arrays, order)


def require_validation(rows: Rows | None) -> None:
    """Raise W503 if no rows are held out."""
    if rows is None or not rows.held_out.size:
        raise fail(
            Code.DATA, "a validation loss is asked for, and the program holds out no rows",
            help="write `validation 10 %` in the `train` section, or compile with `--set train.validation=10%`",
        )  # fmt: skip


@dataclass(slots=True)
class LabelCount:
    """The labels of batches: those that count, and those that are ignored."""

    counted: int = 0
    ignored: int = 0

    def add(self, batch: Batch) -> None:
        """Count those of a batch, too."""
        self.counted += counted(batch)
        self.ignored += batch[LABELS].size - counted(batch)


@dataclass(frozen=True, slots=True)
class DataUse:
    """What a run read: from the `seed`, a `text`, or `arrays`. `rows` are those to train on (of a text, places where a
    sequence may begin), `validation_rows` those held out, labels those of all steps together."""

    source: str
    rows: int
    validation_rows: int
    labels_counted: int
    labels_ignored: int

    @staticmethod
    def of(rows: Rows | None, labels: LabelCount) -> DataUse:
        read = labels.counted, labels.ignored
        if rows is None:
            return DataUse("seed", 0, 0, *read)
        return DataUse("text" if rows.drawn else "arrays", rows.trained, len(rows.held_out), *read)
