"""Places in the checkout that tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ROOT / "samples"
CASES: Final = ROOT / "tests" / "cases"
