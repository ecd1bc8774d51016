"""Call orders: written and read back; an edited one gives equal results, or is refused with its line."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.strategies import judged_artifact, reference
from tests.oracles.symbols import Symbols
from tests.support.call_orders import MODELS, drawn, gpipe, ordered, sharded, small, symbols, text_of, usual
from tests.support.models import Shape, gpt
from tests.support.paths import SAMPLES
from wscc.backends.artifact.files import Artifact, write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.cli import main
from wscc.diagnostics import Code, CompileError, Source
from wscc.driver.compile import compile_graph
from wscc.equivalence.recompile import differences
from wscc.ir.step import calls
from wscc.ir.text.call_order import One, one_by_one, to_call_order_text
from wscc.ir.text.call_order_read import read_call_order
from wscc.machine.wafer import Wafer
from wscc.passes.choices import Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.passes.stages.default_order import call_order

# -- there and back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_table_that_is_written_changes_nothing(name: str) -> None:
    """Whether in loops or call by call; and where nobody gives one, nothing is different."""
    module = sharded(name)
    table = call_order(module)
    text = to_call_order_text(table, "a title")
    assert read_call_order(Source("t.txt", text)).same_as(table)
    plain = Stages().run(module)
    assert ordered(name, text) == plain
    assert ordered(name, text_of(usual(name))) == plain


def test_the_text_is_read_by_people() -> None:
    text = to_call_order_text(call_order(sharded("pp")), "gpt")
    stage = text.split("stage 1")[1].splitlines()
    assert "loop m = 0..2" in stage
    assert "  block.fwd         2..3        m+1" in stage
    assert "  block.bwd         3..2        m+1" in stage


def test_neither_table_nor_program_grows_with_microbatches() -> None:
    """Of the usual order there is no limit; an edited one is held in loops again."""
    few, many = (Partition().run(Differentiate().run(small({"pp": 2}, n))) for n in (60, 6000))
    text = to_call_order_text(call_order(many), "")
    assert len(text.splitlines()) == len(to_call_order_text(call_order(few), "").splitlines())
    assert Stages(Source("t.txt", text)).run(many) == Stages().run(many)
    modules = [
        Stages(Source("t.txt", text_of(gpipe(m)))).run(m)
        for m in (Partition().run(Differentiate().run(small({"pp": 2}, n))) for n in (8, 16))
    ]
    assert len(list(calls(modules[0].step))) == len(list(calls(modules[1].step)))


# -- right in another order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [{"pp": 2}, {"dp": 2}], ids=["pp", "dp"])
def test_gpipe_equals_one_device(degrees: dict[str, int], tmp_path: Path) -> None:
    """In f64 and checked mode, two AdamW steps; and what is made of the artifact's own table again is the same."""
    shape = Shape(batch=3 * degrees.get("dp", 1), calls=3, seq=4, d=8, ffn=16, vocab=16)
    module = gpt(degrees, shape, wafer=Wafer("w", 2, 4))
    text = text_of(gpipe(Partition().run(Differentiate().run(module))))
    artifact = compile_graph(module, choices=Choices(call_order=Source("t.txt", text))).artifact
    check = judged_artifact(artifact, module, reference(gpt, shape, "adamw"))
    assert check.ok, check
    write_artifact(tmp_path / "a", artifact)
    loaded: Artifact = load_artifact(tmp_path / "a")
    assert loaded.call_order == text
    if "pp" in degrees:
        assert not list(differences(loaded, module))


def test_more_micro_batches_in_flight_get_more_slots() -> None:
    staged = ordered("pp", text_of(gpipe(sharded("pp"))))
    assert {a.extents[0] for a in staged.arrays if a.of == "block.gelu"} == {5}
    unstaged = Stages(Source("t.txt", text_of(gpipe(sharded("dp"))))).run(sharded("dp"))
    assert [a.extents for a in unstaged.arrays if a.name == "block.gelu"] == [(3, 4)]


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([n for n in MODELS if n not in ("tp", "tatp")]), st.integers(0, 1 << 30))
def test_any_order_that_works_on_one_device_equals_the_usual(name: str, seed: int) -> None:
    order = drawn(name, random.Random(seed))
    module = ordered(name, text_of(order))
    assert Symbols(module).run() == symbols(name)


@settings(max_examples=25, deadline=None)
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
        module = ordered(name, text_of(order))
    except CompileError as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.code in (Code.CALL_TABLE, Code.CALL_ORDER)
        assert diagnostic.label.span.line > 0
        assert diagnostic.help
        return
    assert Symbols(module).run() == symbols(name)


# -- the command line ---------------------------------------------------------------------------------------


def test_the_command_line_writes_and_reads_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = str(SAMPLES / "gpt-tiny.wsl"), str(tmp_path / "calls.txt")
    assert main(["call-order", model, "-o", table]) == 0
    assert main(["call-order", model, "--call-order", table]) == 0
    assert capsys.readouterr().out == Path(table).read_text()
    assert main(["call-order", model, "-o", str(tmp_path)]) == 1
    assert main(["compile", model, "--call-order", str(tmp_path)]) == 1
    Path(table).write_text(Path(table).read_text().replace("block.norm", "block.nrom"))
    capsys.readouterr()
    assert main(["compile", model, "--call-order", table, "-o", str(tmp_path / "x")]) == 1
    error = capsys.readouterr().err
    assert "error[W204]" in error
    assert "did you mean `block.norm`?" in error
    assert f"{table}:" in error


def test_the_old_spellings_of_the_command_and_the_option_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are hidden from the help."""
    model, table = str(SAMPLES / "gpt-tiny.wsl"), tmp_path / "calls.txt"
    assert main(["schedule", model, "--json"]) == 0
    table.write_text(json.loads(capsys.readouterr().out)["schedule"])
    assert main(["call-order", model]) == 0
    assert capsys.readouterr().out == table.read_text()
    assert main(["compile", model, "--schedule", str(tmp_path / "none.txt")]) == 1
    assert "cannot read" in capsys.readouterr().err
    assert main(["--help"]) == main(["compile", "--help"]) == 0
    assert not re.search(r"^ +(--)?schedule\b", capsys.readouterr().out, re.MULTILINE)


def test_the_tour_of_layers_and_microbatches() -> None:
    """A line with both ranges makes all layers for one micro-batch, then for the next."""
    table = read_call_order(
        Source("t", "stage 0\nloop k = 4..0:2\n  a 1..0 k..k+1  # note\n  b - 6-k\nend\n")
    )
    want = [
        o
        for k in (4, 2, 0)
        for o in (*(One("a", layer, m) for m, layer in product((k, k + 1), (1, 0))), One("b", None, 6 - k))
    ]
    assert [one for one, _ in one_by_one(table)[0]] == want
