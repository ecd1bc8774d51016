"""The artifact of a compilation: a folder with all files that a run needs, each with a hash in the manifest.

    programs.wsa    one program per role, and the step      bindings.npy   the binding table, a row per die
    routes.json     how messages go from die to die         graph.wir      the step at the graph level
    manifest.json   what the host must know; the hashes     data.bin       a copy of the data file, if any
    profile.json    where instructions come from, if known  call_order.txt a table of calls, if it was given one
    edges.safetensors   blocks of the edges of a graph, by the name of their array, if the model has one
    report.json     about the compilation; not hashed, so that it may hold seconds

Invariant: equal arguments give equal bytes, report.json aside; `read_artifact(write_artifact(x))` gives x.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.artifact.folder import refuse, replace_folder
from wscc.backends.artifact.json import canonical, decode, encode
from wscc.backends.artifact.mistake import Mistake
from wscc.backends.emit.manifest import DATA
from wscc.diagnostics import CompileError
from wscc.files import parse_json, parse_npy, read_bytes
from wscc.files.archives import parse_safetensors, safetensors_bytes
from wscc.files.kinds import ARTIFACT
from wscc.ir.routes import Route
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.profile import Profile
from wscc.ir.streams.program import Streams
from wscc.ir.streams.wsa import parse_wsa, to_wsa

FORMAT: Final = 6
MANIFEST, REPORT = "manifest.json", "report.json"
PROGRAMS, BINDINGS, ROUTES, GRAPH = "programs.wsa", "bindings.npy", "routes.json", "graph.wir"
PROFILE: Final = "profile.json"
EDGES: Final = "edges.safetensors"
CALL_ORDER: Final = "call_order.txt"
_ENTRIES: Final = frozenset(("format", "program", "files", "own_passes", "hash"))
_OPTIONAL: Final = frozenset((DATA, PROFILE, CALL_ORDER, EDGES))
FILES: Final = frozenset((MANIFEST, REPORT, PROGRAMS, BINDINGS, ROUTES, GRAPH)) | _OPTIONAL


@dataclass(frozen=True, eq=False)
class Artifact:
    """The contents of the folder. `data` are the bytes of the data file, None without one; `report` is any JSON
    object; `profile` is for `wscc simulate` and `monitor`; `call_order` is the text of the order given
    with `--call-order`, empty for the compiler's; `own_passes` are names of passes of a user's own; `edges` is what
    the arrays of edges hold, by name."""

    streams: Streams
    manifest: Manifest
    graph: str
    data: bytes | None = None
    report: dict[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    call_order: str = ""
    own_passes: tuple[str, ...] = ()
    edges: Mapping[str, NDArray[Any]] = field(default_factory=dict)


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
    if artifact.edges:
        files[EDGES] = safetensors_bytes(artifact.edges)
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


def read_artifact(folder: Path) -> Artifact:
    """The artifact in a folder, whose files are whole and have the form and the limits of their format; what they say
    is not compared.

    `CompileError` W501, with the file and the field, if one is missing, changed or of another format.
    """
    manifest = _manifest(folder)
    files = {name: _read(folder, name) for name in manifest["files"]}
    for name, content in files.items():
        if sha256(content).hexdigest() != manifest["files"][name]:
            raise refuse(
                folder / name, "was changed after it was compiled: its hash is not that in the manifest"
            )
    try:
        return _decoded(manifest, files, _report(folder))
    except Mistake as mistake:
        raise refuse(folder / mistake.file, f"does not hold what its format says: {mistake}") from None


def _manifest(folder: Path) -> dict[str, Any]:
    content, path = _read(folder, MANIFEST), folder / MANIFEST
    try:
        manifest = parse_json(content.decode())
    except ValueError as error:
        raise refuse(path, f"is not JSON, or cut short: {error}") from None
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise refuse(path, "is not the manifest of an artifact")
    if manifest["format"] != FORMAT:
        raise refuse(path, f"has format {str(manifest['format'])[:20]}; this program reads format {FORMAT}")
    if not _is_unchanged(manifest, content):
        raise refuse(path, "was changed after it was compiled: it does not have the hash that it states")
    if surplus := manifest.keys() - _ENTRIES:
        raise refuse(path, f"has an entry `{min(surplus)[:40]}`, which its format does not have")
    required = {PROGRAMS, BINDINGS, ROUTES, GRAPH}
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not required <= set(listed) <= required | _OPTIONAL:
        raise refuse(path, "does not list the files of an artifact")
    return manifest


def _is_unchanged(manifest: dict[str, Any], content: bytes) -> bool:
    """True if the manifest has the hash that it states. Bytes are compared, not only values: every change counts."""
    try:
        return canonical(manifest) == content and manifest.get("hash") == _own_hash(manifest)
    except (ValueError, RecursionError):
        # Numbers, characters and depths that JSON readers accept and writers do not.
        return False


def _decoded(manifest: dict[str, Any], files: dict[str, bytes], report: dict[str, Any]) -> Artifact:
    with _mistakes_in(MANIFEST):
        program = decode(_Program, manifest.get("program"), "program")
        own_passes = decode(tuple[str, ...], manifest.get("own_passes", []), "own_passes")
    with _mistakes_in(PROGRAMS):
        programs, steps = parse_wsa(files[PROGRAMS].decode(), PROGRAMS)
    with _mistakes_in(BINDINGS):
        bindings = _bindings(files[BINDINGS], len(program.dies))
    with _mistakes_in(ROUTES):
        routes = decode(tuple[Route, ...], parse_json(files[ROUTES].decode()), "routes")
    profile = None
    if PROFILE in files:
        with _mistakes_in(PROFILE):
            profile = decode(Profile, parse_json(files[PROFILE].decode()))
    with _mistakes_in(GRAPH):
        graph = files[GRAPH].decode()
    with _mistakes_in(CALL_ORDER):
        call_order = files.get(CALL_ORDER, b"").decode()
    streams = Streams(programs, steps, program.dies, program.roles, bindings, routes, program.arena_bytes)
    with _mistakes_in(EDGES):
        edges = parse_safetensors(files[EDGES]) if EDGES in files else {}
    data = files.get(DATA)
    return Artifact(streams, program.host, graph, data, report, profile, call_order, own_passes, edges)


@contextmanager
def _mistakes_in(file: str) -> Iterator[None]:
    """Turns the errors of readers into mistakes of a file."""
    try:
        yield
    except CompileError as error:
        first = error.diagnostics[0]
        line = first.label.span.line
        raise Mistake(file, f"{f'line {line}: ' if line else ''}{first.message}") from None
    except ValueError as error:
        raise Mistake(file, str(error)) from None


def _bindings(content: bytes, dies: int) -> NDArray[np.int64]:
    """The binding table [dies, columns]."""
    table = parse_npy(content)
    if table.dtype != np.dtype("<i8") or table.ndim != 2 or len(table) != dies:
        raise ValueError(f"it is {table.dtype}{list(table.shape)}, not int64[{dies}, columns]")
    return table.astype(np.int64)


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
