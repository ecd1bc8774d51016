"""Artifacts with right hashes that say what cannot be: refused with file and field, before anything is allocated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.fuzz.edits import Files, with_hashes
from tests.fuzz.hostile import draw, original, write
from wscc.backends.artifact import files as artifact_files
from wscc.backends.artifact.files import BINDINGS, GRAPH, MANIFEST, PROFILE, PROGRAMS, ROUTES
from wscc.backends.artifact.json import canonical
from wscc.backends.artifact.limits import LIMITS
from wscc.backends.artifact.load import load_artifact
from wscc.diagnostics import Code, CompileError
from wscc.diagnostics.limits import limits_of
from wscc.ir.routes import Route
from wscc.ir.streams.profile import Profile

Edit = Callable[[Any], None]
NAME = "pp=2 tatp=2"


def at(path: str, value: Any) -> Edit:
    """Another value at a path such as `host.tensors.0.parts.0.address`."""

    def edit(root: Any) -> None:
        *steps, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for step in steps:
            root = root[step]
        root[last] = value

    return edit


# Of `program` in the manifest: the field that the error names is the path itself, unless it is given.
FIELDS: dict[str, tuple[Edit, str]] = {
    "unknown axis": (at("host.axes.0.0", "xp"), "`program.host.axes` has `xp`"),
    "no stages": (at("host.stages", 0), "`program.host.stages` is 0: it must be from 1 to"),
    "other stages": (at("host.stages", 4), "`program.host.stages` is 4"),
    "no tensors": (at("host.tensors", []), "`program.host.tensors` has no loss"),
    "huge mesh": (at("host.rows", 2**63), "`program.host.rows` is 9223372036854775808"),
    "large mesh": (at("host.rows", 2**20), "`program.host.rows` and `columns` make"),
    "negative address": (at("host.tensors.0.parts.0.address", -8), "tensors[0].parts[0].address` is -8"),
    "far address": (at("host.tensors.0.parts.0.address", 2**40), "`parts[0]` ends at 1,099,5"),
    "unaligned address": (at("host.tensors.0.parts.0.address", 1), "do not lie at 1 in steps"),
    "negative stride": (at("host.tensors.0.parts.0.stride", -64), "tensors[0].parts[0].stride` is -64"),
    "no stride": (at("host.tensors.0.parts.0.stride", 0), "in steps of 0"),
    "huge shape": (at("host.tensors.0.type.shape.0", 2**48), "elements of 4,503,599,627,370,496 bytes"),
    "negative shape": (at("host.tensors.0.type.shape", [-1, 8]), "tensors[0].type.shape[0]` is -1"),
    "another rank": (at("host.tensors.0.type.shape", [8]), "`type.layout` has another rank"),
    "huge extents": (at("host.tensors.0.extents", [2**31]), "do not hold all of 2,147,483,648 elements"),
    "no extents": (at("host.tensors.0.extents.0", 0), "tensors[0].extents[0]` is 0"),
    "not divided": (at("host.tensors.0.type.shape.1", 9), "(`tokens`)"),
    "zigzag of nothing": (at("host.tensors.0.zigzag", [7]), "`zigzag` has dimension 7, which no axis splits"),
    "a name twice": (at("host.tensors.1.name", "tokens"), "have one name"),
    "text for a number": (at("arena_bytes", "much"), '`program.arena_bytes` is "much", not an integer'),
    "huge arena": (at("arena_bytes", 2**60), "`program.arena_bytes` is"),
    "arena of no die": (
        at("arena_bytes", 2**40),
        "`program.arena_bytes` is 1,099,511,627,776, and a die has",
    ),
    "small arena": (at("arena_bytes", 64), "and the arena has 64 bytes"),
    "true for a number": (at("host.stages", True), "`program.host.stages` is true, not an integer"),
    "no such kind": (at("host.tensors.0.kind", "gift"), 'tensors[0].kind` is "gift", not param'),
    "die off the mesh": (at("dies.0", 99), "`program.dies` has a die"),
    "a die twice": (at("dies.0", 1), "`program.dies` has a die"),
    "role without program": (at("roles.0", 9), "role 9 has no program"),
    "a list": (at("host.tensors.0", []), "`program.host.tensors[0]` is a list, not an object"),
    "surplus": (at("host.tensors.0.size", 3), 'has a field "size", which is none'),
    "another optimizer": (at("host.train.optimizer.lr", 0.5), "another training"),
    "infinite": (at("host.train.clip", 1e301), "`program.host.train.clip` is 1e+301"),
}


def refused(folder: Path, files: Files, name: str) -> str:
    write(folder, with_hashes(files))
    with pytest.raises(CompileError) as caught:
        load_artifact(folder)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is Code.ARTIFACT
    assert f"/{name}`" in diagnostic.message
    return diagnostic.message


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_of_the_manifest_is_refused_by_name(case: str, tmp_path: Path) -> None:
    edit, words = FIELDS[case]
    manifest = json.loads(original(NAME)[MANIFEST])
    edit(manifest["program"])
    name = GRAPH if "training" in words else PROGRAMS if case == "role without program" else MANIFEST
    assert words in refused(tmp_path, original(NAME) | {MANIFEST: canonical(manifest)}, name)


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        assert old.encode() in content, old
        return content.replace(old.encode(), new.encode(), 1)

    return edit


TEXTS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "endless loop": (PROGRAMS, replaced("loop mb 4", "loop mb 2000000000"), "calls"),
    "loop that never runs": (PROGRAMS, replaced("loop mb 4", "loop mb 0"), "runs 0 times"),
    "unknown opcode": (PROGRAMS, replaced("gelu ", "glue "), "unknown opcode `glue`"),
    "unknown variable": (PROGRAMS, replaced("[mb]", "[bm]"), "variable of no loop"),
    "no procedure": (PROGRAMS, replaced("call begin", "call beginn"), "no procedure `beginn`"),
    "beyond the arena": (PROGRAMS, replaced("fill f32[16]@a0", "fill f32[16]@a0+999999999992"), "of an arena of"),
    "more elements than bytes": (PROGRAMS, replaced("fill f32[16]@a0", "fill f32[16,99999;1,1]@a0"), "elements in"),
    "peer that is none": (BINDINGS, lambda c: c[:128] + (8 * 10**9).to_bytes(8, "little") * (len(c) // 8 - 16), ""),
    "table of a terabyte": (BINDINGS, replaced("'shape': (4, ", "'shape': (4000000000000, "), ""),
    "copy off the wafer": (ROUTES, replaced('"path": [0, 1]', '"path": [77]'), "die 77, which is no live die"),
    "route through the air": (ROUTES, replaced('"path": [0, 1]', '"path": [0, 6]'), "no link of the wafer"),
    "channel": (ROUTES, replaced('"channel": 0', '"channel": 7'), "channels"),
    "name twice": (ROUTES, replaced('"share": 1', '"share": 1, "share": 1'), "given twice"),
    "not a number": (ROUTES, replaced('"share": 1', '"share": NaN'), "no finite number"),
    "deep": (PROFILE, lambda c: b"[" * 10_000, "nested too deep"),
    "origin": (PROFILE, replaced('"channels": []', '"channels": [9999]'), "an origin beyond"),
    "another model": (GRAPH, replaced("array %wpe : f32[8,16]", "array %wpe : f32[8,32]"), "wpe"),
    "no graph": (GRAPH, lambda c: b"module", "line 1"),
    "another wafer": (GRAPH, replaced("rows=2", "rows=1"), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_every_other_file_is_checked_too(case: str, tmp_path: Path) -> None:
    name, edit, words = TEXTS[case]
    files = original(NAME)
    blamed = PROGRAMS if case == "peer that is none" else name
    assert words in refused(tmp_path, files | {name: edit(files[name])}, blamed)


def test_a_file_that_is_no_regular_one_is_refused(tmp_path: Path) -> None:
    write(tmp_path, original(NAME))
    for name in sorted(original(NAME)):
        (tmp_path / name).rename(tmp_path / "aside")
        os.mkfifo(tmp_path / name)
        if name == artifact_files.REPORT:
            assert load_artifact(tmp_path).report == {}
        else:
            with pytest.raises(CompileError, match="named pipe"):
                load_artifact(tmp_path)
        (tmp_path / "aside").replace(tmp_path / name)


def numbers(kind: Any) -> Iterator[str]:
    """`Class.field` of every field of an artifact that holds numbers and declares no limits, below a dataclass."""
    for f in fields(kind):
        if f.name in limits_of(kind) or not f.compare:
            continue
        parts = [get_type_hints(kind)[f.name]]
        for part in parts:
            if part in (int, float):
                yield f"{kind.__name__}.{f.name}"
            elif is_dataclass(part):
                yield from numbers(part)
            parts += [p for p in get_args(part) if p is not Ellipsis]


def test_every_number_of_an_artifact_has_a_limit() -> None:
    kinds = (artifact_files._Program, Route, Profile)
    assert {name for kind in kinds for name in numbers(kind)} == set(LIMITS)


@pytest.mark.parametrize("number", range(5))
def test_random_edits_end_in_a_named_error_or_a_program(number: int) -> None:
    """A few draws of `make fuzz-artifact`."""
    _, came = draw(number, 7)
    assert not came.startswith("FAILED"), came
