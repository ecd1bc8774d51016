"""Graph networks: every split equals one device, no bytes go where no edges are, and what does not fit is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.graphs.models import (
    ATTENTION,
    MAX_AND_WEIGHTS,
    NODES,
    chain_of_groups,
    everywhere,
    far_groups,
    loss_in_torch,
    text,
    write_graph,
)
from tests.support.paths import ROOT
from tests.support.verdict import EQUAL, verdict
from wscc.backends.artifact.files import write_artifact
from wscc.backends.artifact.load import load_artifact
from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_file, load
from wscc.driver.train import RunOptions, Trainer, initial_parameters, run
from wscc.passes.pad.unseen import UNSEEN


@pytest.mark.parametrize(
    ("parallel", "options"),
    [
        ("tatp = 8", {}),
        ("sp = 2, tatp = 4", {"recompute": "full"}),
        ("sp = 2, tp = 2, tatp = 2", {"weights": ""}),
        ("tp = 4", {"weights": ", mean"}),
        ("pp = 2, tatp = 4", {"batch": 2}),
        ("dp = 2, sp = 2, tatp = 2 zero 3", {"batch": 4}),
        ("sp = 3", {}),
        ("sp = 2, tp = 2, tatp = 2", {"attention": MAX_AND_WEIGHTS}),
        ("dp = 2, sp = 4 zero 3", {"attention": MAX_AND_WEIGHTS, "batch": 4}),
        ("pp = 2, tatp = 4", {"attention": MAX_AND_WEIGHTS, "recompute": "full"}),
        ("sp = 5", {"attention": MAX_AND_WEIGHTS}),
    ],
)
def test_a_graph_network_equals_one_device(parallel: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Several graphs of the same edges are a batch, which `dp` splits as any other."""
    edges = chain_of_groups()
    write_graph(tmp_path, edges)
    found = verdict(text(parallel, len(edges), **options), tmp_path)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_terms_that_cancel_are_no_rounding(dtype: str, tmp_path: Path) -> None:
    """Shares of a row sum to 1 whatever is added to all its scores, which is all that its own score does where the
    slope is 1: its gradient is 0, a sum of large terms."""
    write_graph(tmp_path, edges := chain_of_groups())
    model = text("tp = 2", len(edges)).replace("slope = 0.1", "slope = 1")
    found = verdict(model.replace("f64", dtype), tmp_path)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("parallel", ["tatp = 8", "sp = 8", "tatp = 4"])
def test_shards_are_relayed_to_where_edges_are(parallel: str, tmp_path: Path) -> None:
    """A parameter with a row for each node keeps their order, and so the edges far away."""
    write_graph(tmp_path, edges := far_groups())
    model = text(parallel, len(edges)).replace(
        "h = x @ w0", "param rows : [nodes, d] init ones\n  h = x @ w0 + rows"
    )
    found = verdict(model, tmp_path)
    assert found.what == EQUAL, found.why


def test_dies_send_nothing_where_no_edges_are(tmp_path: Path) -> None:
    """Groups of three on a line, one on each of 8 dies: each needs the rows of one neighbour, and METIS or networkx
    finds them among numbers drawn at random. Where all nodes are joined, all rows go to all dies."""
    sent = {}
    for name, edges in (("line", chain_of_groups()), ("all", everywhere())):
        write_graph(tmp_path, edges)
        report = verdict(text("tatp = 8", len(edges), attention=""), tmp_path).report
        sent[name] = report["traffic_bytes"], report["graph"]["adjacency"]
    (line, of_line), (everything, of_all) = sent["line"], sent["all"]
    assert line < 0.7 * everything
    assert of_line["cut_edges"] < 0.65 * of_line["random_cut_edges"]
    assert of_line["sent_bytes"] < of_line["random_sent_bytes"] / 2
    assert of_all["sent_bytes"] == of_all["random_sent_bytes"]


