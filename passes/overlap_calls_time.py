"""What statements of a scheduled procedure take, by an estimate that knows neither addresses nor routes."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.fabric import Kernel, Send, Wait
from wscc.ir.module import Procedure
from wscc.machine.wafer import Wafer
from wscc.passes.plan_memory_cost import gemm_flops, touched


@dataclass(frozen=True, slots=True)
class Seconds:
    """By statement of a procedure: how long a kernel works, and how long the message of a `wait received` is on its
    way (over one link); 0 for all others."""

    work: tuple[float, ...]
    messages: tuple[float, ...]

    @staticmethod
    def of(procedure: Procedure, wafer: Wafer) -> Seconds:
        """Arguments of a call are taken to lie in HBM, locals in SRAM."""
        formals = {v.name for v in procedure.formals}
        sent = {s.channel: s.read.bytes for s in procedure.body if isinstance(s, Send)}
        work, messages = [], []
        for s in procedure.body:
            work.append(_work(s, formals, wafer) if isinstance(s, Kernel) else 0.0)
            amount = sent[s.channel] if isinstance(s, Wait) and not s.sent else None
            link = wafer.link
            messages.append(0.0 if amount is None else link.latency + amount / link.bandwidth)
        return Seconds(tuple(work), tuple(messages))


def _work(kernel: Kernel, formals: set[str], wafer: Wafer) -> float:
    die = wafer.die
    slow = sum(touched(v) for v in (*kernel.writes, *kernel.reads) if v.buffer in formals)
    read = slow / die.hbm_bandwidth if die.hbm_bandwidth else 0.0
    return max(gemm_flops(kernel) / die.peak, read)
