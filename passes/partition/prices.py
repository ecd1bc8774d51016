"""Prices of work, memory accesses and replicas in the layout search, from the rates of the program's wafer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.analysis.cost import Rates
from wscc.machine.wafer import Die, Wafer

# A replica takes memory even where a die has no HBM, or links hardly faster than it.
_REPLICA: Final = 0.01


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in units of one element moved over one link.

    `flop` is that of a floating-point operation at the peak, `access` that of an element read from or written to HBM,
    `replica` that of an element of a parameter on a die that could hold a share of it.

    An element of b bytes takes b / link bandwidth over a link and b / HBM bandwidth through the port of the memory, a
    FLOP takes 1 / peak. Divided by the first:

        flop = link bandwidth / (b peak)        access = link bandwidth / HBM bandwidth

    At 1800 TFLOP/s, 1 TB/s of HBM, links of 4 TB/s and 2 bytes, `flop` is 1 / 900 and `access` 4. `replica` is no time
    but breaks ties for less memory; `access` is at least as much, since a die without HBM accesses elements in no time.

    Prices leave out latency, distance and queues on links, tiles that are not full, the overlap of work with messages
    and memory accesses, and the axes at the minor end of a dimension where one outside them is gathered.
    """

    flop: float
    access: float
    replica: float = _REPLICA

    @staticmethod
    def of(wafer: Wafer, element: int, die: Die | None = None) -> Prices:
        """The prices on `wafer`, whose dies have at least what `die` has, for values of `element` bytes each."""
        rates = Rates.exact(wafer, die)
        move = rates.link.busy(element)
        access = float(rates.die.hbm(element) / move)
        return Prices(float(rates.die.compute(1) / move), max(access, _REPLICA))