@pytest.mark.skipif(find_spec("torch") is None, reason="the optional extra `torch` is not installed")
@pytest.mark.parametrize(
    ("weights", "layer"),
    [("sum", ATTENTION), ("mean", ATTENTION), ("symmetric", ATTENTION), ("mean", MAX_AND_WEIGHTS)],
)
def test_loss_and_gradients_are_those_of_pytorch(weights: str, layer: str, tmp_path: Path) -> None:
    """A dense matrix in place of edges; the order of nodes that the compiler takes is its own affair."""
    import torch

    edges = chain_of_groups()
    write_graph(tmp_path, edges)
    option = {"sum": "", "mean": ", mean", "symmetric": ", symmetric"}[weights]
    (tmp_path / "m.wsl").write_text(
        text("sp = 2, tatp = 2", len(edges), weights=option, batch=2, attention=layer)
    )
    trainer = Trainer(compile_file(str(tmp_path / "m.wsl")).artifact, RunOptions(threads=1))
    start = initial_parameters(trainer.graph, trainer.seed)
    w = {n: torch.tensor(np.asarray(a), requires_grad=True) for n, a in start.items()}
    with np.load(tmp_path / "graph.npz") as data:
        x, labels = torch.tensor(data["x"][:2], dtype=torch.float64), torch.tensor(data["labels"][:2])
    loss = loss_in_torch(w, x, labels, edges, weights)
    loss.backward()
    assert [*trainer.steps()] == [pytest.approx(float(loss.detach()), rel=1e-12)]
    for name, grad in trainer.gradients().items():
        expected = w[name].grad
        assert expected is not None
        assert np.abs(grad - expected.numpy()).max() <= 1e-12 * max(1, float(expected.abs().max())), name


def _gcn_in_numpy(data: Any, weights: dict[str, Any], steps: int) -> tuple[list[float], Any]:
    """Losses and the last logits of `samples/gcn-tiny.wsl`, with a dense adjacency and derivatives by hand."""
    x, labels, edges = data["x"][0].astype(float), data["labels"][0], data["adjacency"]
    a = np.zeros((34, 34))
    a[edges[:, 0], edges[:, 1]] = 1
    a /= np.sqrt(np.outer(a.sum(1), a.sum(1)))
    known, w = np.flatnonzero(labels >= 0), {n: np.array(v, float) for n, v in weights.items()}
    moments = {n: (np.zeros_like(v), np.zeros_like(v)) for n, v in w.items()}
    losses = []
    for t in range(1, steps + 2):
        before = a @ (x @ w["w1"]) + w["b1"]
        h = np.maximum(before, 0)
        logits = a @ (h @ w["w2"]) + w["b2"]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[known, labels[known]]).mean())
        d = np.zeros_like(p)
        d[known] = p[known]
        d[known, labels[known]] -= 1
        d /= len(known)
        dz = a.T @ d
        dh = (dz @ w["w2"].T) * (before > 0)
        grads = {"w2": h.T @ dz, "b2": d.sum(0), "w1": x.T @ (a.T @ dh), "b1": dh.sum(0)}
        if t > steps:
            return losses[:-1], logits
        for n, g in grads.items():
            m, v = moments[n]
            m += 0.1 * (g - m)
            v += 0.05 * (g * g - v)
            w[n] -= 1e-2 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8) + 5e-4 * w[n])
    raise AssertionError


def test_the_karate_club_falls_apart_as_it_did() -> None:
    """Zachary's club with one member of each side known, 60 steps: losses are those of NumPy, and so is the side of
    each member, which is that after the split but for two at most."""
    path = ROOT / "samples" / "gcn-tiny.wsl"
    artifact = compile_file(str(path)).artifact
    outcome = run(artifact, RunOptions(steps=60, threads=1, arrays=True))
    start = initial_parameters(Trainer(artifact, RunOptions(threads=1)).graph, 0)
    with np.load(path.with_name("karate.npz")) as data:
        losses, logits = _gcn_in_numpy(data, start, 60)
        _, mine = _gcn_in_numpy(data, outcome.weights, 0)
        club = _sides()
        assert outcome.losses == pytest.approx(losses, rel=2e-3)
        assert (mine.argmax(1) == logits.argmax(1)).all()
        assert (mine.argmax(1) == club).mean() >= 32 / 34
        assert outcome.losses[-1] < 0.01 < 0.6 < outcome.losses[0]


def _sides() -> Any:
    import networkx as nx

    graph = nx.karate_club_graph()
    return np.array([graph.nodes[n]["club"] == "Officer" for n in range(34)], int)


def _compiled(folder: Path, parallel: str = "sp = 2, tatp = 2", **options: Any) -> Any:
    edges = chain_of_groups()
    write_graph(folder, edges)
    (folder / "m.wsl").write_text(text(parallel, len(edges), **options))
    return compile_file(str(folder / "m.wsl"))


