"""The one table of the numbers that an artifact may state: the least and the greatest of each field, and how many.

Fields of the dataclasses of `manifest.json`, `routes.json` and `profile.json` are named as there; a test demands a row
for each that holds numbers, but for settings of training, which declare their own limits. Numbers of `programs.wsa` and
of the binding table are below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.ops import IGNORED
from wscc.machine.wafer import MAX_DIES

# Bytes of an arena: far beyond any memory of a die, and small enough for sums in 64 bits.
MOST_BYTES: Final = 1 << 48
MOST_COUNT: Final = 1 << 31
MOST_DIMS: Final = 16
MOST_TEXT: Final = 4096
MOST_ENTRIES: Final = 1 << 22
_LARGE: Final = 1e300

# ---- programs.wsa and bindings.npy

MOST_ARGUMENTS: Final = 1 << 20
MOST_LOOPS: Final = 8  # in one another
MOST_CALLS: Final = 1 << 24  # of a step of a stage, every turn counted
MOST_SCALAR: Final = 1 << 53  # of a column of the binding table, and of an attribute


@dataclass(frozen=True, slots=True)
class Limit:
    """Every number of a field is from `low` to `high`; its lists have at most `entries`."""

    low: float
    high: float
    entries: int = MOST_ENTRIES

    @property
    def words(self) -> str:
        return f"from {_shown(self.low)} to {_shown(self.high)}"


def _shown(n: float) -> str:
    return f"{n:,}" if isinstance(n, int) else f"{n:g}"


_ADDRESS: Final = Limit(0, MOST_BYTES)
_DIES: Final = Limit(1, MAX_DIES)
_DIE: Final = Limit(0, MAX_DIES - 1, MAX_DIES)
_INDEX: Final = Limit(0, MOST_COUNT)

# By class and field.
LIMITS: Final[dict[str, Limit]] = {
    "_Program.dies": _DIE,
    "_Program.roles": _INDEX,
    "_Program.arena_bytes": _ADDRESS,
    "Manifest.axes": Limit(1, MAX_DIES, MOST_DIMS),
    "Manifest.stages": _DIES,
    "Manifest.rows": _DIES,
    "Manifest.columns": _DIES,
    "Manifest.planes": Limit(0, MAX_DIES),
    "Manifest.dead_dies": _DIE,
    "Manifest.dead_links": Limit(0, MAX_DIES - 1, 2 * MAX_DIES),
    "HostTensor.extents": Limit(1, MOST_COUNT, MOST_DIMS),
    "HostTensor.zigzag": Limit(0, MOST_DIMS - 1, MOST_DIMS),
    "HostTensor.unpadded": Limit(1, MOST_BYTES, MOST_DIMS),
    "HostTensor.filler": Limit(IGNORED, 0),
    "HostPart.stage": Limit(-1, MAX_DIES - 1),
    "HostPart.first": _INDEX,
    "HostPart.count": Limit(1, MOST_COUNT),
    "HostPart.address": _ADDRESS,
    "HostPart.stride": _ADDRESS,
    "TensorType.shape": Limit(1, MOST_BYTES, MOST_DIMS),
    "Init.std": Limit(0, _LARGE),
    "Leg.path": _DIE,
    "Leg.channel": Limit(0, 1 << 16),
    "Leg.share": Limit(1, MOST_SCALAR),
    "Route.merged": Limit(-1, MOST_SCALAR),
    "Profile.model_flops": Limit(0, 10**30),
    "Profile.roles": _INDEX,
    "Origin.line": Limit(0, MOST_COUNT),
    "ProcedureOrigins.channels": Limit(-1, MOST_COUNT),
    "ProcedureOrigins.kernels": _INDEX,
    "ProcedureOrigins.executed": _INDEX,
}
# For lists of objects and texts, whose numbers have limits of their own.
NO_NUMBERS: Final = Limit(0, 0)
# For fields whose limits stand where they are declared (`wscc.diagnostics.limits`).
DECLARED: Final = Limit(-_LARGE, _LARGE)
