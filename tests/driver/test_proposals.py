"""What a refusal proposes compiles; what was not tried is not proposed."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.draw import Draw, Line, Part, drawn
from tests.fuzz.hunt import untrue_proposals
from tests.oracles.predicate import expected
from tests.support.models import Shape, gpt
from wscc.analysis.memory.report import memory_report
from wscc.analysis.memory.room import most_bytes
from wscc.cli import main
from wscc.diagnostics import CompileError as Refused
from wscc.diagnostics import Diagnostic, Proposal, Source
from wscc.driver.compile import compile_source
from wscc.driver.pipeline import Pipeline
from wscc.driver.proposals import Trials, changed, with_proposals
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.passes.place import Place

MLP = Draw(rows=2, cols=4, parts=(Part(2, (Line("mlp"),)),))


def refusal(draw: Draw, overrides: Overrides = Overrides()) -> Diagnostic:  # noqa: B008
    with pytest.raises(Refused) as caught:
        compile_source(Source("m.wsl", draw.text), overrides, draw.level)
    return caught.value.diagnostics[0]


@pytest.mark.parametrize(
    ("code", "seed"),
    [("W201", 6), ("W202", 189), ("W301", 1), ("W302", 8), ("W401", 691)],
)
def test_what_a_refusal_proposes_compiles(code: str, seed: int) -> None:
    """Random programs that must be refused for this reason alone: the first from a seed on."""
    draws = (drawn(random.Random(n)) for n in range(seed, 10_000))
    wrong = (d for d in draws if expected(d).codes == {code} and not expected(d).is_open)
    for draw in islice(wrong, 1):
        first = refusal(draw)
        assert first.code == code
        assert first.proposals, first.help
        assert not list(untrue_proposals(draw.text, first.proposals, draw.level))


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        # Seven replicas of two sequences would divide a batch of 14, for which there are no dies.
        (Draw(rows=1, cols=5, parts=MLP.parts, degrees=(("dp", 7),), micro=2, extra=-6), "`parallel dp = 4`"),
        # One change is not enough.
        (Draw(rows=2, cols=2, parts=MLP.parts, degrees=(("sp", 3),), interleave=2), "with `interleave 1`"),
    ],
    ids=["batch", "two changes"],
)  # fmt: skip
def test_a_number_that_others_would_refuse_is_not_proposed(draw: Draw, words: str) -> None:
    first = refusal(draw)
    assert words in first.help
    assert first.help.endswith(" would work")
    assert not list(untrue_proposals(draw.text, first.proposals, draw.level))


def test_without_a_change_that_compiles_the_help_says_what_binds() -> None:
    draw = Draw(rows=2, cols=2, e=3, parts=(Part(0, (Line("gqa_rope"),)),), degrees=(("dp", 8),))
    first = refusal(draw)
    assert not first.proposals
    assert "no change near it compiles" in first.help
    assert "W101" in first.help


def test_the_options_of_a_proposal_end_a_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.wsl"
    path.write_text(MLP.text)
    command = ["compile", str(path), "-o", str(tmp_path / "out"), "--parallel", "dp=3", "--json"]
    assert main(command) == 1
    proposals = json.loads(capsys.readouterr().out)["error"]["proposals"]
    assert {p["change"] for p in proposals} >= {"`batch 3`"}
    for proposal in proposals:
        assert main([*command, *proposal["options"]]) == 0


def test_a_change_is_said_as_the_file_says_it() -> None:
    both = Proposal((("dp", 2), ("tp", 4))).then(Proposal(sets=(("train.batch", "8"), ("wafer.mesh", "2x4"))))
    assert both.words == "`parallel dp = 2, tp = 4` with `batch 8` and `mesh 2 x 4`"
    assert both.then(Proposal(())).words == "`parallel dp = 1` with `batch 8` and `mesh 2 x 4`"
    assert changed(Overrides(sets=("a.b=1",), parallel="dp=3"), both) == Overrides(
        sets=("a.b=1", "train.batch=8", "wafer.mesh=2x4"), parallel="dp=2,tp=4"
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("@ wte", "@ transpose(wte)"), ("@ transpose(v0)", "@ v0")],
    ids=["missing", "surplus"],
)
def test_an_edit_that_is_proposed_compiles(wrong: str, right: str) -> None:
    text = (
        MLP.text.replace("@ transpose(wte)", "@ wte") if wrong == "@ wte" else MLP.text.replace("@ v0", wrong)
    )
    text = text.replace("f = 8", "f = 16").replace("vocab = 8", "vocab = 24")
    with pytest.raises(Refused) as caught:
        compile_source(Source("m.wsl", text))
    (change,) = caught.value.diagnostics[0].proposals
    assert change.edit is not None
    assert right in change.words
    assert change.edit.edited().text == text.replace(wrong, right)
    assert not list(untrue_proposals(text, [change], 2))


def test_trials_end() -> None:
    """A thousand candidates that are all refused cost no more than the budget."""
    many = tuple(Proposal(sets=(("train.batch", str(n)),)) for n in range(1001, 3001, 2))
    error = Refused(Diagnostic(refusal(MLP, Overrides(parallel="tp=7")).code, "wrong", candidates=many))
    trials = Trials(parse(Source("m.wsl", MLP.text)), Overrides(parallel="dp=2"))
    assert not with_proposals(error, trials).diagnostics[0].proposals
    assert trials.left == 0


def test_a_trial_refuses_a_byte_too_little() -> None:
    """The arrays have room, and with the values of a layer they have just too little."""
    file = parse(Source("m.wsl", MLP.text))
    needed = compile_source(Source("m.wsl", MLP.text)).report["memory"]["peak_bytes_per_die_max"]
    trials = [Trials(file, Overrides(sets=(f"wafer.die.sram={n} B",))) for n in (needed - 1, needed)]
    little, enough = (t.refusal(Proposal()) for t in trials)
    assert little is not None
    assert little.diagnostics[0].code == "W401"
    assert enough is None


@pytest.mark.parametrize(
    ("degrees", "shape"),
    [({"pp": 2, "dp": 2}, Shape(batch=8)), ({"tp": 2}, Shape(batch=1, calls=1, seq=2, d=64, ffn=256))],
    ids=["values", "weights"],
)
def test_the_bound_of_the_memory_is_one(degrees: dict[str, int], shape: Shape) -> None:
    pipeline = Pipeline.default()
    placed = pipeline.until(Place).run(gpt(degrees, shape))
    assert memory_report(pipeline.after(Place).run(placed)).peak <= most_bytes(placed)
