"""Mistakes of people in textual IR: refused in their place, by the limits that a field declares, by every door."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.texts import STRATEGIES, draw, fault, texts
from tests.ir.test_verify import complete
from wscc.diagnostics import Code, CompileError, Source
from wscc.diagnostics.limits import beyond_limits, limits_of
from wscc.driver.module_text import after_passes, read_module
from wscc.ir.text.parse import parse
from wscc.ir.text.print import to_text
from wscc.ir.text.words import read_scalar
from wscc.ir.train import LrSchedule, Optimizer, Train
from wscc.machine.wafer import Die, Link, Wafer
from wscc.passes.differentiate import Differentiate

BEYOND = ("nan", "inf", "-inf", "-1", "1e400", str(2**70 * 10**12), "7.5", "true", "0")
RECORDS = {
    Train: "train",
    Optimizer: "optimizer",
    LrSchedule: "lr_schedule",
    Wafer: "wafer",
    Die: "die",
    Link: "link",
}


@pytest.mark.parametrize("kind", RECORDS, ids=RECORDS.get)
def test_each_number_has_limits_which_a_text_and_a_module_keep(kind: type) -> None:
    text = to_text(complete("level graph axes", []))
    line = next(x for x in text.split("\n") if x.startswith(f"{RECORDS[kind]} "))
    numbers = [n for n, t in get_type_hints(kind).items() if t in (int, float)]
    limits = limits_of(kind)
    assert set(numbers) <= set(limits)
    for name, spelled in product(numbers, BEYOND):
        value = read_scalar(spelled)
        if limits[name].admit(value):
            continue
        changed = re.sub(rf" {name}=\S+", f" {name}={spelled}", line)
        with pytest.raises(CompileError) as caught:
            parse(Source("case.wir", text.replace(line, changed)))
        span = caught.value.diagnostics[0].label.span
        assert span.source is not None
        assert span.source.text[span.start : span.end] == spelled
        record = {
            Train: parse(Source("case.wir", text)).train,
            Optimizer: Optimizer(),
            LrSchedule: LrSchedule(),
            Die: Die(),
            Link: Link(),
        }
        if kind in record:
            assert [n for n, _ in beyond_limits(replace(record[kind], **{name: value}))] == [name]


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("batch=8", "batch=9", "`batch`: 9 sequences are no whole number for 2 micro-batches"),
        ("warmup=0 decay=0", "warmup=9 decay=9", "`decay`: the cosine ends at step 9, before the warm-up does"),
        ("hbm_bandwidth=1000", "hbm_bandwidth=0", "must be positive where there is HBM"),
        ("axes tp=2", "axes tp=9", "its axes need 9 dies, and the wafer has 8 alive"),
        ("axes tp=2", f"axes tp={2**63}", "its axes need"),
        ("link band", "dead die 7, 0\nlink band", "cannot stand here"),
        ("channels=2\n", "channels=2\ndead die 7, 0\n", "dead die (7, 0) is not on the mesh"),
        ("channels=2\n", "channels=2\ndead link 0, 0 to 1, 1\n", "does not join two neighbours"),
        ("rows=2 cols=4", "rows=1048576 cols=4", "the largest has 1048576"),
        ("extents=(2)", "extents=(3)", "an input holds [3] x 4 sequences, and the training has 2 micro-batches of 4"),
        ("rates(lr=0.1", "rates(lr=nan", "`lr` must be from 0 up to (not including) 1e+06, not nan"),
        ("kind=param", "kind=grad", "it is no parameter, and has rates of the optimizer"),
        ("lr=0.1 clip", "lr=inf clip", "`lr` must be from 0 up to"),
        ("warmup=0 decay=0 floor", "warmup=9 decay=3 floor", "the cosine ends at step 3"),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_refused_with_its_line(good: str, bad: str, words: str) -> None:
    lines = [
        "array %w : f32[4,8] kind=param rates(lr=0.1 weight_decay=0.0)", "array %x : i32[4,8] kind=input extents=(2)",
        "proc @p(%w : f32[4,8], %n : f32[], %t : i32[]) -> (%y write) {",
        "  %y = sgd(%w, %w, %n, %t) {i j, i j, ,  -> i j} lr=0.1 clip=0.0 warmup=0 decay=0 floor=0.0 : f32[4,8]", "}",
    ]  # fmt: skip
    text = to_text(complete("level graph axes tp=2", lines))
    assert read_module(Source("case.wir", text))
    assert good in text
    with pytest.raises(CompileError) as caught:
        read_module(Source("case.wir", text.replace(good, bad)))
    assert all(d.label.span.source is not None and d.code is Code.BAD_IR for d in caught.value.diagnostics)
    assert words in caught.value.diagnostics[0].message or words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the end of the file"),
        ("module m level graph axes" + " a=1" * 10**6, "a line has 4,000,025 characters"),
        ('module "' + "x" * 10**6, "a line has 1,000,008 characters"),
        ("\ufeffmodule m", "cannot stand here"),
        ("dies <" + "(" * 10**5, "cannot stand here"),
    ],
    ids=["empty", "one line", "a long name", "a mark inside", "brackets"],
)
def test_texts_that_are_none_are_refused_at_once(text: str, words: str) -> None:
    with pytest.raises(CompileError, match=words) as caught:
        parse(Source("case.wir", text))
    assert caught.value.diagnostics[0].label.span.source is not None


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 32))
def test_mistakes_of_people_are_refused_in_their_place(seed: int) -> None:
    text, passes = draw(seed, 0)
    assert fault(text, passes) == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    call @prologue(%tokens[mb], %wte, %x[0])\n", "", "procedure `@prologue`: no call runs it"),
        (
            "loop mb < 2 {\n    call @prologue",
            "loop mb < 1 {\n    call @prologue",
            "it runs 1 times, and a step has 2",
        ),
        ("add(%x, %project.1)", "add(%x, %projekt)", "`%projekt` is not defined before this"),
        ("%x[2], %wte, %labels", "%x[3], %wte, %labels", "an index of `%x` runs from 3 to 3"),
    ],
)
def test_a_program_that_passes_cannot_take_is_refused_in_its_place(old: str, new: str, words: str) -> None:
    text = texts(STRATEGIES[0])[0][0]
    assert old in text
    with pytest.raises(CompileError) as caught:
        after_passes(read_module(Source("x.wir", text.replace(old, new))), [Differentiate()])
    d = caught.value.diagnostics[0]
    assert d.code is Code.BAD_IR
    assert d.label.span.line > 1
    assert words in d.message
