"""The layers of the stages as a person writes them, `stages 0 8 8 8`: refused where they are no cut of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wscc.diagnostics import Code, CompileError, Proposal, fail
from wscc.ir.module import Module
from wscc.strategy import POLICIES, stage_axes, with_degree


def check_by_hand(
    module: Module, layers: int, least: Sequence[int], balanced: Callable[[], Sequence[int]]
) -> None:
    """Fail with W201 unless `stages` has a number for each chunk, at least `least`, and all are the model's `layers`.

    What the error proposes is what `balanced` gives, and as many stages as there are numbers.
    """
    given = module.train.stages
    if len(given) != len(least):
        raise _refusal(
            module,
            f"has {_several(len(given), 'number')}, and {_chunks_in_words(module, len(least))}",
            [*_as_many_stages(module), _stages(balanced())],
        )
    if sum(given) != layers:
        raise _refusal(
            module,
            f"adds up to {_several(sum(given), 'layer')}, and the model has {layers:,}",
            [_stages(balanced())],
        )
    idle = [c for c, (n, m) in enumerate(zip(given, least, strict=True)) if n < m]
    if idle:
        raise _refusal(
            module,
            f"leaves {_chunk(module)} {idle[0]} nothing to run",
            [_stages(balanced())],
            "0 may stand first, for what comes before all layers, and last, for what comes behind them",
        )


def check_unstaged(module: Module) -> None:
    """Fail with W201 where the training says something of stages, and the strategy has none."""
    train = module.train
    if train.interleave > 1:
        raise fail(
            Code.DEGREE,
            f"`interleave {train.interleave}` is of pipeline stages, and the strategy has none",
            candidates=[Proposal(sets=(("train.interleave", "1"),))],
        )
    if train.stages:
        changes = [*_as_many_stages(module), Proposal(sets=(("train.stages", "auto"),))]
        raise _refusal(module, "is of pipeline stages, and the strategy has none", changes)


def _refusal(module: Module, words: str, candidates: Sequence[Proposal], help: str = "") -> CompileError:
    numbers = " ".join(map(str, module.train.stages))
    message = f"`stages {numbers}` {words}"
    return fail(
        Code.DEGREE, message, module.spans.stages,
        help=help or "`stages` has the layers of each pipeline stage, in order",
        candidates=candidates,
    )  # fmt: skip


def _stages(counts: Sequence[int]) -> Proposal:
    return Proposal(sets=(("train.stages", " ".join(map(str, counts))),))


def _as_many_stages(module: Module) -> list[Proposal]:
    """As many stages as there are numbers, if each gets as many chunks as now."""
    count, rest = divmod(len(module.train.stages), module.train.interleave)
    (axis,) = stage_axes(POLICIES)
    return [] if rest or count < 2 else [Proposal(with_degree(module.axes, axis, count))]


def _chunks_in_words(module: Module, chunks: int) -> str:
    (axis,) = stage_axes(module.sizes)
    if module.train.interleave == 1:
        return f"`{axis} = {chunks}` has {_several(chunks, 'stage')}"
    return f"`{axis} = {module.sizes[axis]}` with `interleave {module.train.interleave}` has {chunks} chunks"


def _chunk(module: Module) -> str:
    return "stage" if module.train.interleave == 1 else "chunk"


def _several(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"
