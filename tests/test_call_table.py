"""The calls of a step as a table: written and read back, edited and right, or refused with the line."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import Shape, gpt, llama
from tests.oracles.symbols import Symbols
from tests.strategies import judged_artifact, reference
from wscc.backends.emit_files import Artifact, load_artifact, write_artifact
from wscc.cli import main
from wscc.compiler import compile_graph
from wscc.diagnostics import Code, CompileError, Diagnostic, Source
from wscc.frontend.elaborate import elaborate
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.call_table import MOST_CALLS, One, one_by_one, to_table_text
from wscc.ir.call_table_read import read_table
from wscc.ir.module import Module, calls
from wscc.ir.types import DType
from wscc.machine.wafer import Wafer
from wscc.passes.choices import Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.passes.stages_default import call_table
from wscc.recompiled import differences

Order = list[list[One]]

SKIPS = """
wafer w { mesh 2 x 2  die { peak 1 TFLOP/s, sram 1 MB, hbm 1 GB at 1 TB/s, tile 8, efficiency 1 TFLOP/s/W }
  link { bandwidth 1 TB/s, latency 1 ns, flit 64 B, energy 1 pJ/bit, channels 2 } }
model m() {
  input tokens : i32[batch, 4]
  input labels : i32[batch, 4]
  param wte : [16, 8] init normal(0.1)
  m = embedding(tokens, wte)
  x = m
  repeat 4 as block { param w : [8, 8] init normal(0.1)  x = x + gelu(m @ w) }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w { batch 6  microbatch 1  optimizer adamw(lr = 1e-3)  clip 1.0
  dtype compute f64, params f64, grads f64  parallel pp = 3 }
"""


def small(degrees: dict[str, int], micro: int, layers: int = 4, each: int = 1) -> Module:
    shape = Shape(
        batch=micro * degrees.get("dp", 1), calls=micro, layers=layers, seq=4, d=8, ffn=16, vocab=16
    )
    return gpt(degrees, shape, wafer=Wafer("w", 2, 4), interleave=each)


MODELS: dict[str, Callable[[], Module]] = {
    "dp": lambda: small({"dp": 2}, 3),
    "tp": lambda: llama({"tp": 2}, Shape(batch=2, calls=2)),
    "tatp": lambda: gpt({"tatp": 2}, Shape(batch=4, calls=2)),
    "pp": lambda: small({"pp": 2, "dp": 2}, 5),
    "pp interleaved": lambda: small({"pp": 2}, 4, each=2),
    "pp of 3": lambda: small({"pp": 3}, 6, layers=5),
    "skips": lambda: elaborate(resolve(parse(Source("skips.wsl", SKIPS)))),
}


@cache
def sharded(name: str) -> Module:
    return Partition().run(Differentiate().run(MODELS[name]()))


@cache
def usual(name: str) -> Order:
    return [[one for one, _ in stage] for stage in one_by_one(call_table(sharded(name)))]


@cache
def symbols(name: str) -> dict[object, object]:
    return dict(Symbols(Stages().run(sharded(name))).run())


def text_of(order: Order) -> str:
    """One line per call."""
    out = []
    for stage, ones in enumerate(order):
        out.append(f"stage {stage}")
        for o in ones:
            out.append(
                " ".join(["  " + o.call, *("-" if n is None else str(n) for n in (o.layer, o.microbatch))])
            )
    return "\n".join(out)


def ordered(name: str, text: str) -> Module:
    return Stages(Source("t.txt", text)).run(sharded(name))


def refusal(name: str, text: str) -> Diagnostic:
    with pytest.raises(CompileError) as refused:
        ordered(name, text)
    return refused.value.diagnostics[0]


# -- there and back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_table_that_is_written_changes_nothing(name: str) -> None:
    """Whether in loops or call by call; and where nobody gives one, nothing is different."""
    module = sharded(name)
    table = call_table(module)
    text = to_table_text(table, "a title")
    assert read_table(Source("t.txt", text)).same_as(table)
    plain = Stages().run(module)
    assert ordered(name, text) == plain
    assert ordered(name, text_of(usual(name))) == plain


def test_the_text_is_read_by_people() -> None:
    text = to_table_text(call_table(sharded("pp")), "gpt")
    stage = text.split("stage 1")[1].splitlines()
    assert "loop m = 0..2" in stage
    assert "  block.fwd         2..3        m+1" in stage
    assert "  block.bwd         3..2        m+1" in stage


def test_neither_table_nor_program_grows_with_microbatches() -> None:
    """Of the usual order there is no limit; an edited one is held in loops again."""
    few, many = (Partition().run(Differentiate().run(small({"pp": 2}, n))) for n in (60, 6000))
    text = to_table_text(call_table(many), "")
    assert len(text.splitlines()) == len(to_table_text(call_table(few), "").splitlines())
    assert Stages(Source("t.txt", text)).run(many) == Stages().run(many)
    made = [
        Stages(Source("t.txt", text_of(gpipe(m)))).run(m)
        for m in (Partition().run(Differentiate().run(small({"pp": 2}, n))) for n in (8, 16))
    ]
    assert len(list(calls(made[0].step))) == len(list(calls(made[1].step)))


def gpipe(module: Module) -> Order:
    """All forward work of a stage before all backward work."""
    out: Order = []
    for stage in one_by_one(call_table(module)):
        ones = [one for one, _ in stage]
        work = [o for o in ones if o.call.endswith((".fwd", ".bwd"))]
        at = [i for i, o in enumerate(ones) if o in work]
        work.sort(key=lambda o: o.call.endswith(".bwd"))
        out.append([*ones[: at[0]], *work, *ones[at[-1] + 1 :]])
    return out


# -- right in another order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [{"pp": 2}, {"dp": 2}], ids=["pp", "dp"])
def test_gpipe_equals_one_device(degrees: dict[str, int], tmp_path: Path) -> None:
    """In f64 and checked mode, two AdamW steps; and what is made of the artifact's own table again is the same."""
    shape = Shape(batch=3 * degrees.get("dp", 1), calls=3, seq=4, d=8, ffn=16, vocab=16)
    module = gpt(degrees, shape, wafer=Wafer("w", 2, 4))
    text = text_of(gpipe(Partition().run(Differentiate().run(module))))
    artifact = compile_graph(module, choices=Choices(schedule=Source("t.txt", text))).artifact
    check = judged_artifact(artifact, module, reference(gpt, shape, DType.F64, "adamw"), DType.F64)
    assert check.ok, check
    write_artifact(tmp_path / "a", artifact)
    again: Artifact = load_artifact(tmp_path / "a")
    assert again.schedule == text
    if "pp" in degrees:
        assert not list(differences(again, module))


def test_more_micro_batches_in_flight_get_more_slots() -> None:
    made = ordered("pp", text_of(gpipe(sharded("pp"))))
    assert {a.extents[0] for a in made.arrays if a.of == "block.gelu"} == {5}
    without = Stages(Source("t.txt", text_of(gpipe(sharded("dp"))))).run(sharded("dp"))
    assert [a.extents for a in without.arrays if a.name == "block.gelu"] == [(3, 4)]


def drawn(name: str, rng: random.Random) -> Order:
    """A random order of the tasks that works by construction, with updates of layers in any order."""
    order = usual(name)
    homes: dict[tuple[int | None, bool], list[tuple[int, One]]] = {}
    for stage, ones in enumerate(order):
        for o in ones:
            if o.call.endswith((".fwd", ".bwd")):
                homes.setdefault((o.microbatch, o.call.endswith(".bwd")), []).append((stage, o))
    done: Order = [[] for _ in order]
    # By micro-batch, what is left of its way through the stages and back.
    ways = {m: chain(homes, m) for m, back in homes if not back}
    while ways:
        m = rng.choice(sorted(ways))
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            if ways[m]:
                stage, one = ways[m].pop(0)
                done[stage].append(one)
        if not ways[m]:
            del ways[m]
    out: Order = []
    for stage, ones in enumerate(order):
        at = [i for i, o in enumerate(ones) if o.call.endswith((".fwd", ".bwd"))]
        after = ones[at[-1] + 1 :]
        for i in range(len(after) - 1, 0, -1):
            if after[i].call == after[i - 1].call and after[i].layer is not None and rng.random() < 0.5:
                after[i - 1 : i + 1] = after[i - 1 : i + 1][::-1]
        out.append([*ones[: at[0]], *done[stage], *after])
    return out


def chain(
    homes: dict[tuple[int | None, bool], list[tuple[int, One]]], m: int | None
) -> list[tuple[int, One]]:
    """The calls of a micro-batch as one device would make them."""
    forward = [c for c in homes[m, False] if not c[1].call.startswith(("epilogue", "head"))]
    last = [c for c in homes[m, False] if c[1].call.startswith(("epilogue", "head"))]
    forward.sort(key=lambda c: (c[1].layer is not None, c[1].layer))
    backward = [c for c in homes[m, True] if c[1].call.startswith(("epilogue", "head"))]
    middle = [c for c in homes[m, True] if c[1].layer is not None]
    end = [c for c in homes[m, True] if c[1].layer is None and not c[1].call.startswith(("epilogue", "head"))]
    middle.sort(key=lambda c: -(c[1].layer or 0))
    return [*forward, *last, *backward, *middle, *end]


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([n for n in MODELS if n not in ("tp", "tatp")]), st.integers(0, 1 << 30))
def test_any_order_that_works_on_one_device_equals_the_usual(name: str, seed: int) -> None:
    order = drawn(name, random.Random(seed))
    made = ordered(name, text_of(order))
    assert Symbols(made).run() == symbols(name)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(MODELS)),
    st.lists(
        st.tuples(st.integers(0), st.integers(-8, 8), st.sampled_from("mmmmdx")), min_size=1, max_size=4
    ),
)
def test_a_random_edit_is_refused_or_equal(name: str, edits: list[tuple[int, int, str]]) -> None:
    """Moved (`m`), doubled (`d`) or dropped (`x`) lines."""
    order = [list(stage) for stage in usual(name)]
    for where, by, what in edits:
        stage = order[where % len(order)]
        i = where // len(order) % len(stage)
        one = stage.pop(i) if what != "d" else stage[i]
        if what != "x":
            stage.insert(max(0, i + by), one)
    try:
        made = ordered(name, text_of(order))
    except CompileError as error:
        (found,) = error.diagnostics
        assert found.code in (Code.CALL_TABLE, Code.CALL_ORDER)
        assert found.label.span.line > 0
        assert found.help
        return
    assert Symbols(made).run() == symbols(name)


