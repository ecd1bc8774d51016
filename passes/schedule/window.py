"""How far the parts of transfers may move from where a transfer stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.fabric import Transfer
from wscc.machine.wafer import Die

# Few bytes are less than this part of the fast memory.
_FEW: Final = 48


@dataclass(frozen=True, slots=True)
class Reach:
    """How far parts of a transfer may move, since a message on its way occupies memory at both ends: over
    `groups` other groups, and over `transfers` other transfers (of one stream: some rounds), or as many as carry
    few `bytes`. Local ones move over as much work of the `die` as hides them."""

    groups: int
    transfers: int
    die: Die

    @property
    def bytes(self) -> int:
        return self.die.sram // _FEW if self.transfers else 0

    def seconds(self, transfer: Transfer) -> float:
        """What a local transfer takes of its memory."""
        return transfer.read.bytes / self.die.hbm_bandwidth


@dataclass(frozen=True, slots=True)
class Bounds:
    """The moment above which a post or send does not move; the statements before which a message has left, and has
    arrived."""

    floor: int
    release: int
    arrival: int
