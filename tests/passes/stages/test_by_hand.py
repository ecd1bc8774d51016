"""`stages 0 8 8 8`: cuts by hand compute what one device does, and what is no cut of the model is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.end_to_end.test_equality import judged, reference
from tests.passes.test_stages import staged
from tests.support.frontend_help import TINY
from tests.support.models import Shape, gpt, llama
from wscc.diagnostics import Code, CompileError, Source
from wscc.driver.compile import compile_source
from wscc.frontend.fmt import fmt
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.ir.module import Module
from wscc.ir.text.parse import parse as parse_ir
from wscc.ir.text.print import to_text
from wscc.ir.verify import verify
from wscc.machine.wafer import Wafer

SHAPE = Shape(layers=3, calls=4, batch=4)
Family = Callable[..., Module]


def layers_by_stage(module: Module, array: str) -> list[list[int]]:
    """By stage, the layers of which it holds the weight."""
    parts = [a for a in module.arrays if (a.of or a.name) == array]
    return [
        sorted(i for a in parts if a.stage == s for i in range(a.first, a.first + a.extents[0]))
        for s in range(module.stages)
    ]


@pytest.mark.parametrize(
    ("family", "degrees", "stages", "interleave", "expected"),
    [
        (gpt, {"pp": 3}, (0, 3, 0), 1, [[], [0, 1, 2], []]),
        (gpt, {"pp": 3, "tp": 2}, (0, 1, 2), 1, [[], [0], [1, 2]]),
        (llama, {"pp": 2, "dp": 2}, (3, 0), 1, [[0, 1, 2], []]),
        (llama, {"pp": 3, "tatp": 2}, (2, 1, 0), 1, [[0, 1], [2], []]),
        (gpt, {"pp": 2}, (0, 2, 1, 0), 2, [[2], [0, 1]]),
        (llama, {"pp": 2}, (1, 1, 1, 0), 2, [[0, 2], [1]]),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_cuts_by_hand_equal_one_device(
    family: Family,
    degrees: dict[str, int],
    stages: tuple[int, ...],
    interleave: int,
    expected: list[list[int]],
) -> None:
    """With a tied table (gpt) and without; the embedding alone, the head alone, and both."""
    shape = Shape(layers=3, calls=4, batch=4 * degrees.get("dp", 1) * degrees.get("tatp", 1))
    module = family(degrees, shape, interleave=interleave, stages=stages)
    weight = "block.w2"
    assert layers_by_stage(staged(module), weight) == expected
    check = judged(module, reference(family, shape, "adamw"))
    assert check.ok, check


def test_the_numbers_of_the_automatic_cut_make_the_same_program() -> None:
    by_work = staged(llama({"pp": 3}, Shape(layers=7)))
    counts = [len(layers) for layers in layers_by_stage(by_work, "block.w2")]
    by_hand = staged(llama({"pp": 3}, Shape(layers=7), stages=counts))
    assert by_hand.with_(train=by_work.train) == by_work


# -- refusals -----------------------------------------------------------------------------------------------

HEADLESS = """
wafer w { mesh 1 x 4 die { peak 1 TFLOP/s, sram 80 MB } link { bandwidth 1 TB/s, latency 100 ns } }
model m(layers = 4) {
  input tokens : i32[batch, 4]
  input labels : i32[batch, 4]
  param wte : [8, 8] init normal(0.1)
  x = embedding(tokens, wte)
  repeat layers as block { param w : [8, 8] init normal(0.1)  x = x @ w }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w { batch 8 microbatch 1 optimizer sgd(lr = 0.1) parallel pp = 4 }
"""


BOTH, CUT = ["parallel", "train.stages"], ["train.stages"]


@pytest.mark.parametrize(
    ("stages", "parallel", "more", "message", "proposals"),
    [
        ("1 2 2", "pp=3", (), "`stages 1 2 2` adds up to 5 layers, and the model has 4", CUT),
        ("0 0 0", "pp=3", (), "`stages 0 0 0` adds up to 0 layers, and the model has 4", CUT),
        ("0 4", "pp=3", (), "`stages 0 4` has 2 numbers, and `pp = 3` has 3 stages", BOTH),
        ("2 0 2", "pp=3", (), "`stages 2 0 2` leaves stage 1 nothing to run", CUT),
        ("2 2", "dp=2", (), "`stages 2 2` is of pipeline stages, and the strategy has none", BOTH),
        (
            "2 2", "pp=2", ("train.interleave=2",),
            "`stages 2 2` has 2 numbers, and `pp = 2` with `interleave 2` has 4 chunks", CUT,
        ),
        (
            "0 0 2 2", "pp=2", ("train.interleave=2",),
            "`stages 0 0 2 2` leaves chunk 1 nothing to run", CUT,
        ),
    ],
)  # fmt: skip
def test_what_is_no_cut_is_refused_with_what_would_work(
    stages: str, parallel: str, more: tuple[str, ...], message: str, proposals: list[str]
) -> None:
    with pytest.raises(CompileError) as refused:
        compile_source(
            Source("m.wsl", HEADLESS), Overrides(sets=(f"train.stages={stages}", *more), parallel=parallel)
        )
    diagnostic = refused.value.diagnostics[0]
    assert (diagnostic.code, diagnostic.message) == (Code.DEGREE, message)
    assert diagnostic.label.span.source == Source("<command line>", f"--set train.stages={stages}")
    assert [key for p in diagnostic.proposals for key in p.keys] == proposals


def test_numbers_of_layers_are_whole() -> None:
    with pytest.raises(CompileError) as refused:
        compile_source(Source("m.wsl", HEADLESS), Overrides(sets=("train.stages=1.5 1 1 1",)))
    assert refused.value.diagnostics[0].code is Code.NUMBER


# -- texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["stages 0 8 8 8", "stages auto"])
def test_the_setting_is_printed_as_it_is_written(words: str) -> None:
    text = TINY.replace("clip 1.0", f"clip 1.0\n  {words}\n")
    assert f"\n  {words}\n" in fmt(parse(Source("t.wsl", text)))


def test_a_textual_module_holds_the_cut() -> None:
    module = gpt({"pp": 3}, SHAPE, wafer=Wafer("w", 1, 3), stages=(0, 3, 0))
    assert "\nstages 0 3 0\n" in to_text(module)
    assert parse_ir(Source("m.wir", to_text(module))) == module
    broken = parse_ir(Source("m.wir", to_text(module).replace("stages 0 3 0", "stages 0 -3 6")))
    (mistake,) = verify(broken)
    assert mistake.message == "module `tiny`: `stages` must be an integer from 0 to 2147483647, not -3"
