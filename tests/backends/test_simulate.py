"""Steps composed from calls against steps simulated whole; what must hold of any machine; and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.whole_step import SAMPLES, builder, compiled, on
from wscc.backends.artifact.files import write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.backends.simulator.account import Account, account
from wscc.backends.simulator.clusters import Clusters
from wscc.backends.simulator.compose import Composer, Observer
from wscc.backends.simulator.step_nodes import LoopNode, nodes
from wscc.backends.simulator.whole import whole
from wscc.cli import main
from wscc.driver.simulate import simulate
from wscc.driver.train import RunOptions, Trainer
from wscc.machine.links import CUT_THROUGH, LINK_MODELS, STORE_AND_FORWARD
from wscc.machine.wafer import Wafer

# With little SRAM, layers lie partly in HBM, and turns of a loop differ.
TIGHT = "wafer.die.sram=600 kB"
PROGRAMS = {
    "dp": ("gpt-tiny", "dp=4"),
    "tp": ("gpt-tiny", "tp=4"),
    "tatp": ("gpt-tiny", "tatp=4"),
    "tight": ("gpt-tiny", "dp=2,tatp=2", TIGHT),
    "sp": ("llama-tiny", "sp=4"),
    "1F1B": ("llama-tiny", "pp=2,tp=2", "train.batch=32"),
    "1F1B of four": ("llama-tiny", "pp=4,dp=2", "train.batch=64", "wafer.link.latency=20 ns"),
    "tight 1F1B": ("llama-tiny", "pp=2,sp=2", TIGHT),
}
program = pytest.mark.parametrize("name", PROGRAMS)
some = pytest.mark.parametrize("name", ["tatp", "tight", "tight 1F1B"])


def composed(name: str, kind: str = CUT_THROUGH, wafer: Wafer | None = None) -> Account:
    sample = compiled(*PROGRAMS[name])
    profile = sample[0].profile
    assert profile is not None
    return account(Composer(builder(sample, kind, wafer)).run(), profile)


@program
@pytest.mark.parametrize("kind", LINK_MODELS)
def test_a_composed_step_takes_as_long_as_one_simulated_whole(name: str, kind: str) -> None:
    b = builder(compiled(*PROGRAMS[name]), kind)
    run, found = whole(b), composed(name, kind)
    assert found.end == pytest.approx(max(run.leave.values()), rel=0.02)
    carried = {link: (use.bytes, use.messages, use.busy) for link, use in run.links.items()}
    assert carried == {link: (u.bytes, u.messages, u.busy) for link, u in found.links.items()}


@program
def test_loops_that_are_left_early_end_as_if_walked_through(name: str) -> None:
    b = builder(compiled(*PROGRAMS[name]))
    left, walked = Composer(b, within=0).run(), Composer(b, unrolled=True).run()
    assert left.now == walked.now
    assert sum(left.tally.values()) == sum(walked.tally.values())


def test_turns_that_are_nearly_alike_are_left_early_and_take_as_long() -> None:
    """Messages of eight dies meet on links in another order each turn, and few states come back exactly."""
    b = builder(compiled("gpt-tiny", "dp=8", "train.batch=32", "model.layers=48"))
    left, exact = Composer(b), Composer(b, within=0)
    assert max(left.run().now) == pytest.approx(max(exact.run().now), rel=0.01)
    assert left.simulated < exact.simulated
    profile = compiled("gpt-tiny", "dp=8", "train.batch=32", "model.layers=48")[0].profile
    assert profile is not None
    found = account(left, profile)
    for die in found.dies:
        waited = die.bubble + die.idle + sum(die.exposed.values())
        assert die.busy + waited == found.end


@program
def test_dies_that_are_alike_are_simulated_once_and_counted_each(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = compiled(*PROGRAMS[name])
    assert sample[0].profile is not None
    shared = Composer(builder(sample)).run()
    found = account(shared, sample[0].profile)
    monkeypatch.setattr(Clusters, "_shape", lambda *_: object())
    alone = Composer(builder(sample)).run()
    expected = account(alone, sample[0].profile)
    assert (shared.now, found.dies, found.links) == (alone.now, expected.dies, expected.links)
    assert shared.simulated < alone.simulated


@pytest.mark.parametrize("kind", LINK_MODELS)
def test_the_steady_state_of_a_pipeline_is_walked_through_once(kind: str) -> None:
    """200 micro-batches end as if each was composed, but most of them are not."""
    b = builder(compiled("llama-tiny", "pp=2,tp=2", "train.batch=800", "train.microbatch=4"), kind)
    skipped: list[int] = []
    calls: list[int] = []
    observer = Observer(
        lambda entry, begin: calls.append(begin),
        lambda dies, begin, end, periods: skipped.append(end - begin),
    )
    left, walked = Composer(b, observer).run(), Composer(b, unrolled=True).run()
    assert left.now == walked.now
    assert sum(left.tally.values()) == sum(walked.tally.values()) > 10 * len(calls)
    assert max(skipped) > max(left.now) / 2


def test_turns_of_a_loop_that_lie_in_different_memories_are_told_apart() -> None:
    """The programs called tight have such loops: else they would show nothing."""
    b = builder(compiled(*PROGRAMS["tight"]))
    step = nodes(b.streams.steps[0], lambda name, args: b.places(0, name, args), lambda name: False)
    assert {n.steady for n in step if isinstance(n, LoopNode)} == {True, False}


@program
def test_the_time_of_every_die_is_accounted_for(name: str) -> None:
    found = composed(name)
    for die in found.dies:
        waited = die.bubble + die.idle + sum(die.exposed.values())
        assert die.busy + waited == found.end
        assert min(die.ideal, die.tiling, die.hbm, die.bubble, die.idle) >= 0
    assert max(found.bounds().values()) <= found.end


@some
def test_links_carry_the_bytes_that_the_interpreter_sends(name: str) -> None:
    trainer = Trainer(compiled(*PROGRAMS[name])[0], RunOptions(steps=1))
    for _ in trainer.steps():
        pass
    assert {link: u.bytes for link, u in composed(name).links.items()} == trainer.machine.traffic()


@some
@pytest.mark.parametrize("kind", LINK_MODELS)
def test_a_slower_link_makes_no_step_faster(name: str, kind: str) -> None:
    _, wafer = compiled(*PROGRAMS[name])
    ends = [composed(name, kind, on(wafer, bandwidth=n)).end for n in (1, 2, 16)]
    assert ends == sorted(ends)
    assert composed(name, kind, on(wafer, latency=3)).end > ends[0]


def test_twice_the_peak_halves_the_time_of_compute() -> None:
    sample = compiled("gpt-tiny", "dp=1")
    end, half = (max(Composer(builder(sample, wafer=on(sample[1], peak=n))).run().now) for n in (1, 2))
    assert 2 * half == pytest.approx(end, rel=1e-9)


def test_more_micro_batches_make_the_bubble_smaller() -> None:
    """1F1B idles (p - 1) slots of m + p - 1; transfers of so small a model cost a little on top."""
    shares = []
    for batch in (16, 64):
        artifact, _ = compiled(
            "llama-tiny", "pp=2", f"train.batch={batch}", "train.microbatch=4", "model.layers=2"
        )
        found = simulate(artifact).figures()
        shares.append(found.bubble_fraction * found.live_dies / found.dies_used)
    assert shares == sorted(shares, reverse=True)
    for share, microbatches in zip(shares, (4, 16), strict=True):
        assert 1 / (microbatches + 1) < share < 1 / (microbatches + 1) + 0.2


def test_the_flops_of_every_die_add_up_to_those_of_the_model() -> None:
    """One die, nothing recomputed or hidden: what runs is what the model has, and energy follows from it."""
    artifact, wafer = compiled("gpt-tiny", "dp=1")
    found = simulate(artifact)
    done = sum(d.flops for d in found.account.dies)
    assert artifact.profile is not None
    # Attention has five products backward where the model counts four.
    assert artifact.profile.model_flops == artifact.report["flops_per_step"] <= done
    figures = found.figures()
    assert figures.energy_joules == pytest.approx(done / wafer.die.efficiency)
    assert figures.mfu == pytest.approx(
        artifact.profile.model_flops / (figures.step_seconds * wafer.die.peak * wafer.live_dies)
    )


def test_a_masked_half_of_attention_is_not_counted() -> None:
    artifact, _ = compiled("llama-tiny", "sp=4")
    assert artifact.profile is not None
    assert artifact.profile.model_flops < artifact.report["flops_per_step"]


# ---- the command


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write_artifact(path := tmp_path / "out", compiled(*PROGRAMS["1F1B"])[0])
    return str(path)


def test_the_command_has_the_promised_fields_and_fractions_that_add_up(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", folder, "--json"]) == 0
    of_folder = json.loads(capsys.readouterr().out)
    promised = {
        "step_seconds", "mfu", "bubble_fraction", "exposed_comm_fraction", "die_util", "link_util", "energy_joules"
    }  # fmt: skip
    assert promised <= set(of_folder)
    time = of_folder["time"]
    exposed = time.pop("exposed")
    assert sum(time.values()) + sum(exposed.values()) == pytest.approx(1)
    assert sum(exposed.values()) == pytest.approx(of_folder["exposed_comm_fraction"])
    assert time["model"] == of_folder["mfu"]
    assert main(["simulate", folder, "--link-model", STORE_AND_FORWARD, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_seconds"] > of_folder["step_seconds"]


def test_a_trace_has_a_track_for_each_die_and_link_and_names_the_source(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    assert main(["simulate", folder, "--trace", str(path), "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["step_seconds"]
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in slices} == set(tracks)
    assert sum(pid == 1 for pid, _ in tracks) == 4
    assert "(0, 0) to (0, 1)" in tracks.values()
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(1e6 * step)
    lines = (SAMPLES / "llama-tiny.wsl").read_text().splitlines()
    attention = 1 + next(i for i, line in enumerate(lines) if "attention(" in line)
    assert any(e["name"].endswith(f"(llama-tiny.wsl:{attention})") for e in slices)


def test_a_trace_is_limited_and_says_so() -> None:
    found = simulate(compiled("gpt-tiny", "dp=4")[0], tracing=True)
    assert found.trace is not None
    text, cut = found.trace.text(limit=200)
    assert "200 slices" in cut
    made = json.loads(text)
    assert made["otherData"]["cut"] == cut
    assert 0 < sum(e["ph"] == "X" for e in made["traceEvents"]) <= 200


def test_an_artifact_without_a_profile_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact, _ = compiled("gpt-tiny", "dp=1")
    write_artifact(tmp_path / "a", replace(artifact, profile=None))
    assert load_artifact(tmp_path / "a").profile is None
    assert main(["simulate", str(tmp_path / "a")]) == 1
    assert "compile the model again" in capsys.readouterr().err
