"""`stagger`: delays stand only where clusters of dies share hot links, change no result, take their declared time,
and stay only where the simulated step is shorter."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from tests.support.fabric_modules import CASES, DTYPE, Case, module_of, some
from tests.support.models import Shape, gpt
from tests.support.small_programs import machine
from tests.support.whole_step import SAMPLES
from wscc.backends.artifact.files import Artifact, write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.backends.emit import emit
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.compose import Composer
from wscc.backends.simulator.costs import SECOND, Costs
from wscc.backends.simulator.whole import length, whole
from wscc.backends.verify import verify_program
from wscc.cli import main
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import Compiled, compile_graph
from wscc.driver.train import RunOptions, run
from wscc.equivalence.recompile import differences
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, at, per_die
from wscc.ir.step import Call, Loop, Stage, calls
from wscc.ir.streams.wsa import parse_wsa
from wscc.ir.text.print import to_text
from wscc.ir.verify import verify
from wscc.ir.views import View
from wscc.machine.links import CUT_THROUGH, LINK_MODELS, STORE_AND_FORWARD
from wscc.machine.wafer import Link, Wafer
from wscc.passes.choices import Choices
from wscc.passes.form_phases import FormPhases
from wscc.passes.overlap_calls import OverlapCalls
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule
from wscc.passes.stagger import Stagger

# Two stages in a row: all replicas send to the next stage over the link in the middle.
REPLICAS = {"pp": 2, "dp": 3}
ROW = Wafer("w", 1, 6, link=Link(bandwidth=10**11, latency=10e-9))
HELPED = (
    str(SAMPLES / "gpt-tiny.wsl"), "--parallel", "pp=2,dp=4", "--set", "wafer.mesh=1x8", "--set", "train.batch=24",
    "--set", "train.microbatch=2", "--set", "model.layers=2", "--set", "model.d=120", "--set", "model.heads=12",
    "--set", "model.vocab=240", "--set", "wafer.link.latency=10 ns", "--set", "wafer.link.bandwidth=100 GB/s",
    "--stagger", "--allgather", "ring",
)  # fmt: skip


def routed(module: Module) -> Module:
    return Route(adaptive=False).run(FormPhases().run(module))


def delay_of(module: Module, name: str) -> tuple[int, ...]:
    """By die, the picoseconds of a procedure that delays; empty for others."""
    (*_, stmt) = (None, *module.procedure(name).body)
    if not isinstance(stmt, Kernel) or stmt.opcode != "delay":
        return ()
    (_, time), = stmt.attrs  # fmt: skip
    assert not isinstance(time, float | str)
    return tuple(at(time, d) for d in range(module.dies_used))


# ---- places of delays


def bodies(step: tuple[Call | Loop | Stage, ...]) -> list[tuple[Call | Loop, ...]]:
    sequences = [tuple(s for s in step if not isinstance(s, Stage))]
    for s in step:
        sequences += [] if isinstance(s, Call) else bodies(s.body)
    return sequences


def shared(module: Module, transfers: list[Transfer], cluster: dict[int, int]) -> set[tuple[int, int]]:
    """Pairs of clusters with messages on one link that carries at least 90 % of the bytes of the most loaded link."""
    load: Counter[tuple[int, int]] = Counter()
    users: dict[tuple[int, int], set[int]] = {}
    for t in transfers:
        for die, _ in t.pairs(module.dies_used):
            (leg,) = module.routes[at(t.route, die)].legs
            for link in pairwise(leg.path):
                load[link] += t.read.bytes
                users.setdefault(link, set()).add(cluster[die])
    hot = [link for link, n in load.items() if 10 * n >= 9 * max(load.values())]
    return {(a, b) for link in hot for a in users[link] for b in users[link] if a != b}


@some
@given(CASES)
def test_delays_stand_only_where_clusters_share_hot_links(case: Case) -> None:
    before = routed(case.module)
    after = Stagger().run(before)
    assert [d.message for d in verify(after)] == [d.message for d in verify(before)]
    assert after.procedures[: len(before.procedures)] == before.procedures
    for body in bodies(after.step):
        for first, second in pairwise(body):
            delays = delay_of(after, first.procedure) if isinstance(first, Call) else ()
            if not any(delays):
                continue
            names = {c.procedure for c, _ in calls((second,))}
            phases: dict[tuple[str, int], list[Transfer]] = {}
            joined = nx.empty_graph(before.dies_used)
            for name in names:
                for t in (
                    s for s in before.procedure(name).body if isinstance(s, Transfer) and s.to != NOBODY
                ):
                    phases.setdefault((name, t.phase), []).append(t)
                    joined.add_edges_from(t.pairs(before.dies_used))
            clusters = [sorted(cluster) for cluster in nx.connected_components(joined)]
            cluster = {die: n for n, members in enumerate(clusters) for die in members}
            conflicts = set().union(*(shared(before, ts, cluster) for ts in phases.values()))
            starts = [{delays[die] for die in members} for members in clusters]
            assert all(len(s) == 1 for s in starts), "a cluster starts at once"
            assert all(starts[a] != starts[b] for a, b in conflicts), "clusters that conflict start apart"
            assert {n for n, s in enumerate(starts) if s != {0}} <= {a for a, _ in conflicts}


def crossing(to: tuple[int, ...], count: int = 1) -> Module:
    read, write = View("in0", 0, (24,), (1,), DTYPE), View("t0", 0, (24,), (1,), DTYPE)
    module = module_of(len(to), [Transfer(0, per_die(to), read, write)], slots=1)
    return routed(module.with_(step=(Loop("i", count, module.step),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("to", "delays"),
    [
        # 0 -> 2 and 1 -> 3 share the link from 1 to 2 for 192 B / (4 TB/s) = 48 ps.
        ((2, 3, NOBODY, NOBODY), (0, 48, 0, 48)),
        # Three of them on one link: one after the other.
        ((3, 4, 5, NOBODY, NOBODY, NOBODY), (0, 48, 96, 0, 48, 96)),
        # The other way round, links are others.
        ((1, NOBODY, NOBODY, 2), ()),
        # Neighbours share nothing; one cluster does not wait for itself.
        ((1, NOBODY, 3, NOBODY), ()),
        ((2, 0, 1), ()),
    ],
)
def test_clusters_on_one_link_start_one_after_the_other(to: tuple[int, ...], delays: tuple[int, ...]) -> None:
    after = Stagger().run(crossing(to, 3))
    names = [s.procedure for s in after.step if isinstance(s, Call)]
    assert [delay_of(after, n) for n in names] == ([delays] if delays else []), "once, before the loop"


def test_delays_that_there_are_not_and_modules_without_transfers_are_refused() -> None:
    module = crossing((2, 3, NOBODY, NOBODY))
    assert Stagger(keep="0").run(module) == Stagger().run(module)
    for stagger, target, code in (
        (Stagger(keep="0+7"), module, Code.OPTION),
        (Stagger(), Schedule().run(module), Code.PASS_ORDER),
    ):
        with pytest.raises(CompileError) as caught:
            stagger.run(target)
        assert caught.value.diagnostics[0].code == code


@pytest.mark.parametrize(("elements", "delayed"), [(4, False), (11, True)])
def test_a_link_that_others_put_in_the_shade_is_not_hot(elements: int, delayed: bool) -> None:
    """Two messages share the link from 1 to 2; one of 24 elements loads that from 5 to 4."""

    def transfer(channel: int, to: tuple[int, ...], n: int) -> Transfer:
        read, write = View("in0", 0, (n,), (1,), DTYPE), View(f"t{channel}", 0, (n,), (1,), DTYPE)
        return Transfer(channel, per_die(to), read, write)

    few = transfer(0, (2, 3, NOBODY, NOBODY, NOBODY, NOBODY), elements)
    many = transfer(1, (NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, 4), 24)
    module = routed(module_of(6, [few, many], slots=2))
    assert {t.phase for t in module.procedures[0].body if isinstance(t, Transfer)} == {0}
    assert (Stagger().run(module) != module) == delayed


def test_a_delay_is_not_repeated_until_clusters_have_met() -> None:
    module = crossing((2, 3, NOBODY, NOBODY))
    (loop,) = module.step
    assert isinstance(loop, Loop)
    whole_row = replace(module.procedures[0], name="all", body=crossing((1, 2, 3, 0)).procedures[0].body)
    (call,) = loop.body
    assert isinstance(call, Call)
    met = replace(call, procedure="all")
    both = module.with_(procedures=(*module.procedures, whole_row), step=(loop, loop, met, loop))
    delayed_module = Stagger().run(both.with_(routes=module.routes + crossing((1, 2, 3, 0)).routes))
    names = [s.procedure if isinstance(s, Call) else "loop" for s in delayed_module.step]
    assert names == ["stagger.0", "loop", "loop", "all", "stagger.1", "loop"]


# ---- effects of delays


@lru_cache
def planned(link_model: str = "") -> Compiled:
    shape = Shape(batch=12, calls=4, d=48, vocab=48)
    return compile_graph(
        gpt(REPLICAS, shape, wafer=ROW), choices=Choices(stagger=link_model, allgather="ring")
    )


@lru_cache
def delayed() -> tuple[Module, Artifact]:
    """All delays, whether they help or not."""
    program = planned()
    module = PlanMemory().run(OverlapCalls().run(Schedule().run(Stagger().run(program.modules["route"]))))
    streams, _ = emit(module)
    return module, replace(program.artifact, streams=streams)


def test_results_are_those_of_one_device_and_to_the_bit_those_without_delays() -> None:
    outcome = run(delayed()[1], RunOptions(steps=2), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check
    assert outcome.losses == run(planned().artifact, RunOptions(steps=2)).losses


def test_verify_finds_nothing_and_the_graph_asks_for_the_rest() -> None:
    _, artifact = delayed()
    assert not verify_program(artifact).findings
    assert not [*differences(artifact, planned().graph)]


@pytest.mark.parametrize("kind", LINK_MODELS)
def test_the_simulator_counts_them(kind: str) -> None:
    module, artifact = delayed()
    expected = np.zeros(module.dies_used, np.int64)
    for call, times in calls(module.step):
        expected += times * np.array(delay_of(module, call.procedure) or (0,) * module.dies_used)
    builder = Builder(artifact.streams, Costs.of(ROW, kind))
    run_whole = whole(builder)
    assert [run_whole.dies[d].delayed for d in range(6)] == (expected * (SECOND // 10**12)).tolist()
    assert expected.any()
    assert max(Composer(builder).run().now) == pytest.approx(max(run_whole.leave.values()), rel=0.02)


@pytest.mark.parametrize("kind", LINK_MODELS)
def test_messages_that_stand_in_line_outlive_the_call_that_sent_them(kind: str) -> None:
    """Replicas that share a link: composed from calls, each call finds what earlier ones left on it."""
    builder = Builder(planned().artifact.streams, Costs.of(ROW, kind))
    exact = whole(builder)
    assert max(Composer(builder).run().now) == pytest.approx(max(exact.leave.values()), rel=0.01)
    executed = sum(len(lines.leads) for lines in exact.scripts.lines)
    assert length(builder) == executed


def test_time_passes_on_the_die_that_is_told_to() -> None:
    programs, steps = parse_wsa("role 0 { procedure f(0) { delay time=$0 } } step { loop i 3 { call f() } }")
    streams = replace(planned().artifact.streams, programs=programs, steps=steps, dies=(0, 1), roles=(0, 0))
    late = replace(streams, bindings=np.array([[0], [1500]]))
    composed = Composer(Builder(late, Costs.of(ROW))).run()
    assert [Fraction(n, SECOND) for n in composed.now] == [0, Fraction(4500, 10**12)]


def test_less_than_no_time_is_refused() -> None:
    text = "role 0 { procedure f(0) { delay time=$0 } } step { call f() }"
    with pytest.raises(CompileError) as caught:
        machine(text, [0], table=[[-1]])
    assert caught.value.diagnostics[0].code == Code.ARTIFACT


# ---- delays that are kept


def test_nothing_changes_unless_asked_for_and_where_nothing_is_shared(tmp_path: Path) -> None:
    assert not Choices().stagger
    unshared = gpt({"dp": 2}, Shape(), wafer=Wafer("w", 1, 2))
    plain, staggered = compile_graph(unshared), compile_graph(unshared, choices=Choices(stagger=CUT_THROUGH))
    assert staggered.report["stagger"]["delays_found"] == 0
    assert "no two clusters" in staggered.report["stagger"]["words"]
    for name, program in (("plain", plain), ("asked", staggered)):
        write_artifact(tmp_path / name, program.artifact)
    files = {p.name: p.read_bytes() for p in (tmp_path / "plain").iterdir() if p.name != "report.json"}
    assert files == {n: (tmp_path / "asked" / n).read_bytes() for n in files}
    assert "stagger" not in plain.report
    assert "delay" not in to_text(planned().modules["plan_memory"])


@pytest.mark.parametrize("kind", LINK_MODELS)
def test_delays_stay_only_where_the_simulated_step_is_shorter(kind: str) -> None:
    program, report = planned(kind), planned(kind).report["stagger"]
    assert report["delays_found"] > 0
    before, after = (
        max(whole(Builder(c.artifact.streams, Costs.of(ROW, kind))).leave.values()) / SECOND
        for c in (planned(), program)
    )
    assert report["simulated_whole"]
    assert (report["step_seconds_before"], report["step_seconds"]) == pytest.approx(
        (before, after), rel=1e-12
    )
    assert (after < before) == (report["delays_kept"] > 0)
    if not report["delays_kept"]:
        assert after == before
        assert program.artifact.streams.programs == planned().artifact.streams.programs
        assert "do not help here" in report["words"]


def test_replicas_that_send_to_the_next_stage_over_one_link_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "out")
    assert main(["compile", *HELPED, "-o", folder, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["stagger"]
    assert report["step_seconds"] < 0.995 * report["step_seconds_before"]
    assert main(["simulate", folder, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert simulated["step_seconds"] == pytest.approx(report["step_seconds"], rel=1e-4)
    assert simulated["time"]["delayed"] > 0
    assert not verify_program(load_artifact(tmp_path / "out")).findings


def test_a_simulation_says_what_the_delays_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *HELPED, "--link-model", STORE_AND_FORWARD]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("staggered starts")]
    assert "do not help here" in line
