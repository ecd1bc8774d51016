"""Estimated seconds of the statements of a scheduled procedure, without addresses.

Times are at the rates of the wafer. A kernel takes the longer of its products at the peak and its bytes in HBM; a
message takes the latency and bytes of one link, the slowest of its route, whatever the distance. Left out are tiles
that are not full, queues for links and memories, and the bytes in HBM of messages and copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from wscc.analysis.cost import DieRates, LinkRates, Rates
from wscc.analysis.flops import gemm_flops
from wscc.analysis.memory.access_cost import distinct_bytes
from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Kernel, Send, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY


@dataclass(frozen=True, slots=True)
class StatementTimes:
    """Seconds by statement of a procedure: `work` of a kernel; at the `wait received` of a message, its time of flight
    over one link (`messages`) and the part of that in which it keeps the link `busy`; 0 for all other statements and
    for copies within a die."""

    work: tuple[float, ...]
    messages: tuple[float, ...]
    busy: tuple[float, ...]

    @property
    def link_idle(self) -> tuple[float, ...]:
        """Seconds by statement in which links are free for other messages: during work and during latency."""
        return tuple(w + m - b for w, m, b in zip(self.work, self.messages, self.busy, strict=True))

    @staticmethod
    def of(procedure: Procedure, module: Module, *, in_sram: bool) -> StatementTimes:
        """The times of a scheduled procedure. Locals are taken to lie in SRAM, arguments as well if `in_sram`, else in
        HBM."""
        in_hbm = set() if in_sram else {v.name for v in procedure.arguments}
        sends = {s.channel: s for s in procedure.body if isinstance(s, Send) and not s.is_local}
        rates = Rates.of(module.machine, module.die)
        work, messages, busy = [], [], []
        for s in procedure.body:
            work.append(_work(s, in_hbm, rates.die) if isinstance(s, Kernel) else 0.0)
            send = sends.get(s.channel) if isinstance(s, Wait) and not s.sent else None
            if send is None:
                busy.append(0.0)
                messages.append(0.0)
            else:
                slowest = _slowest_link(send, module, rates)
                busy.append(slowest.busy(send.read.bytes))
                messages.append(slowest.flight(send.read.bytes))
        return StatementTimes(tuple(work), tuple(messages), tuple(busy))


def _slowest_link(send: Send, module: Module, rates: Rates[float]) -> LinkRates[float]:
    if len(rates.links) == 1:
        return rates.link
    routes = as_array(send.route, module.dies_used)
    taken = (module.routes[r] for r in np.unique(routes[routes != NOBODY]).tolist())
    hops = {hop for route in taken for leg in route.legs for hop in leg.hops}
    links = {module.machine.link_class(*hop) for hop in hops}
    return max((rates.links[c] for c in links), key=lambda k: k.flight(send.read.bytes))


def _work(kernel: Kernel, in_hbm: set[str], die: DieRates[float]) -> float:
    amount = sum(distinct_bytes(v) for v in (*kernel.writes, *kernel.reads) if v.buffer in in_hbm)
    return max(die.compute(gemm_flops(kernel)), die.hbm(amount))


def cumulative_shares(seconds: Sequence[float]) -> list[float]:
    """The fraction of the total time that has passed at the end of each statement."""
    total = sum(seconds)
    return [n / total if total else 0.0 for n in accumulate(seconds)]
