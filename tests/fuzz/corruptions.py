"""One thing wrong with a compiled program, at random, behind the hash of its files."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.fuzz.corrupt_meaning import MEANING
from tests.fuzz.corrupt_structure import STRUCTURE
from wscc.backends.artifact.files import Artifact

CORRUPTIONS = {**STRUCTURE, **MEANING}


def corrupted(artifact: Artifact, kind: str, rng: Random) -> Artifact:
    """The program with one corruption of a kind."""
    while True:
        streams = CORRUPTIONS[kind](rng, artifact.streams)
        if streams is not None:
            return replace(artifact, streams=streams)
