"""The prices that the layout search weighs against each other, from the rates of the program's wafer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.analysis.cost import Rates
from wscc.machine.wafer import Wafer

# Where a die has no HBM, or links hardly faster than it, what lies on many dies still takes memory on each.
_REPLICA: Final = 0.01


@dataclass(frozen=True, slots=True)
class Prices:
    """In units of one element moved over one link: `flop` is a floating-point operation at the peak, `touch` an element
    read from or written to HBM, `keep` an element of a parameter held by a die that could hold a share of it.

    An element of b bytes takes b / link bandwidth over a link and b / HBM bandwidth through the port of the memory, a
    FLOP takes 1 / peak. Divided by the first:

        flop = link bandwidth / (b peak)        touch = link bandwidth / HBM bandwidth

    At 1800 TFLOP/s, 1 TB/s of HBM, links of 4 TB/s and 2 bytes, `flop` is 1 / 900 and `touch` 4. `keep` is no time but
    breaks ties for less memory; `touch` is no less, since a die without HBM touches its elements in no time at all.

    Left out are latency, distance and queues on links, tiles that are not full, that work hides messages and memory,
    and what it takes to bring a dimension that two axes split into the order of the mesh.
    """

    flop: float
    touch: float
    keep: float = _REPLICA

    @staticmethod
    def of(wafer: Wafer, element: int) -> Prices:
        """For values whose elements have so many bytes."""
        rates = Rates.exact(wafer)
        move = rates.link.busy(element)
        touch = float(rates.die.hbm(element) / move)
        return Prices(float(rates.die.compute(1) / move), max(touch, _REPLICA))
