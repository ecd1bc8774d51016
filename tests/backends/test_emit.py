"""`emit` and the artifact: streams mean what the module meant; files are whole, unchanged, reproducible."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import assert_same, initial_state, run_in_order, run_streams
from tests.support.fabric_modules import CASES, Case, module_of, random_module, some
from wscc.backends.artifact import folder as emit_folder
from wscc.backends.artifact.files import Artifact, read_artifact, write_artifact
from wscc.backends.artifact.json import canonical, decode, encode
from wscc.backends.emit import emit
from wscc.backends.emit.manifest import HOST_KINDS
from wscc.diagnostics import Code, CompileError
from wscc.ir.fabric import Kernel, Post, Send, Wait
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, at, per_die
from wscc.ir.streams.artifact import HostPart, Manifest
from wscc.ir.streams.program import Column
from wscc.ir.types import DType
from wscc.ir.views import View
from wscc.passes.form_phases import FormPhases
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule


def planned(module: Module) -> Module:
    return PlanMemory().run(Schedule().run(Route().run(FormPhases().run(module))))


@some
@given(CASES, st.integers(0, 999))
def test_streams_compute_what_the_sequential_module_does(case: Case, seed: int) -> None:
    module = case.module
    result = planned(module)
    streams, _ = emit(result)
    state = initial_state(module, seed)
    assert_same(run_in_order(module, state), run_streams(result, streams, state, Random(seed)))


@some
@given(CASES)
def test_roles_are_the_classes_of_dies_that_do_the_same(case: Case) -> None:
    module = planned(case.module)
    streams, _ = emit(module)

    def part(die: int) -> tuple[bool, ...]:
        found = []
        for p in module.procedures:
            for s in p.body:
                if isinstance(s, Kernel | Wait):
                    found.append(bool(at(s.where, die)))
                else:
                    assert isinstance(s, Post | Send)
                    found.append(at(s.sender if isinstance(s, Post) else s.to, die) != NOBODY)
        return tuple(found)

    parts = [part(d) for d in range(module.dies_used)]
    assert [*dict.fromkeys(streams.roles)] == list(range(len(streams.programs)))
    assert [p.role for p in streams.programs] == list(range(len(set(parts))))
    for d in range(module.dies_used):
        assert [streams.roles[e] == streams.roles[d] for e in range(len(parts))] == [
            p == parts[d] for p in parts
        ]
        body = [x for c in streams.programs[streams.roles[d]].procedures for x in c.body]
        assert len(body) == sum(parts[d])


@some
@given(CASES)
def test_columns_are_used_distinct_and_not_constant(case: Case) -> None:
    module = case.module
    streams, _ = emit(planned(module))
    columns = [c.tobytes() for c in np.ascontiguousarray(streams.bindings.T)]
    assert len(set(columns)) == len(columns)
    assert all(len(set(c.tolist())) > 1 for c in streams.bindings.T)
    used = set()
    for p in streams.programs:
        for x in (x for c in p.procedures for x in c.body):
            fields = [o.offset for o in (*x.writes, *x.reads)] + [v for _, v in x.attrs]
            used |= {f.index for f in fields if isinstance(f, Column)}
    assert used == set(range(len(columns)))


def test_what_no_die_does_leaves_no_trace() -> None:
    view = View("out0", per_die((0, 8)), (8,), (1,), DType.F64)
    body = [Kernel("fill", (view,), (), (("value", 1.0),), where) for where in (0, 1)]
    streams, _ = emit(planned(module_of(2, body[:1])))
    assert streams.bindings.shape == (2, 0)
    assert [c.body for p in streams.programs for c in p.procedures] == [()]
    streams, _ = emit(planned(module_of(2, body)))
    np.testing.assert_array_equal(streams.bindings, [[0], [64]])


@some
@given(CASES)
def test_the_manifest_lists_what_the_host_may_touch(case: Case) -> None:
    module = planned(case.module)
    assert module.memory is not None
    _, manifest = emit(module)
    assert [t.name for t in manifest.tensors] == [a.name for a in module.arrays if a.kind in HOST_KINDS]
    for t in manifest.tensors:
        place = module.memory.placement(t.name)
        array = module.array(t.name)
        assert t.extents == array.extents
        assert t.parts == (HostPart(-1, 0, array.count, place.address, place.stride),)
    wafer = module.machine
    assert manifest.dead_dies == tuple(sorted(r * wafer.cols + c for r, c in wafer.dead_dies))
    assert decode(Manifest, json.loads(canonical(encode(manifest)))) == manifest


# -- the folder -----------------------------------------------------------------------------------------


def sample(seed: int = 7) -> Artifact:
    streams, manifest = emit(planned(random_module(Random(seed), 4, 2, 6)))
    return Artifact(streams, manifest, "; the graph\n", b"\x00some bytes\xff", {"compile_seconds": 1.5})


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def refusal(folder: Path) -> str:
    with pytest.raises(CompileError) as caught:
        read_artifact(folder)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is Code.ARTIFACT
    return diagnostic.message


@settings(some, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(CASES, st.none() | st.binary(max_size=20), st.text(st.characters(codec="utf-8"), max_size=20))
def test_an_artifact_reads_back_as_it_was(tmp_path: Path, case: Case, data: bytes | None, graph: str) -> None:
    streams, manifest = emit(planned(case.module))
    artifact = Artifact(streams, manifest, graph, data, {"seconds": 0.25})
    write_artifact(tmp_path / "out", artifact)
    again = read_artifact(tmp_path / "out")
    assert (again.manifest, again.graph, again.data, again.report) == (manifest, graph, data, artifact.report)
    for name in ("programs", "steps", "dies", "roles", "routes", "arena_bytes"):
        assert getattr(again.streams, name) == getattr(streams, name)
    np.testing.assert_array_equal(again.streams.bindings, streams.bindings)
    assert again.streams.bindings.shape == streams.bindings.shape


def test_the_same_program_gives_the_same_bytes(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a", sample())
    write_artifact(tmp_path / "b" / "c", sample())
    assert contents(tmp_path / "a") == contents(tmp_path / "b" / "c")


def test_every_changed_byte_is_refused(tmp_path: Path) -> None:
    write_artifact(tmp_path / "out", sample())
    rng = Random(3)
    for name, content in contents(tmp_path / "out").items():
        if name == "report.json":
            continue
        for position in [0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(30))]:
            changed = bytearray(content)
            changed[position] ^= 1 << rng.randrange(8)
            (tmp_path / "out" / name).write_bytes(bytes(changed))
            assert name in refusal(tmp_path / "out")
        for part in (content[: len(content) // 2], b"", content + b" "):
            (tmp_path / "out" / name).write_bytes(part)
            assert name in refusal(tmp_path / "out")
        (tmp_path / "out" / name).unlink()
        assert name in refusal(tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(content)
    read_artifact(tmp_path / "out")


def test_the_report_may_be_edited_or_lost(tmp_path: Path) -> None:
    write_artifact(tmp_path / "out", sample())
    (tmp_path / "out" / "report.json").write_text("[")
    assert read_artifact(tmp_path / "out").report == {}
    (tmp_path / "out" / "report.json").unlink()
    assert read_artifact(tmp_path / "out").report == {}


def forge(folder: Path, **changes: object) -> None:
    """Change the manifest and give it the hash that fits."""
    path = folder / "manifest.json"
    manifest = {k: v for k, v in json.loads(path.read_text()).items() if k != "hash"} | changes
    path.write_bytes(canonical(manifest | {"hash": sha256(canonical(manifest)).hexdigest()}))


@pytest.mark.parametrize("number", [2, 99])
def test_another_format_is_refused_by_number(number: int, tmp_path: Path) -> None:
    write_artifact(tmp_path / "out", sample())
    forge(tmp_path / "out", format=number)
    assert f"format {number}" in refusal(tmp_path / "out")
    assert "manifest.json" in refusal(tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"dies": [0]},
        {"dies": 3},
        {"dies": [True, 1, 2, 3]},
        {"arena_bytes": "much"},
        {"host": {}},
        {"program": {}},
        {"program": None},
        {"files": {}},
        {"files": {"../../secret": "0"}},
        {"format": "one"},
    ],
)
def test_a_forged_manifest_is_refused_in_words(tmp_path: Path, changes: dict[str, object]) -> None:
    out = tmp_path / "out"
    write_artifact(out, sample())
    program = json.loads((out / "manifest.json").read_text())["program"]
    inner = {k: v for k, v in changes.items() if k in program}
    forge(out, **({"program": program | inner} if inner else changes))
    assert "out" in refusal(out)


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing")
    assert "manifest.json` is missing" in refusal(tmp_path)
    (tmp_path / "file").write_text("x")
    assert "file" in refusal(tmp_path / "file")


def unwritable(folder: Path) -> str:
    with pytest.raises(CompileError) as caught:
        write_artifact(folder, sample())
    assert caught.value.diagnostics[0].code is Code.ARTIFACT
    return caught.value.diagnostics[0].message


def test_only_an_artifact_or_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_artifact(out, sample(1))
    first = contents(out)
    write_artifact(out, sample(2))
    assert contents(out) != first
    write_artifact(out, sample(1))
    assert contents(out) == first
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in unwritable(out)
    assert (out / "notes.txt").read_text() == "mine"
    home = tmp_path / "home"
    home.mkdir()
    (home / "report.json").write_text("mine too")
    assert "not an artifact" in unwritable(home)
    assert "file of that name" in unwritable(home / "report.json")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_failed_write_leaves_the_old_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write_artifact(out, sample(1))
    first, count = contents(out), 0
    write = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        nonlocal count
        count += 1
        if count == 3:
            raise OSError(28, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(emit_folder.Path, "write_bytes", full)
    assert "No space left on device" in unwritable(out)
    monkeypatch.undo()
    assert contents(out) == first
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failed_replacement_puts_the_old_artifact_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_artifact(out, sample(1))
    first, rename = contents(out), Path.rename

    def stubborn(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(emit_folder.Path, "rename", stubborn)
    assert "Input/output error" in unwritable(out)
    monkeypatch.undo()
    assert contents(out) == first
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
