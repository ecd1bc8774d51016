"""What a probe prints in this process, and in another one whose strings hash differently."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO


def printed_under_two_hash_seeds(probe: str) -> tuple[str, str]:
    """The output of the same Python text, in this process and in one with another hash seed."""
    here = StringIO()
    with redirect_stdout(here):
        exec(probe, {})
    seed = "12345" if os.environ.get("PYTHONHASHSEED") != "12345" else "1"
    there = subprocess.run(
        [sys.executable, "-c", probe], env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return here.getvalue(), there.stdout
