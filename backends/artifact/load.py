"""The reader of artifacts of unknown origin: their parts are compared before anything is allocated."""

from __future__ import annotations

from pathlib import Path

from wscc.backends.artifact.files import CALL_ORDER, EDGES, PROGRAMS, ROUTES, Artifact, read_artifact
from wscc.backends.artifact.folder import refuse
from wscc.backends.artifact.graph_checks import check_graph
from wscc.backends.artifact.host_checks import check_edges, check_host
from wscc.backends.artifact.mistake import Mistake
from wscc.backends.artifact.profile_checks import check_profile
from wscc.backends.artifact.step_checks import check_steps
from wscc.backends.artifact.work_checks import check_work
from wscc.backends.emit.manifest import DATA
from wscc.backends.interpreter.load_checks import check_routes, loaded
from wscc.diagnostics import CompileError


def load_artifact(folder: Path) -> Artifact:
    """The artifact in a folder, whose files fit one another. `CompileError` W501, with the file and the field, if it is
    incomplete, changed, newer than this program, or says what cannot be."""
    artifact = read_artifact(folder)
    try:
        _check(artifact)
    except Mistake as mistake:
        raise refuse(folder / mistake.file, f"does not fit the artifact: {mistake}") from None
    return artifact


def _check(artifact: Artifact) -> None:
    streams, manifest = artifact.streams, artifact.manifest
    check_host(streams, manifest)
    for words in check_edges(manifest, artifact.edges):
        raise Mistake(EDGES, words)
    graph = check_graph(artifact.graph, manifest, streams.arena_bytes)
    names = (manifest.data_file, bool(manifest.train.data), artifact.data is not None)
    if names not in ((DATA, True, True), ("", False, False)):
        raise Mistake(DATA, "`program.host.data_file`, `train.data` and the file do not agree")
    check_steps(streams, manifest, graph)
    try:
        check_routes(streams, manifest, graph.machine.channels)
    except CompileError as error:
        raise Mistake(ROUTES, error.diagnostics[0].message) from None
    try:
        loaded(streams, manifest)
    except CompileError as error:
        raise Mistake(PROGRAMS, error.diagnostics[0].message) from None
    check_work(streams, graph)
    if artifact.profile is not None:
        check_profile(artifact.profile, streams)
    if "\0" in artifact.call_order:
        raise Mistake(CALL_ORDER, "it is no text")
