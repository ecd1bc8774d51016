"""The call order that `stages` makes by itself."""

from __future__ import annotations

from wscc.ir.module import Module
from wscc.ir.text.call_order import CallOrder, Lines, LoopLines, Number, Numbered, numbers
from wscc.passes.stages.cut import check_groups
from wscc.passes.stages.cutter import Cutter
from wscc.passes.stages.roll_loops import Item, Repeated
from wscc.passes.stages.work_items import Work
from wscc.strategy import stage_axes

_VARIABLE = "m"


def call_order(module: Module) -> CallOrder:
    """The calls of a partitioned module in the order of `stages`, without exchanges between stages.

    Fails as `stages` does.
    """
    axes = stage_axes(module.sizes)
    check_groups(module, axes)
    cutter = Cutter(module, axes[0] if axes else "")
    cutter.run()
    return call_order_of(cutter)


def call_order_of(cutter: Cutter) -> CallOrder:
    """The call order of a cutter without given orders, which has run."""
    return CallOrder(tuple(_stage(w, e) for w, e in zip(cutter.works, cutter.entries, strict=True)))


def _stage(works: list[Work], entries: list[Item | Repeated]) -> Lines:
    tasks: dict[tuple[bool, int], list[Work]] = {}
    for w in works:
        if w.task is not None:
            tasks.setdefault(w.task, []).append(w)
    task_positions = [i for i, w in enumerate(works) if w.task is not None]
    before, after = works[: task_positions[0]], works[task_positions[-1] + 1 :]
    lines = [w.line(None) for w in before]
    for entry in entries:
        if isinstance(entry, Item):
            lines += _item(entry, tasks, looped=False)
            continue
        body = [line for item in entry.items for line in _item(item, tasks, looped=True)]
        if body:
            iterations = numbers(0, (entry.count - 1) * entry.step, entry.step)
            lines.append(Numbered(LoopLines(_VARIABLE, iterations, tuple(body))))
    return (*lines, *(w.line(None) for w in after))


def _item(item: Item, tasks: dict[tuple[bool, int], list[Work]], *, looped: bool) -> Lines:
    match item.key:
        case (bool() as backward, int() as chunk):
            m = Number(item.microbatches[0], _VARIABLE if looped else "")
            return tuple(w.line(m) for w in tasks[backward, chunk])
    return ()  # an exchange between stages
