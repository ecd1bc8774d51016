"""Names of what reads a finished artifact, for code above the driver that sees no backend."""

from __future__ import annotations

from wscc.backends.artifact.load import load_artifact as load_artifact
from wscc.backends.simulator.result import HbmTraffic as HbmTraffic
from wscc.backends.simulator.result import Result as Result
from wscc.backends.verify import Verdict as Verdict
from wscc.backends.verify import verify_program as verify_program
from wscc.backends.verify.findings import Finding as Finding
