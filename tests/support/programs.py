"""Hashes of compiled programs, so that a change of the compiler that changes one is a deliberate one."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.paths import CASES, SAMPLES
from wscc.backends.artifact.files import write_artifact
from wscc.driver.compile import compile_file

PROGRAMS: Final = CASES / "programs.json"
MODELS: Final = ("gpt-tiny", "llama-tiny")
HAS_TIMES: Final = "report.json"


def program_hashes(model: str) -> dict[str, str]:
    """The hash of each file of the artifact of a sample."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "artifact"
        write_artifact(folder, compile_file(str(SAMPLES / f"{model}.wsl")).artifact)
        files = sorted(p for p in folder.iterdir() if p.name != HAS_TIMES)
        return {p.name: sha256(p.read_bytes()).hexdigest() for p in files}


def hashes_text() -> str:
    return json.dumps({m: program_hashes(m) for m in MODELS}, indent=1) + "\n"