def test_edges_of_an_artifact_are_checked_before_it_runs(tmp_path: Path) -> None:
    """Whoever changes blocks has them refused by name where they do not fit; columns that no node has are clipped."""
    artifact = _compiled(tmp_path, "pp = 2, tatp = 2", batch=2).artifact
    name, entries = next((n, a) for n, a in artifact.edges.items() if a.dtype == np.int32)
    for edges in (
        {n: a for n, a in artifact.edges.items() if n != name},
        {**artifact.edges, name: entries[:-1]},
        {**artifact.edges, name: entries.astype(np.int64)},
    ):
        write_artifact(tmp_path / "out", replace(artifact, edges=edges))
        with pytest.raises(CompileError, match=r"W501.*edges\.safetensors"):
            load_artifact(tmp_path / "out")
    wild = {**artifact.edges, name: np.full_like(entries, -(2**31))}
    write_artifact(tmp_path / "out", replace(artifact, edges=wild))
    assert len(run(load_artifact(tmp_path / "out"), RunOptions(threads=1)).losses) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adjacency": np.array([[0, 1], [24, 2]])}, r"W503.*adjacency\[1\].*\[24, 2\].*24 nodes"),
        ({"adjacency": np.zeros((2, 2))}, "W503.*holds float64"),
        ({"adjacency": np.zeros((3, 2), int)}, r"W503.*\[3, 2\].*\[2, 2\]"),
        ({}, "W503.*no array `adjacency`"),
    ],
)
def test_edges_that_do_not_fit_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    x, labels = np.zeros((1, NODES, 4), np.float32), np.zeros((1, NODES), int)
    np.savez(tmp_path / "graph.npz", x=x, labels=labels, **change)
    (tmp_path / "m.wsl").write_text(text("tatp = 2", 2))
    with pytest.raises(CompileError) as refused:
        compile_file(str(tmp_path / "m.wsl"))
    assert re.search(message, str(refused.value), re.DOTALL)


def test_each_edge_has_a_weight(tmp_path: Path) -> None:
    write_graph(tmp_path, edges := chain_of_groups())
    layer = MAX_AND_WEIGHTS.replace("[edges]", "[edges - 1]")
    found = verdict(text("tatp = 2", len(edges), attention=layer), tmp_path)
    assert found.what == "W101"
    assert f"a weight for each of {len(edges)} edges, not [{len(edges) - 1}]" in found.why


@pytest.mark.parametrize("mistake", ["spmm(labels, h @ w)", "embedding(adjacency, w0)"])
def test_edges_are_for_spmm_alone(mistake: str, tmp_path: Path) -> None:
    write_graph(tmp_path, chain_of_groups())
    model = text("tatp = 2", len(chain_of_groups())).replace("spmm(adjacency, h @ w, symmetric)", mistake)
    found = verdict(model, tmp_path)
    assert (found.what, "edges" in found.why) == ("W101", True)


def test_data_of_a_run_come_in_the_order_of_the_program(tmp_path: Path) -> None:
    """The same file gives the same losses, other edges are refused."""
    artifact = _compiled(tmp_path).artifact
    with np.load(tmp_path / "graph.npz") as file:
        data = dict(file)
    own = run(artifact, RunOptions(steps=2, threads=1)).losses
    assert run(artifact, RunOptions(steps=2, threads=1, data=data)).losses == own
    data["adjacency"] = data["adjacency"][::-1]
    with pytest.raises(CompileError, match="W503"):
        run(artifact, RunOptions(threads=1, data=data))


def test_nodes_stay_as_they_are_where_their_order_matters(tmp_path: Path) -> None:
    """A parameter with a row for each node, or attention that is causal."""
    edges = chain_of_groups()
    write_graph(tmp_path, edges)
    own = text("tatp = 2", len(edges))
    table = own.replace("h = x @ w0", "param rows : [nodes, d] init normal(0.5)\n  h = x @ w0 + rows")
    for model, order in ((own, {"metis", "networkx"}), (table, {"given"})):
        found = verdict(model, tmp_path)
        assert found.what == EQUAL, found.why
        assert found.report["graph"]["adjacency"]["order"] in order


def test_nodes_get_pads_that_edges_do_not_see_and_edges_get_none(tmp_path: Path) -> None:
    write_graph(tmp_path, far_groups())
    (tmp_path / "m.wsl").write_text(text("sp = 5", 49, attention=MAX_AND_WEIGHTS), encoding="utf-8")
    ops = [
        op
        for p in load(str(tmp_path / "m.wsl")).procedures
        for op in p.ops
        if op.kind in ("edge_sum", "edge_max")
    ]
    assert len({op.kind for op in ops}) == 2
    for op in ops:
        (edge, _), (_, node, _) = op.rule.ins[:2]
        assert UNSEEN[op.kind](op, node)
        assert not UNSEEN[op.kind](op, edge)
