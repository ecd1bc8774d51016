"""Names of what is compiled and written, for code above the driver that sees neither passes nor backends."""

from __future__ import annotations

from wscc.backends.artifact.files import Artifact as Artifact
from wscc.backends.artifact.files import write_artifact as write_artifact
from wscc.passes.base import Fact as Fact
from wscc.passes.base import Pass as Pass
from wscc.passes.choices import ALLGATHERS as ALLGATHERS
from wscc.passes.choices import DEFAULT as DEFAULT
from wscc.passes.choices import DEFAULT_MAPPER as DEFAULT_MAPPER
from wscc.passes.choices import MAPPERS as MAPPERS
from wscc.passes.choices import ROUTINGS as ROUTINGS
from wscc.passes.choices import Choices as Choices
