"""Tests of textual IR: a printed module reads back as the same module; every mistake of a text is marked in place."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.ir.test_verify import complete
from tests.support import models
from tests.support.generate import modules
from tests.support.generate_fabric import fabric_modules
from tests.support.generate_header import Dice
from wscc.diagnostics import Code, CompileError, Source
from wscc.diagnostics.render import render
from wscc.ir.array import Kind
from wscc.ir.module import Level, Module
from wscc.ir.op import Op
from wscc.ir.step import Affine
from wscc.ir.text.die_text import read_ints, spell_ints
from wscc.ir.text.parse import parse
from wscc.ir.text.print import to_text
from wscc.ir.text.words import Misspelt, read_scalar, read_word, spell_scalar, spell_word
from wscc.ir.verify import verify
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition

EVERY_LEVEL = st.one_of(modules(), modules(Level.SHARDED), fabric_modules())


def read(text: str) -> Module:
    return parse(Source("case.wir", text))


# ------------------------------------------------------------------------------------------------ round trips


@settings(max_examples=20, deadline=None)
@given(modules())
def test_graph_modules_read_back(m: Module) -> None:
    check_round_trip(m)


@settings(max_examples=20, deadline=None)
@given(modules(Level.SHARDED))
def test_sharded_modules_read_back(m: Module) -> None:
    check_round_trip(m)


@settings(max_examples=20, deadline=None)
@given(fabric_modules())
def test_fabric_modules_read_back(m: Module) -> None:
    check_round_trip(m)


def check_round_trip(m: Module) -> None:
    text = to_text(m)
    assert [d.message for d in verify(m)] == []
    assert read(text) == m
    assert to_text(read(text)) == text


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from((models.gpt, models.llama)),
    st.sampled_from(({"tp": 2}, {"dp": 2, "tatp": 2})),
    st.integers(1, 3),
)
def test_training_steps_read_back_at_both_op_levels(model, degrees, layers) -> None:  # type: ignore[no-untyped-def]
    m = model(degrees, models.Shape(layers=layers))
    check_round_trip(m)
    check_round_trip(Differentiate().run(m))
    check_round_trip(Partition().run(Differentiate().run(m)))


def test_attributes_that_may_be_left_out_read_back_and_stand_together() -> None:
    plain, options = "sign=1.0", "width=2 factor=8.0 low=1.0 high=4.0 original=32.0 interleaved=0"
    text = to_text(models.llama({"tp": 2}, models.Shape(layers=1)))
    m = read(text.replace(plain, f"{plain} {options}"))
    check_round_trip(m)
    derived = Differentiate().run(m)
    check_round_trip(Partition().run(derived))
    assert to_text(derived).count(options) == 2 * to_text(m).count(options) > 0
    for wrong in ("width=2", options.replace("width=2", "width=3"), options.replace("=8.0", "=0.0")):
        assert verify(read(text.replace(plain, f"{plain} {wrong}")))


@given(st.lists(st.integers(-99, 99), max_size=12), st.integers(-9, 9), st.integers(1, 9), st.integers(0, 9))
@example([1, 0], 2, 4, 0)
def test_integers_by_die_read_back(block: list[int], step: int, times: int, tail: int) -> None:
    values = tuple(v + k * step for k in range(times) for v in block) + tuple(block[:tail])
    assert read_ints(spell_ints(values)) == values


def test_regular_integers_take_little_room() -> None:
    assert spell_ints(tuple(range(1024))) == "<0+1*1024>"
    assert spell_ints((7,) * 5) == "<7*5>"
    assert spell_ints(tuple(i ^ 1 for i in range(1024))) == "<(1,0)+2*512>"
    assert spell_ints((4, 1, 2, 3, -1)) == "<4,1+1*3,-1>"
    nested = tuple(a * 100 + b * 7 + c for a in range(8) for b in (0, 3) for c in range(4))
    assert len(spell_ints(nested)) < 30


@given(st.one_of(st.text(), st.integers(-(10**30), 10**30), st.floats(allow_nan=False), st.booleans()))
@example("true")
@example("1e5")
@example("-inf")
@example(-0.0)
def test_scalars_read_back_with_their_type(value: bool | int | float | str) -> None:
    again = read_scalar(spell_scalar(value))
    assert (repr(again), type(again)) == (repr(value), type(value))


@given(st.text())
def test_words_stay_on_their_line(name: str) -> None:
    assert read_word(spell_word(name)) == name
    assert "\n" not in spell_word(name)


# --------------------------------------------------------------------------------------------- by hand

HAND = """\
proc @p(%x : f32[8/dp,64], %w : f32[64,32/tp]) -> (%y write, %s add) {
  ; a comment, and a statement in two lines
  %y = matmul(%x,
      %w) {b k, k n -> b n} stream(n over tp, in 1) origin p.fwd/y : f32[8/dp,32]
  %s = sum(%x) {b k -> } : f32[] sum(dp)
}
step {
  loop l < 4 {
    call @p(%a, %b[3 - 1*l, (2*l + 5) mod 7], %c, %d)
  }
}"""


def test_a_text_reads_as_what_it_says() -> None:
    m = complete("level sharded axes dp=2 tp=2", HAND.split("\n"))
    matmul, total = m.procedures[0].ops
    assert (matmul.stream.factor, matmul.stream.axis, matmul.stream.moving_in) == ("n", "tp", (1,))
    assert matmul.origin == "p.fwd/y"
    assert matmul.operands[1].type.layout.dims == ((), ("tp",))
    assert total.results[0].type.layout.partial == (("dp", "sum"),)
    assert m.procedures[0].outputs[1].mode == "add"
    loop = m.step[0]
    assert loop.body[0].args[1].index == (Affine(3, (("l", -1),)), Affine(5, (("l", 2),), 7))


def test_statements_carry_their_span() -> None:
    m = complete("level sharded axes dp=2 tp=2", HAND.split("\n"))
    (_, total) = m.procedures[0].ops
    assert isinstance(total, Op)
    span = total.span
    assert span.source is not None
    assert span.source.text[span.start : span.end] == "%s = sum(%x) {b k -> } : f32[] sum(dp)"
    assert span.source.text.split("\n")[span.line - 1][span.column - 1 :].startswith("%s = sum")


def test_the_type_of_an_output_is_printed_only_where_no_definition_has_it() -> None:
    m = complete(
        "level fabric axes tp=2",
        ["dies <0,1>", "proc @p(%x : f32[8]) -> (%x add, %y write : f32[4/tp]) {", "}"],
    )
    assert "proc @p(%x : f32[8]) -> (%x add, %y write : f32[4/tp]) {" in to_text(m)


def test_kinds_of_arrays_of_earlier_versions_are_read() -> None:
    lines = ["array %a : f32[8] kind=saved", "array %b : bf16[8] kind=compute_copy"]
    m = complete("level graph axes", lines)
    assert [a.kind for a in m.arrays] == [Kind.RESIDUAL, Kind.COMPUTE_COPY]


# ------------------------------------------------------------------------------------------------- mistakes


MISTAKES = {
    "%y = relu(%z) {i -> i} : f32[8]": ("`%z` is not defined before this", "%z"),
    "%y = relu(%x) {i -> i} : f32[8], f32[8]": ("`relu` has 1 results and 2 types", "relu"),
    "%y = relu(%x) : f32[8]": ("`relu` has no index rule", "relu"),
    "%y = mask(%x) {i -> i} axis=tp : f32[8]": ("a reshard has no rule, no stream and no origin", "mask"),
    "%y = mask(%x, %x) axis=tp : f32[8]": ("a reshard takes one operand and gives one result", "mask"),
    "%y = slice(%x) axis=tp : f32[8]": ("the attributes of `slice` are `axis` (str), `dim` (int)", "slice"),
    "%y = all_reduce(%x) axis=tp reduction=min : f32[8]": ("`min` is no reduction: sum, max", "all_reduce"),
    "%y = relu(%x) {I -> i} : f32[8]": ("`I -> i` is not an index rule", "{I -> i}"),
    "%y = relu(%x) {i -> i} : f32[8/tp]": ("a type has no axes at the graph level", "f32[8/tp]"),
    "%y = relu(%x) {i -> i} : f32[a]": ("`a` is not an integer", "f32[a]"),
    "%y = relu(%x) {i -> i} f32[8]": ("`f32` cannot stand here", "f32"),
    "%y = relu(%x {i -> i} : f32[8]": ("`{` cannot stand here", "{"),
    '%y = relu(%x) {i -> i} origin "\\q" : f32[8]': (
        "this is not a quoted string; a backslash is written `\\\\`", '"\\q"'
    ),
    "%y = scale(%x) {i -> i} factor=<1> : f32[8]": ("`factor` is one number, not one for each die", "<1>"),
    f"%y = scale(%x) {{i -> i}} factor={'9' * 50} : f32[8]": ("a number of 50 digits is too long", "9" * 50),
    "fill %b[8] value=0.0": ("`%b` is no buffer or argument of this procedure", "%b[8]"),
    "fill %x[8:1,4]": ("either each dimension has a stride, `size:stride`, or none has", "%x[8:1,4]"),
    "fill %x+<0,1+>[8] value=0.0": ("`+` cannot stand in a list of integers here", "%x+<0,1+>[8]"),
    "fill %x[8] value=0.0 where <(0,1>": ("a bracket is not closed", "<(0,1>"),
    "fill %x[8] value=0.0 where <0+1>": ("`+1` needs a count, as in `+1*4`", "<0+1>"),
    "fill %x[8] value=0.0 where <0*9999999>": ("more than 1048576 integers", "<0*9999999>"),
    "wait 0": ("`0` cannot stand here", "0"),
}  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_named_and_marked(line: str) -> None:
    message, words = MISTAKES[line]
    with pytest.raises(CompileError) as caught:
        complete("level graph axes", ["proc @p(%x : f32[8]) -> () {", f"  {line}", "}"])
    (d,) = caught.value.diagnostics
    span = d.label.span
    assert (d.code, d.message) == (Code.BAD_IR, message)
    assert span.source is not None
    assert span.source.text[span.start : span.end] == words
    assert span.source.text.split("\n")[span.line - 1].strip() == line


def test_several_unknown_names_are_reported_together() -> None:
    with pytest.raises(CompileError) as caught:
        complete(
            "level graph axes", ["proc @p() -> (%a write) {", "  %y = add(%b, %c) {i, i -> i} : f32[8]", "}"]
        )
    assert [d.message.split()[0] for d in caught.value.diagnostics] == ["`%b`", "`%c`", "`%a`"]


def test_loops_without_end_are_refused() -> None:
    lines = ["step {", *["loop l < 1 {"] * 5000, *["}"] * 5000, "}"]
    with pytest.raises(CompileError, match="loops more than 32 deep"):
        complete("level graph axes", lines)


def test_a_text_with_the_older_spelling_of_the_learning_rates_schedule_is_read() -> None:
    text = to_text(complete("level graph axes", []))
    line = "lr_schedule warmup=3 decay=9 floor=0.5\n"
    text = re.sub(r"lr_schedule .*\n", line, text)
    assert read(text) == read(text.replace(line, line.removeprefix("lr_")))
    assert line in to_text(read(text))


def test_settings_that_are_nothing_may_be_left_out() -> None:
    """Texts that were written before a setting was in the language are read as they were meant."""
    text = to_text(complete("level graph axes", []))
    left_out = re.sub(r" (validation_\w+|clip|data|seed)=\S+", "", text)
    nothing = re.sub(r" (validation_\w+|clip|seed)=\S+", r" \1=0", text)
    assert left_out != text
    assert read(left_out) == read(re.sub(r" data=\S+", ' data=""', nothing))


def test_the_header_is_checked() -> None:
    text = to_text(complete("level graph axes", []))
    for good, bad, message in (
        ("rows=2", "rows=0", "`rows` must be an integer from 1 to 1048576, not 0"),
        ("rows=2", "rows=2.5", "`rows` is an integer, not `2.5`"),
        ("rows=2", "raws=2", "`raws` is not a field here"),
        ("rows=2 ", "", "`rows` is missing"),
        ("rows=2", "rows=2 rows=2", "`rows` is given twice"),
        ("compute=f32", "compute=f31", "`f31` is no element type"),
        ("level graph", "level grape", "`grape` is no level"),
    ):
        assert good in text
        with pytest.raises(CompileError, match=message):
            read(text.replace(good, bad))


@settings(max_examples=30, deadline=None)
@given(EVERY_LEVEL, st.integers(0, 1 << 32))
def test_a_damaged_text_gives_a_module_or_a_mistake_in_place(m: Module, seed: int) -> None:
    rng = random.Random(seed)
    text = to_text(m)
    for _ in range(4):
        damaged = text
        for _ in range(rng.randint(1, 3)):
            damaged = damage(damaged, rng)
        try:
            read_again = read(damaged)
        except CompileError as error:
            for d in error.diagnostics:
                span = d.label.span
                assert 0 <= span.start <= span.end <= len(damaged)
                assert span.line == damaged.count("\n", 0, span.start) + 1
            render(error)
        else:
            if not [*verify(read_again)]:  # the verifier must not fall over anything that parses
                assert read(to_text(read_again)) == read_again


def damage(text: str, rng: random.Random) -> str:
    """The text with some characters deleted, overwritten or repeated, or two lines exchanged."""
    i, kind = rng.randrange(len(text)), rng.randrange(4)
    if kind == 0:
        return text[:i] + text[i + rng.choice((1, 1, 2, 10)) :]
    if kind == 1:
        return text[:i] + rng.choice('()[]{}<>,;:%@*+-=." \n\t\x0001239abdex~!/\\_é') + text[i + 1 :]
    if kind == 2:
        j = rng.randrange(len(text))
        return text[:i] + text[j : j + rng.choice((1, 5, 30))] + text[i:]
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text", ["", "\n", ";", "\x00", "module", "module m level graph axes", "{" * 100_000, "é"]
)
def test_a_text_that_is_no_module_has_one_mistake(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        read(text)
    assert len(caught.value.diagnostics) == 1


def test_names_are_drawn_that_must_be_quoted() -> None:
    drawn = {Dice(seed).name() for seed in range(500)}
    assert {"a b", "true", "\n"} <= drawn


def test_a_word_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(Misspelt):
        read_word('"\\x"')
