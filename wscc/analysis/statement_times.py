"""Seconds of the statements of a scheduled procedure, by an estimate that knows neither addresses nor routes.

At the rates of the wafer. A kernel takes the longer of its products at the peak and its bytes in HBM; a message takes
the latency and bytes of one link, whatever the distance. Left out are tiles that are not full, queues for links and
memories, and the bytes in HBM of messages and copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from wscc.analysis.cost import DieRates, Rates
from wscc.analysis.flops import gemm_flops
from wscc.analysis.memory.access_cost import touched
from wscc.ir.fabric import Kernel, Send, Wait
from wscc.ir.module import Procedure
from wscc.machine.wafer import Wafer


@dataclass(frozen=True, slots=True)
class Seconds:
    """By statement of a procedure: how long a kernel works, how long the message of a `wait received` is on its way
    over one link, and for how much of that it keeps the link busy; 0 for all others, and for copies within a die."""

    work: tuple[float, ...]
    messages: tuple[float, ...]
    busy: tuple[float, ...]

    @property
    def room(self) -> tuple[float, ...]:
        """By statement, how long links have room for others: it works, or a message on its way keeps none busy."""
        return tuple(w + m - b for w, m, b in zip(self.work, self.messages, self.busy, strict=True))

    @staticmethod
    def of(procedure: Procedure, wafer: Wafer, *, in_sram: bool) -> Seconds:
        """Locals are taken to lie in SRAM, arguments of a call too or else in HBM."""
        slow = set() if in_sram else {v.name for v in procedure.arguments}
        sent = {s.channel: s.read.bytes for s in procedure.body if isinstance(s, Send) and not s.is_local}
        rates = Rates.of(wafer)
        work, messages, busy = [], [], []
        for s in procedure.body:
            work.append(_work(s, slow, rates.die) if isinstance(s, Kernel) else 0.0)
            amount = sent.get(s.channel) if isinstance(s, Wait) and not s.sent else None
            busy.append(0.0 if amount is None else rates.link.busy(amount))
            messages.append(0.0 if amount is None else rates.link.latency + busy[-1])
        return Seconds(tuple(work), tuple(messages), tuple(busy))


def _work(kernel: Kernel, slow: set[str], die: DieRates[float]) -> float:
    amount = sum(touched(v) for v in (*kernel.writes, *kernel.reads) if v.buffer in slow)
    return max(die.compute(gemm_flops(kernel)), die.hbm(amount))


def shares(seconds: Sequence[float]) -> list[float]:
    """By statement, the part of all seconds that is over with it."""
    whole = sum(seconds)
    return [n / whole if whole else 0.0 for n in accumulate(seconds)]