# -- refused ------------------------------------------------------------------------------------------------


@cache
def good() -> list[str]:
    return to_table_text(call_table(sharded("pp")), "gpt").splitlines()


def edited(*edits: tuple[str, str]) -> str:
    """The table of `pp`, in which the first line with these columns becomes other lines."""
    lines = list(good())
    for old, new in edits:
        at = next(i for i, line in enumerate(lines) if line.split() == old.split())
        lines[at : at + 1] = new.splitlines()
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
    "one stage": ("stage 0\nbegin - -", Code.CALL_TABLE, "1 stage", "wscc schedule"),
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
    given, code, message, help = WRONG[case]
    text = given if isinstance(given, str) else edited(*given)
    found = refusal("pp", text)
    assert (found.code, message in found.message, help in found.help) == (code, True, True), found
    assert 0 < found.label.span.line <= len(text.splitlines())


def test_stages_that_would_wait_in_a_circle_are_named() -> None:
    """Stage 0 wants micro-batch 0 back before it sends micro-batch 1, and stage 1 the other way round."""
    order = usual("pp")
    fwd = [o for o in order[1] if o.call in ("block.fwd", "head.fwd") and o.microbatch == 1]
    rest = [o for o in order[1] if o not in fwd]
    at = next(i for i, o in enumerate(rest) if o.microbatch == 0 and o.call == "block.fwd")
    first = [o for o in order[0] if o.call.endswith(".bwd") and o.microbatch == 0]
    other = [o for o in order[0] if o not in first]
    here = next(i for i, o in enumerate(other) if o.microbatch == 1 and o.call.endswith(".fwd"))
    text = text_of([[*other[:here], *first, *other[here:]], [*rest[:at], *fwd, *rest[at:]]])
    found = refusal("pp", text)
    assert found.code is Code.CALL_ORDER
    for words in ("stage 0 (line ", "stage 1 (line ", "`block.bwd` of micro-batch 0", "of micro-batch 1"):
        assert words in found.message
    assert "move" in found.help


