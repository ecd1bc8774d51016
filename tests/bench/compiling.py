"""Seconds that `wscc compile` takes, cold: every time in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from statistics import median


def compile_seconds(model: str, times: int) -> dict[str, float]:
    """Medians by pass, then of the passes together and of the whole process."""
    runs = [_once(model) for _ in range(times)]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _once(model: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "wscc", "compile", model, "-o", folder, "--json"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        whole = time.perf_counter() - started
    seconds = json.loads(done.stdout)["compile_seconds"]
    return {**seconds["passes"], "passes together": seconds["total"], "whole process": whole}
