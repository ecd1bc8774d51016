"""Options of the command line change a program as if it had been written so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frontend_help import TINY, errors, is_shown, outcome, run
from wscc.diagnostics import Code, CompileError, UsageError
from wscc.diagnostics.render import render
from wscc.frontend.overrides import COMMAND_LINE, SETTINGS, Overrides
from wscc.ir.train import LrSchedule, Optimizer
from wscc.ir.types import DType

BASE = run(TINY)


def changed(*sets: str, **options: object) -> object:
    return run(TINY, Overrides(sets=sets, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "old", "new"),
    [
        ("train.batch=32", "batch 16", "batch 32"),
        ("train.microbatch=2", "microbatch 4", "microbatch 2"),
        ("train.data=other.txt", "tiny-text.txt", "other.txt"),
        ('train.data="two words.txt"', "tiny-text.txt", "two words.txt"),
        ("train.optimizer=sgd(lr = 0.1)", "adamw(lr = 3e-3, weight_decay = 0.1)", "sgd(lr = 0.1)"),
        ("train.optimizer.lr=1e-2", "lr = 3e-3", "lr = 1e-2"),
        ("train.optimizer.beta1=0.8", "lr = 3e-3", "lr = 3e-3, beta1 = 0.8"),
        ("train.clip=0.5", "clip 1.0", "clip 0.5"),
        ("train.lr_schedule=warmup(5), cosine(50)", "warmup(20)", "warmup(5), cosine(50)"),
        ("train.dtype=compute bf16", "compute f32, params f32, grads f32", "compute bf16"),
        ("train.dtype.compute=bf16", "compute f32", "compute bf16"),
        ("train.recompute=full", "recompute none", "recompute full"),
        ("train.parallel=tp = 4", "dp = 2, tatp = 2, tp = 2", "tp = 4"),
        ("train.parallel.tp=1", ", tp = 2", ""),
        ("train.seed=9", "clip 1.0", "clip 1.0 seed 9"),
        ("model.layers=2", "layers = 4", "layers = 2"),
        ("model.d=16 * 8", "d = 64", "d = 128"),
        ("wafer.mesh=4x8", "mesh 2 x 4", "mesh 4 x 8"),
        ("wafer.die.sram=1 GiB", "sram 80 MB", "sram 1 GiB"),
        ("wafer.die.hbm=80 GB", "hbm 72 GB at", "hbm 80 GB at"),
        ("wafer.die.hbm=80 GB at 2 TB/s", "hbm 72 GB at 1 TB/s", "hbm 80 GB at 2 TB/s"),
        ("wafer.link.latency=1us", "latency 200 ns", "latency 1 us"),
    ],
)
def test_set_is_the_same_as_writing_it(option: str, old: str, new: str) -> None:
    assert old in TINY
    by_option, written = run(TINY, Overrides(sets=(option,))), run(TINY.replace(old, new, 1))
    assert by_option.wafer == written.wafer
    assert by_option.config == written.config
    assert by_option.sizes == written.sizes
    assert (by_option.wafer, by_option.config, by_option.sizes) != (BASE.wafer, BASE.config, BASE.sizes)


def test_every_setting_can_be_set() -> None:
    values = {
        "batch": "8", "microbatch": "2", "data": "x", "validation": "7 rows", "clip": "2", "seed": "3",
        "optimizer": "sgd(lr = 1)", "lr_schedule": "warmup(1)", "dtype": "grads f64", "recompute": "full",
        "parallel": "dp = 2", "zero": "3", "interleave": "2", "decay": "matrices", "stages": "0 2 2",
    }  # fmt: skip
    assert set(values) == set(SETTINGS)
    config = run(TINY, Overrides(sets=tuple(f"train.{k}={v}" for k, v in values.items()))).config
    assert (config.batch, config.microbatch, config.data, config.clip, config.seed) == (8, 2, "x", 2.0, 3)
    assert (config.optimizer, config.lr_schedule) == (Optimizer("sgd", 1.0), LrSchedule(1))
    assert (config.dtypes.grads, config.recompute, config.strategy) == (DType.F64, "full", {"dp": 2})
    assert (config.zero, config.interleave, config.decay) == (3, 2, "matrices")
    assert config.stages == (0, 2, 2)
    assert run(TINY, Overrides(sets=("train.stages=4", "train.stages=auto"))).config.stages == ()


def test_the_older_spelling_of_a_setting_sets_the_same() -> None:
    sets = ("train.lr_schedule=warmup(9)", "train.schedule=warmup(5)")
    assert run(TINY, Overrides(sets=sets)).config.lr_schedule == LrSchedule(5)
    assert run(TINY, Overrides(sets=sets[::-1])).config.lr_schedule == LrSchedule(9)
    span = errors(TINY, Overrides(sets=("train.schedule=warmup(9), cosine(5)",))).diagnostics[0].label.span
    assert (span.start, span.end) == (len("--set train."), len("--set train.schedule=warmup(9), cosine(5)"))


def test_later_options_win_and_add_up() -> None:
    config = run(TINY, Overrides(sets=("train.batch=32", "train.parallel.dp=1", "train.batch=8"))).config
    assert (config.batch, config.strategy) == (8, {"tatp": 2, "tp": 2})


def test_parallel_replaces_the_whole_strategy() -> None:
    assert run(TINY, Overrides(parallel="dp=2,tp=4")).config.strategy == {"dp": 2, "tp": 4}
    assert run(TINY, Overrides(parallel=" tatp = 8 ")).config.strategy == {"tatp": 8}
    assert (
        run(TINY.replace("parallel dp = 2, tatp = 2, tp = 2", ""), Overrides(parallel="dp=1")).config.strategy
        == {}
    )
    assert (
        run(TINY.replace("dp = 2, tatp = 2, tp = 2", "auto"), Overrides(parallel="dp=1")).config.strategy
        == {}
    )


def test_dtype_sets_every_role() -> None:
    dtypes = run(TINY, Overrides(dtype="f64")).config.dtypes
    assert {dtypes.compute, dtypes.params, dtypes.grads} == {DType.F64}


def test_damage_adds_up_with_that_of_the_file() -> None:
    text = TINY.replace("mesh 2 x 4", "mesh 3 x 4 dead die (0, 0)")
    wafer = run(text, Overrides(dead=("die:1,3", "link:0,2-0,1", "link:1,1-2,1"))).wafer
    assert wafer.dead_dies == {(0, 0), (1, 3)}
    assert wafer.dead_links == {((0, 1), (0, 2)), ((1, 1), (2, 1))}


# ---- mistakes

USAGE = [
    (Overrides(sets=("train.bacth=32",)), Code.OPTION, "did you mean `batch`?"),
    (Overrides(sets=("model.layer=2",)), Code.OPTION, "did you mean `layers`?"),
    (Overrides(sets=("wafer.die.hmb=1 GB",)), Code.OPTION, "did you mean `hbm`?"),
    (Overrides(sets=("wafer.size=2x4",)), Code.OPTION, "mesh"),
    (Overrides(sets=("chips.mesh=2x4",)), Code.OPTION, "wafer"),
    (Overrides(sets=("train.optimizer.lrr=1",)), Code.OPTION, "did you mean `lr`?"),
    (Overrides(sets=("train.batch.x=1",)), Code.OPTION, "--set train.batch=..."),
    (Overrides(sets=("train.batch",)), Code.OPTION, "--set train.batch=32"),
    (Overrides(sets=("batch=3",)), Code.OPTION, "--set train.batch=32"),
    (Overrides(sets=("train.batch=",)), Code.OPTION, "--set train.batch=32"),
    (Overrides(sets=("train.batch=many",)), Code.SYNTAX, ""),
    (Overrides(sets=("train.batch=3 4",)), Code.SYNTAX, ""),
    (Overrides(sets=("train.batch=3 clip 4",)), Code.SYNTAX, ""),
    (Overrides(sets=("train.batch=1.5",)), Code.NUMBER, ""),
    (Overrides(sets=("train.dtype.comput=bf16",)), Code.UNKNOWN_KEY, "did you mean `compute`?"),
    (Overrides(sets=("wafer.mesh=2",)), Code.SYNTAX, "mesh 4 x 8"),
    (Overrides(sets=("wafer.die.sram=80",)), Code.UNIT, "80 MB"),
    (Overrides(sets=("wafer.die.sram=80 mb",)), Code.UNIT, "did you mean `MB`?"),
    (Overrides(sets=("wafer.die.sram=80 ns",)), Code.UNIT, "80 MB"),
    (Overrides(parallel="dp"), Code.SYNTAX, ""),
    (Overrides(parallel="dpp=2"), Code.UNKNOWN_KEY, ""),
    (Overrides(parallel="dp=2,dp=2"), Code.DUPLICATE, ""),
    (Overrides(parallel=""), Code.SYNTAX, ""),
    (Overrides(dtype="f31"), Code.OPTION, "known here: bf16, f32, f64"),
    (Overrides(dead=("die:1",)), Code.OPTION, "--dead die:1,3"),
    (Overrides(dead=("core:1,2",)), Code.OPTION, "--dead die:1,3"),
    (Overrides(dead=("link:0,0-0",)), Code.OPTION, "--dead link:0,0-0,1"),
]


@pytest.mark.parametrize(("options", "code", "help"), USAGE, ids=lambda v: str(v)[:60])
def test_a_malformed_option_is_a_usage_error_with_a_caret_into_it(
    options: Overrides, code: Code, help: str
) -> None:
    error = errors(TINY, options)
    assert isinstance(error, UsageError)
    assert error.diagnostics[0].code is code
    assert help in error.diagnostics[0].help
    assert error.diagnostics[0].label.span.file == COMMAND_LINE
    assert "^" in render(error)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (Overrides(parallel="tp=16"), Code.TOO_MANY_DIES),
        (Overrides(parallel="dp=3"), Code.DEGREE),
        (Overrides(parallel="auto"), Code.NO_SEARCH),
        (Overrides(dead=("die:9,9",)), Code.OFF_MESH),
        (Overrides(dead=("link:0,0-1,1",)), Code.OFF_MESH),
        (Overrides(sets=("model.d=65",)), Code.NUMBER),
        (Overrides(sets=("model.layers=1e12",)), Code.LIMIT),
        (Overrides(sets=("wafer.mesh=1x2",)), Code.TOO_MANY_DIES),
    ],
    ids=lambda v: str(v)[:60],
)
def test_a_sound_option_that_cannot_be_satisfied_is_an_error_of_the_program(
    options: Overrides, code: Code
) -> None:
    error = errors(TINY, options)
    assert not isinstance(error, UsageError)
    assert error.diagnostics[0].code is code


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["train.", "model.", "wafer.die.", "wafer.", "train.optimizer.", "train.parallel.", ""]),
    st.sampled_from(["batch", "d", "lr", "dp", "mesh", "sram", "data", "x"]),
    st.one_of(
        st.text(max_size=8), st.sampled_from(["=1", "=1e999999", "=(1", '="', "=2x2", "=1 GB", "=a.b"])
    ),
)
def test_any_option_works_or_is_a_rendered_error(head: str, key: str, value: str) -> None:
    for options in (
        Overrides(sets=(head + key + value,)),
        Overrides(parallel=key + value),
        Overrides(dead=(value,)),
    ):
        result = outcome(lambda o=options: run(TINY, o))
        assert not isinstance(result, CompileError) or is_shown(result)


def test_options_leave_the_rest_alone() -> None:
    other = run(TINY, Overrides(sets=("train.seed=9",)))
    assert other.config == replace(BASE.config, seed=9)
    assert other.model == BASE.model