def test_calls_in_which_stages_meet_stand_in_one_order() -> None:
    """Stage 1 would sum norms over the stages before the last gradients are passed, stage 0 behind them."""
    order = [list(s) for s in usual("pp")]
    meet = next(o for o in order[1] if o.call.startswith("pass"))
    order[1].remove(meet)
    order[1].append(meet)
    found = refusal("pp", text_of(order))
    assert found.code is Code.CALL_ORDER
    assert meet.call in found.message


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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=24))
def test_any_text_is_a_table_or_refused(words: list[str]) -> None:
    try:
        table = read_table(Source("t", "stage 0\n" + " ".join(words)))
    except CompileError as error:
        (found,) = error.diagnostics
        assert (found.code, found.label.span.line > 0) == (Code.CALL_TABLE, True)
        return
    assert read_table(Source("t", to_table_text(table, "again"))).same_as(table)


# -- the command line ---------------------------------------------------------------------------------------


def test_the_command_line_writes_and_reads_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = str(Path(__file__).parent.parent / "samples" / "gpt-tiny.wsl"), str(tmp_path / "calls.txt")
    assert main(["schedule", model, "-o", table]) == 0
    assert main(["schedule", model, "--schedule", table]) == 0
    assert capsys.readouterr().out == Path(table).read_text()
    assert main(["schedule", model, "-o", str(tmp_path)]) == 1
    assert main(["compile", model, "--schedule", str(tmp_path)]) == 1
    Path(table).write_text(Path(table).read_text().replace("block.norm", "block.nrom"))
    capsys.readouterr()
    assert main(["compile", model, "--schedule", table, "-o", str(tmp_path / "x")]) == 1
    error = capsys.readouterr().err
    assert "error[W204]" in error
    assert "did you mean `block.norm`?" in error
    assert f"{table}:" in error


def test_the_tour_of_layers_and_microbatches() -> None:
    """A line with both ranges makes all layers for one micro-batch, then for the next."""
    table = read_table(Source("t", "stage 0\nloop k = 4..0:2\n  a 1..0 k..k+1  # note\n  b - 6-k\nend\n"))
    want = [
        o
        for k in (4, 2, 0)
        for o in (*(One("a", layer, m) for m, layer in product((k, k + 1), (1, 0))), One("b", None, 6 - k))
    ]
    assert [one for one, _ in one_by_one(table)[0]] == want
