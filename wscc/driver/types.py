"""Names of passes and backends for code above the driver that sees neither."""

from __future__ import annotations

from wscc.backends.artifact.files import Artifact as Artifact
from wscc.backends.artifact.files import write_artifact as write_artifact
from wscc.backends.artifact.load import load_artifact as load_artifact
from wscc.backends.simulator.result import Result as Result
from wscc.backends.verify import Verdict as Verdict
from wscc.backends.verify import verify_program as verify_program
from wscc.backends.verify.findings import Finding as Finding
from wscc.passes.base import Fact as Fact
from wscc.passes.base import Pass as Pass
from wscc.passes.choices import ALLGATHERS as ALLGATHERS
from wscc.passes.choices import DEFAULT_MAPPER as DEFAULT_MAPPER
from wscc.passes.choices import ROUTINGS as ROUTINGS
from wscc.passes.choices import Choices as Choices
from wscc.passes.place.solver import MAPPERS as MAPPERS
