"""Call orders that are refused: by name, with the line and what would work."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.call_orders import refusal, sharded, small, text_of, usual
from wscc.diagnostics import Code, CompileError, Source
from wscc.ir.text.call_order import MOST_CALLS, to_call_order_text
from wscc.ir.text.call_order_read import read_call_order
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.passes.stages.default_order import call_order


@cache
def good() -> list[str]:
    return to_call_order_text(call_order(sharded("pp")), "gpt").splitlines()


def edited(*edits: tuple[str, str]) -> str:
    """The table of `pp`, in which the first line with these columns becomes other lines."""
    lines = list(good())
    for old, new in edits:
        position = next(i for i, line in enumerate(lines) if line.split() == old.split())
        lines[position : position + 1] = new.splitlines()
    return "\n".join(lines)


# What is given, the code, words of the message and of the help.
WRONG: dict[str, tuple[str | list[tuple[str, str]], Code, str, str]] = {
    "nothing": ("# only a comment", Code.CALL_TABLE, "no stage", "stage 0"),
    "two columns": ("stage 0\nbegin -", Code.CALL_TABLE, "three columns", "block.fwd"),
    "no number": ("stage 0\nbegin 1,2 -", Code.CALL_TABLE, "no range", "0..6:2"),
    "below zero": ("stage 0\nbegin -1 -", Code.CALL_TABLE, "no range", "0..6:2"),
    "no variable": ("stage 0\nbegin m -", Code.CALL_TABLE, "`m`", "none"),
    "no end": ("stage 0\nloop m = 0..3\nbegin - -", Code.CALL_TABLE, "no `end`", "`end`"),
    "no loop": ("stage 0\nend", Code.CALL_TABLE, "without a loop", "leave"),
    "empty": ("stage 0\nloop m = 0..3\nend\n", Code.CALL_TABLE, "no call", "leave"),
    "same variable": ("stage 0\nloop m = 0..3\nloop m = 0..3", Code.CALL_TABLE, "already", "name"),
    "outside": ("begin - -", Code.CALL_TABLE, "first stage", "stage 0"),
    "stage order": ("stage 1\nbegin - -", Code.CALL_TABLE, "stage 0 belongs", "from 0"),
    "one stage": ("stage 0\nbegin - -", Code.CALL_TABLE, "1 stage", "wscc call-order"),
    "endless": (
        "stage 0\nloop m = 0..999999999\nbegin - -\nend\nstage 1", Code.LIMIT, f"{MOST_CALLS:,}", "fewer"
    ),
    "unknown": ([("begin - -", "began - -")], Code.CALL_TABLE, "`began`", "did you mean `begin`"),
    "of another": ([("begin - -", "start - -")], Code.CALL_TABLE, "stage 0 has no", "stage 1"),
    "layer": ([("block.fwd 0..1 0", "block.fwd 0..2 0")], Code.CALL_TABLE, "layer 2", "0..1"),
    "column": ([("begin - -", "begin - 0")], Code.CALL_TABLE, "micro-batch 0", "`-`"),
    "twice": ([("add - -", "add - -\nadd - -")], Code.CALL_TABLE, "again", "remove"),
    "never": ([("add - -", "")], Code.CALL_TABLE, "never makes `add`", "`add - -`"),
    "early update": (
        [("norm2.over_stages - -", ""), ("embed.update - -", "embed.update - -\nnorm2.over_stages - -")],
        Code.CALL_ORDER, "`embed.update` reads `%norm2` before `norm2.over_stages` of line", "up",
    ),
    "backward first": (
        [("head.fwd - 0", ""), ("head.bwd - 0", "head.bwd - 0\nhead.fwd - 0")],
        Code.CALL_ORDER, "before `head.fwd` of micro-batch 0 of line", "up",
    ),
    "layers swapped": (
        [("block.fwd 2..3 0", "block.fwd 3..2 0")], Code.CALL_ORDER, "before `block.fwd` of layer 2", "up"
    ),
    "late zeros": (
        [("zero.4 2..3 -", ""), ("head.bwd - 4", "head.bwd - 4\nzero.4 2..3 -")],
        Code.CALL_ORDER, "before `zero.4` of layer 3", "up",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_refused_with_the_line_and_what_would_work(case: str) -> None:
    edits, code, message, help = WRONG[case]
    text = edits if isinstance(edits, str) else edited(*edits)
    diagnostic = refusal("pp", text)
    assert (diagnostic.code, message in diagnostic.message, help in diagnostic.help) == (code, True, True), (
        diagnostic
    )
    assert 0 < diagnostic.label.span.line <= len(text.splitlines())


def test_a_step_of_too_many_calls_is_refused_before_they_are_listed() -> None:
    """10^9 micro-batches: the usual table is read, an edited one is not walked."""
    module = Partition().run(Differentiate().run(small({"pp": 2}, 1_000_000_000)))
    text = to_call_order_text(call_order(module), "")
    assert Stages(Source("t", text)).run(module) == Stages().run(module)
    with pytest.raises(CompileError) as refused:
        Stages(Source("t", text.replace("block.norm  ", "block.nrom  "))).run(module)
    diagnostic = refused.value.diagnostics[0]
    assert (diagnostic.code, f"{MOST_CALLS:,}" in diagnostic.message) == (Code.LIMIT, True)


def test_stages_that_would_deadlock_are_named() -> None:
    """Stage 0 wants micro-batch 0 back before it sends micro-batch 1, and stage 1 the other way round."""
    order = usual("pp")
    fwd = [o for o in order[1] if o.call in ("block.fwd", "head.fwd") and o.microbatch == 1]
    rest = [o for o in order[1] if o not in fwd]
    position = next(i for i, o in enumerate(rest) if o.microbatch == 0 and o.call == "block.fwd")
    first = [o for o in order[0] if o.call.endswith(".bwd") and o.microbatch == 0]
    other = [o for o in order[0] if o not in first]
    insertion = next(i for i, o in enumerate(other) if o.microbatch == 1 and o.call.endswith(".fwd"))
    text = text_of(
        [[*other[:insertion], *first, *other[insertion:]], [*rest[:position], *fwd, *rest[position:]]]
    )
    diagnostic = refusal("pp", text)
    assert diagnostic.code is Code.CALL_ORDER
    for words in ("stage 0 (line ", "stage 1 (line ", "`block.bwd` of micro-batch 0", "of micro-batch 1"):
        assert words in diagnostic.message
    assert "move" in diagnostic.help


def test_calls_in_which_stages_communicate_stand_in_one_order() -> None:
    """Stage 1 would sum norms over the stages before the last gradients are passed, stage 0 behind them."""
    order = [list(s) for s in usual("pp")]
    exchange = next(o for o in order[1] if o.call.startswith("pass"))
    order[1].remove(exchange)
    order[1].append(exchange)
    diagnostic = refusal("pp", text_of(order))
    assert diagnostic.code is Code.CALL_ORDER
    assert exchange.call in diagnostic.message


WORDS = (
    "stage",
    "loop",
    "end",
    "m",
    "=",
    "0..3",
    "7..m:2",
    "m-1",
    "2-m",
    "-",
    "3",
    "a.b",
    "#",
    "\n",
    "\n",
    "\0",
    "é",
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=24))
def test_any_text_is_a_table_or_refused(words: list[str]) -> None:
    try:
        table = read_call_order(Source("t", "stage 0\n" + " ".join(words)))
    except CompileError as error:
        (diagnostic,) = error.diagnostics
        assert (diagnostic.code, diagnostic.label.span.line > 0) == (Code.CALL_TABLE, True)
        return
    assert read_call_order(Source("t", to_call_order_text(table, "again"))).same_as(table)
