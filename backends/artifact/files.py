"""The artifact of a compilation: a folder with all files that a run needs, each with a hash in the manifest.

    programs.wsa    one program per role, and the step      bindings.npy   the binding table, a row per die
    routes.json     how messages go from die to die         graph.wir      the step at the graph level
    manifest.json   what the host must know; the hashes     data.bin       a copy of the data file, if any
    profile.json    where instructions come from, if known  call_order.txt a table of calls, if it was given one
    report.json     about the compilation; not hashed, so that it may hold seconds

Invariant: equal arguments give equal bytes, report.json aside; `load_artifact(write_artifact(x))` gives x.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from wscc.backends.artifact.folder import refuse, replace_folder
from wscc.backends.artifact.json import canonical, decode, encode
from wscc.backends.emit.manifest import DATA
from wscc.diagnostics import CompileError
from wscc.files import parse_json, parse_npy, read_bytes
from wscc.files.kinds import ARTIFACT
from wscc.ir.routes import Route
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.profile import Profile
from wscc.ir.streams.program import Streams
from wscc.ir.streams.wsa import parse_wsa, to_wsa

FORMAT: Final = 5
MANIFEST, REPORT = "manifest.json", "report.json"
PROGRAMS, BINDINGS, ROUTES, GRAPH = "programs.wsa", "bindings.npy", "routes.json", "graph.wir"
PROFILE: Final = "profile.json"
CALL_ORDER: Final = "call_order.txt"
_OPTIONAL: Final = frozenset((DATA, PROFILE, CALL_ORDER))
FILES: Final = frozenset((MANIFEST, REPORT, PROGRAMS, BINDINGS, ROUTES, GRAPH)) | _OPTIONAL


@dataclass(frozen=True, eq=False)
class Artifact:
    """The contents of the folder. `data` are the bytes of the data file, None without one; `report` is any JSON
    object; `profile` is for `wscc simulate` and `monitor`; `call_order` is the text of the order given
    with `--call-order`, empty for the compiler's; `own_passes` are names of passes of a user's own."""

    streams: Streams
    manifest: Manifest
    graph: str
    data: bytes | None = None
    report: dict[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    call_order: str = ""
    own_passes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Program:
    """The entry `program` of the manifest file."""

    host: Manifest
    dies: tuple[int, ...]
    roles: tuple[int, ...]
    arena_bytes: int


def write_artifact(folder: Path, artifact: Artifact) -> None:
    """Write the whole folder or nothing; an artifact at that path is replaced.

    `CompileError` W501 if the path holds anything else, or the folder cannot be written.
    """
    replace_folder(folder, {**_hashed_files(artifact), REPORT: canonical(artifact.report)}, FILES, MANIFEST)


def _hashed_files(artifact: Artifact) -> dict[str, bytes]:
    streams = artifact.streams
    files = {
        PROGRAMS: to_wsa(streams.programs, streams.steps).encode(),
        BINDINGS: _npy(streams),
        ROUTES: _routes(streams),
        GRAPH: artifact.graph.encode(),
    }
    if artifact.data is not None:
        files[DATA] = artifact.data
    if artifact.call_order:
        files[CALL_ORDER] = artifact.call_order.encode()
    if artifact.profile is not None:
        files[PROFILE] = canonical(encode(artifact.profile))
    manifest = {
        "format": FORMAT,
        "program": encode(_Program(artifact.manifest, streams.dies, streams.roles, streams.arena_bytes)),
        "files": {name: sha256(content).hexdigest() for name, content in files.items()},
    }
    if artifact.own_passes:
        manifest["own_passes"] = list(artifact.own_passes)
    return {**files, MANIFEST: canonical({**manifest, "hash": _own_hash(manifest)})}


def _own_hash(manifest: dict[str, Any]) -> str:
    """The hash over all entries of the manifest but `hash`."""
    return sha256(canonical({k: v for k, v in manifest.items() if k != "hash"})).hexdigest()


def _npy(streams: Streams) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, streams.bindings.astype("<i8"), version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _routes(streams: Streams) -> bytes:
    """The routes as one JSON list, with one route a line."""
    return (
        "[\n" + ",\n".join(json.dumps(encode(r), sort_keys=True) for r in streams.routes) + "\n]\n"
    ).encode()


def load_artifact(folder: Path) -> Artifact:
    """The artifact in a folder. `CompileError` W501, with the name of the file, if it is incomplete, changed, or newer
    than this program."""
    manifest = _manifest(folder)
    files = {name: _read(folder, name) for name in manifest["files"]}
    for name, content in files.items():
        if sha256(content).hexdigest() != manifest["files"][name]:
            raise refuse(
                folder / name, "was changed after it was compiled: its hash is not that in the manifest"
            )
    try:
        return _decoded(manifest, files, _report(folder))
    except CompileError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise refuse(folder, f"does not hold what its format says: {error}") from error


def _manifest(folder: Path) -> dict[str, Any]:
    content, path = _read(folder, MANIFEST), folder / MANIFEST
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise refuse(path, "is not JSON; it may be cut short") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise refuse(path, "is not the manifest of an artifact")
    if manifest["format"] != FORMAT:
        raise refuse(path, f"has format {manifest['format']}; this program reads format {FORMAT}")
    if not _is_unchanged(manifest, content):
        raise refuse(path, "was changed after it was compiled: it does not have the hash that it states")
    required = {PROGRAMS, BINDINGS, ROUTES, GRAPH}
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not required <= set(listed) <= required | _OPTIONAL:
        raise refuse(path, "does not list the files of an artifact")
    return manifest


def _is_unchanged(manifest: dict[str, Any], content: bytes) -> bool:
    """True if the manifest has the hash that it states. Bytes are compared, not only values: every change counts."""
    try:
        return canonical(manifest) == content and manifest.get("hash") == _own_hash(manifest)
    except ValueError:
        # Numbers and characters that JSON readers accept and writers do not.
        return False


def _decoded(manifest: dict[str, Any], files: dict[str, bytes], report: dict[str, Any]) -> Artifact:
    program = decode(_Program, manifest["program"])
    programs, steps = parse_wsa(files[PROGRAMS].decode(), PROGRAMS)
    bindings = parse_npy(files[BINDINGS]).astype(np.int64)
    routes = decode(tuple[Route, ...], json.loads(files[ROUTES]))
    if not len(program.dies) == len(program.roles) == len(bindings) or bindings.ndim != 2:
        raise ValueError("dies, roles and bindings differ in number")
    if not set(program.roles) <= {p.role for p in programs}:
        raise ValueError("a die has a role without a program")
    if {p.stage for p in programs} != set(range(len(steps))):
        raise ValueError("programs and steps are not of the same stages")
    streams = Streams(programs, steps, program.dies, program.roles, bindings, routes, program.arena_bytes)
    profile = decode(Profile, json.loads(files[PROFILE])) if PROFILE in files else None
    call_order = files.get(CALL_ORDER, b"").decode()
    return Artifact(
        streams, program.host, files[GRAPH].decode(), files.get(DATA), report, profile, call_order,
        decode(tuple[str, ...], manifest.get("own_passes", [])),
    )  # fmt: skip


def _report(folder: Path) -> dict[str, Any]:
    """The report; it is for people, so it may be missing or edited: then it is empty."""
    try:
        report = parse_json(read_bytes(folder / REPORT, ARTIFACT[REPORT]).decode())
    except (CompileError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if not folder.exists():
        raise refuse(folder, "does not exist")
    if not path.exists():
        raise refuse(path, "is missing: the artifact is incomplete, or the folder is none")
    return read_bytes(path, ARTIFACT[name])
