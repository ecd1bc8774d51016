"""Tests of the text of the streams level: it reads back whole, and its mistakes are marked in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import CompileError
from wscc.ir.step import Affine
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.streams.program import (
    Address,
    Code,
    Column,
    Instruction,
    Operand,
    Program,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
)
from wscc.ir.streams.wsa import instruction_text, parse_wsa, to_wsa
from wscc.ir.types import DType
from wscc.ir.views import contiguous_strides

NAMES = st.one_of(
    st.sampled_from(
        ["block.fwd", "step", "call", "loop", "mb", "role", "true", "inf", "a0", "post", "x.grad.1"]
    ),
    st.text(max_size=6),
)
COLUMNS = st.builds(Column, st.integers(0, 99))
INTEGERS = st.integers(-(2**63), 2**63)
DTYPES = st.sampled_from(list(DType))
SCALARS = st.one_of(st.booleans(), INTEGERS, st.floats(allow_nan=False), st.text(max_size=5), COLUMNS)


@st.composite
def operands(draw: st.DrawFn) -> Operand:
    shape = tuple(draw(st.lists(st.integers(0, 2**40), max_size=4)))
    any_strides = st.tuples(*[st.integers(-(2**40), 2**40) for _ in shape])
    strides = draw(st.one_of(st.just(contiguous_strides(shape)), any_strides))
    return Operand(
        draw(st.integers(-1, 12)), draw(st.one_of(INTEGERS, COLUMNS)), shape, strides, draw(DTYPES)
    )


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    row = draw(st.sampled_from(list(INSTRUCTIONS.values())))
    return Instruction(
        row.opcode,
        tuple(draw(operands()) for _ in row.writes.split()),
        tuple(draw(operands()) for _ in row.reads.split()),
        tuple((name, draw(SCALARS)) for name in row.attr_names),
    )


CODES = st.builds(Code, NAMES, st.integers(0, 12), st.lists(instructions(), max_size=4).map(tuple))
PROGRAMS = st.builds(Program, st.integers(0, 99), st.lists(CODES, max_size=3).map(tuple), st.integers(0, 3))
AFFINES = st.builds(
    Affine,
    INTEGERS,
    st.lists(st.tuples(NAMES, INTEGERS), max_size=3).map(tuple),
    st.integers(0, 2**40),
)
ADDRESSES = st.builds(Address, INTEGERS, st.lists(st.tuples(AFFINES, INTEGERS), max_size=3).map(tuple))
CALLS = st.builds(ProgramCall, NAMES, st.lists(ADDRESSES, max_size=3).map(tuple))
STEPS: st.SearchStrategy[ProgramStep] = st.recursive(
    st.lists(CALLS, max_size=3).map(tuple),
    lambda body: st.lists(
        st.one_of(CALLS, st.builds(ProgramLoop, NAMES, st.integers(0, 2**40), body)), max_size=3
    ).map(tuple),
    max_leaves=4,
)


@given(st.lists(PROGRAMS, max_size=2).map(tuple), st.lists(STEPS, min_size=1, max_size=3).map(tuple))
@settings(max_examples=20, deadline=None)
def test_text_round_trip(programs: tuple[Program, ...], steps: tuple[ProgramStep, ...]) -> None:
    text = to_wsa(programs, steps)
    read = parse_wsa(text)
    assert read == (programs, steps)
    assert to_wsa(*read) == text


def test_procedures_of_one_body_keep_their_names_and_arguments() -> None:
    body = (Instruction("delay", (), (), (("time", 7),)),) * 2
    codes = [Code(name, args, body) for name, args in (("f", 1), ("f", 2), ("g", 1), ("f", 1))]
    programs = tuple(Program(role, (code,)) for role, code in enumerate(codes))
    read, _ = parse_wsa(to_wsa(programs, ((),)))
    assert read == programs
    assert [read[0].procedures[0] is p.procedures[0] for p in read] == [True, False, False, True]


def test_an_instruction_reads_as_one_line() -> None:
    gemm = Instruction(
        "gemm",
        (Operand(2, 0, (512, 64), (64, 1), DType.F32),),
        (
            Operand(0, 128, (512, 128), (1, 512), DType.F32),
            Operand(-1, Column(7), (128, 64), (64, 1), DType.BF16),
        ),
        (("scale", 0.125), ("accumulate", False)),
    )
    assert instruction_text(gemm) == (
        "gemm f32[512,64]@a2 <- f32[512,128;1,512]@a0+128, bf16[128,64]@$7 scale=0.125 accumulate=false"
    )
    wait = Instruction("wait", attrs=(("channel", Column(3)), ("side", "sent")))
    assert instruction_text(wait) == 'wait channel=$3 side="sent"'


def test_white_space_and_comments_mean_nothing() -> None:
    text = """# a program
    role 0 { procedure f(1) { fill f32[ 4 ]@a0 value=1.0 } } step { call f(0 + 64*[l + 1 % 4]) }""".replace(
        " 4 ]", "4]"
    )
    spread = text.replace(" {", "\n{  # here\n").replace("[ ", "[").replace("call", "  call\n")
    assert parse_wsa(spread) == parse_wsa(text)
    assert parse_wsa(text)[1] == ((ProgramCall("f", (Address(0, ((Affine(1, (("l", 1),), 4), 64),)),)),),)


LINE = "role 0 {\n procedure f(1) {\n  %s\n }\n}\nstep { }\n"
MISTAKES: dict[str, tuple[str, tuple[int, int], str]] = {
    "opcode": (LINE % "gem f32[4]@0", (3, 3), "unknown opcode `gem`"),
    "writes": (LINE % "fill value=1.0", (3, 3), "writes 1 and reads 0, not 0 and 0"),
    "reads": (LINE % "add f32[]@0 <- f32[]@0", (3, 3), "reads 2, not 1 and 1"),
    "attributes": (LINE % "scale f32[]@0 <- f32[]@0 facter=1.0", (3, 3), "(factor), not (facter)"),
    "missing attribute": (LINE % "wait channel=1", (3, 3), "(channel side), not (channel)"),
    "order of attributes": (
        LINE % 'wait side="sent" channel=1',
        (3, 3),
        "(channel side), not (side channel)",
    ),
    "type": (LINE % "fill f33[4]@0 value=1.0", (3, 8), "`f33` is not an element type"),
    "strides": (LINE % "fill f32[4,4;1]@0 value=1.0", (3, 8), "one size and one stride"),
    "shape": (LINE % "fill f32[4,,4]@0 value=1.0", (3, 8), "integers"),
    "negative": (LINE % "fill f32[-4]@0 value=1.0", (3, 8), "size"),
    "address": (LINE % "fill f32[4] value=1.0", (3, 3), "writes 1 and reads 0, not 0 and 0"),
    "value": (LINE % "fill f32[4]@0 value=", (4, 2), "unexpected `}`"),
    "string": (LINE % 'wait channel=1 side="\\q"', (3, 23), "JSON"),
    "no step": ("role 0 { }", (1, 11), "unexpected end of the text"),
    "end of the step": ("step { loop i 3 { call f() }", (1, 29), "unexpected end of the text"),
    "number": ("step { call f(1.5) }", (1, 16), "unexpected `.5)`"),
    "nothing": ("", (1, 1), "unexpected end"),
    "garbage": ("\x00\ufffe", (1, 1), "unexpected"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_shown_where_it_is(name: str) -> None:
    text, place, words = MISTAKES[name]
    with pytest.raises(CompileError) as caught:
        parse_wsa(text, "p.wsa")
    (d,) = caught.value.diagnostics
    assert d.code is ErrorCode.BAD_IR
    assert words in d.message
    assert (d.label.span.file, d.label.span.line, d.label.span.column) == ("p.wsa", *place)


@pytest.mark.parametrize(
    "deep", [lambda n: "step {" + "loop i 2 {" * n, lambda n: "step { call f(1" + "+1*[1]" * n]
)
def test_depth_and_length_do_not_break_the_reader(deep: Callable[[int], str]) -> None:
    with pytest.raises(CompileError, match="unexpected end"):
        parse_wsa(deep(3000))


LAID_OUT = """role 0 {
  procedure f(1) {
    fill f32[4]@a0 value=1.0
    wait channel=0 side="sent"
%s  }
}
step {
}
"""


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("    fill f32[4]@0\n      value=1.0\n", 3),
        ("    fill f32[4]@0 value=1.0 fill f32[4]@4 value=1.0\n", 4),
        ("    # nothing\n", 2),
        ("  } procedure g(1) {\n    fill f32[4]@0 value=1.0\n", 2),
        ("  }\n  procedure g(1) { } # {\n  procedure h(1) {\n", 2),
    ],
)
def test_a_text_in_lines_may_have_others_between(lines: str, count: int) -> None:
    """Lines of the usual form are read by themselves, which must not change what a text means."""
    (program,), _ = parse_wsa(LAID_OUT % lines)
    one_line = " ".join(line.partition("#")[0] for line in (LAID_OUT % lines).split("\n"))
    assert (program,) == parse_wsa(one_line)[0]
    assert len(program.procedures[0].body) == count


def test_an_instruction_outside_of_a_procedure_is_refused() -> None:
    with pytest.raises(CompileError, match="unexpected `fill`"):
        parse_wsa(LAID_OUT % "  }\n    fill f32[4]@0 value=1.0\n")
