"""Times of the four parts of each transfer, between their earliest and latest times (ASAP, ALAP) in the dependence
order.

Posts and sends are as early, and waits as late, as dependences and the allowed slack let them. A *time* is an integer:
2 i is just before statement i of the input, 2 i + 1 is statement i itself (if it is a kernel) and what follows at once;
-1 is the start, 2 n the end of a body of n statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.accesses import Accesses
from wscc.analysis.cost import DieRates
from wscc.analysis.memory.access_cost import cumulative_work
from wscc.analysis.transfer_groups import group_spans
from wscc.ir.fabric import Transfer
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die

START = -1
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """Times of post, send, wait (received) and wait (sent) of a transfer.

    Invariant: post and send <= 2 i < both waits, for the transfer at position i, unless all are equal.
    """

    post: int
    send: int
    received: int
    sent: int

    @classmethod
    def in_place(cls, i: int) -> TransferTimes:
        """The times without overlap: all four at statement i, one after the other."""
        return cls(2 * i, 2 * i, 2 * i, 2 * i)


def transfer_times(procedure: Procedure, scan: Accesses, slack: Slack) -> dict[int, TransferTimes]:
    """The times of each transfer, by position in the body. Takes time in statements x overlapping regions."""
    bounds = _bounds(procedure, slack)
    # Lists: most regions overlap one or two.
    overlapping = [row.tolist() for row in scan.overlapping]
    waits = _latest_waits(procedure, scan, overlapping, bounds)
    read_until = [START] * len(scan.regions)
    written_until = read_until.copy()
    phase_over = np.full(_phases(procedure), START, np.int64)
    times = {}
    for i, stmt in enumerate(procedure.body):
        access = scan.by_statement[i]
        if not isinstance(stmt, Transfer):
            # A message still on its way from the same region may end later than this kernel.
            for r in access.reads:
                read_until[r] = max(read_until[r], 2 * i + 1)
            for r in access.writes:
                written_until[r] = 2 * i + 1
            continue
        (source,), (slot,) = access.reads, access.writes
        assert slot not in overlapping[source], f"transfer {stmt.channel} receives into what it sends"
        received, sent = waits[i]
        slot_free = max(max(read_until[r], written_until[r]) for r in overlapping[slot])
        data_ready = max([written_until[r] for r in overlapping[source]])
        phases_over = int(phase_over[: stmt.phase].max(initial=START)) if stmt.phase > 0 else START
        earliest = bounds[i].earliest
        times[i] = TransferTimes(
            max(slot_free, earliest), max(data_ready, phases_over, earliest), received, sent
        )
        read_until[source] = max(read_until[source], sent)
        written_until[slot] = max(written_until[slot], received)
        if stmt.phase >= 0:
            phase_over[stmt.phase] = max(phase_over[stmt.phase], received)
    return times


def _latest_waits(
    procedure: Procedure, scan: Accesses, overlapping: Sequence[list[int]], bounds: dict[int, Bounds]
) -> dict[int, tuple[int, int]]:
    """The latest times of the waits (received, sent) of each transfer, by position.

    A wait (received) stands before the first later statement that accesses the slot or is a transfer of a later phase,
    a wait (sent) before the first one that overwrites the source.
    """
    body, end = procedure.body, len(procedure.body)
    next_access = [end] * len(scan.regions)
    next_write = next_access.copy()
    next_of_phase = np.full(_phases(procedure), end, np.int64)
    waits = {}
    for i in range(end - 1, -1, -1):
        access, stmt = scan.by_statement[i], body[i]
        if isinstance(stmt, Transfer):
            (source,), (slot,) = access.reads, access.writes
            next_phase = int(next_of_phase[stmt.phase + 1 :].min(initial=end)) if stmt.phase >= 0 else end
            received = min(
                *[next_access[r] for r in overlapping[slot]], next_phase, bounds[i].latest_received
            )
            sent = min(*[next_write[r] for r in overlapping[source]], bounds[i].latest_sent)
            waits[i] = (2 * received, 2 * sent)
            if stmt.phase >= 0:
                next_of_phase[stmt.phase] = i
        for r in access.reads:
            next_access[r] = i
        for r in access.writes:
            next_access[r] = next_write[r] = i
    return waits


def _bounds(procedure: Procedure, slack: Slack) -> dict[int, Bounds]:
    """The bounds of each transfer, by position."""
    end = len(procedure.body)
    remote = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer) and not s.is_local]
    transfers = [i for i, _ in remote]
    spans = group_spans(procedure)
    group_of = {i: k for k, span in enumerate(spans) for i in span.transfers}
    firsts = [span.first for span in spans]
    bytes_before = np.cumsum([0, *(s.read.bytes for _, s in remote)])
    bounds = {}
    for n, i in enumerate(transfers):
        k = group_of[i]
        by_bytes = int(np.searchsorted(bytes_before, bytes_before[n] - slack.bytes))
        lo = min(n - slack.transfers, by_bytes)
        by_bytes = int(np.searchsorted(bytes_before, bytes_before[n + 1] + slack.bytes, side="right")) - 2
        hi = max(n + slack.transfers, by_bytes)
        earliest = max(_get(firsts, k - slack.groups, START), _get(transfers, lo, START))
        latest_sent = min(_get(firsts, k + slack.groups + 1, end), _get(transfers, hi + 1, end))
        bounds[i] = Bounds(2 * earliest if earliest > START else START, latest_sent, end)
    bounds.update(copy_bounds(procedure, slack))
    return bounds


def _get(numbers: list[int], index: int, default: int) -> int:
    return numbers[index] if 0 <= index < len(numbers) else default


def _phases(procedure: Procedure) -> int:
    return 1 + max((s.phase for s in procedure.body if isinstance(s, Transfer)), default=-1)


# Transfers of few bytes may pass as many others as carry this part of the fast memory.
_FEW: Final = 48


@dataclass(frozen=True, slots=True)
class Slack:
    """The distance that parts of a transfer may move, limited because a message in flight occupies memory at both ends.

    They move over at most `groups` other groups, and over `transfers` other transfers (of one stream: some rounds) or
    as many as carry few `bytes`. Those of local transfers move over as much work of the `die` as hides them."""

    groups: int
    transfers: int
    die: Die

    @property
    def bytes(self) -> int:
        """The bytes of other transfers that a part may move over."""
        return self.die.sram // _FEW if self.transfers else 0

    def seconds(self, transfer: Transfer) -> float:
        """Seconds that a local transfer keeps the port of the HBM busy."""
        return DieRates.of(self.die).hbm(transfer.read.bytes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a transfer: the earliest time of its post and send, and the statements before which its waits (sent)
    and (received) stand at the latest."""

    earliest: int
    latest_sent: int
    latest_received: int


# The work that a copy is given to hide behind, in multiples of its own time.
_COPY_IN: Final = 1.5  # before its first use
_COPY_OUT: Final = 4  # after the end of the copies before it


def copy_bounds(procedure: Procedure, slack: Slack) -> dict[int, Bounds]:
    """The bounds of each local transfer, by position.

    All copies share the port of one memory, which serves them in order. So a copy in begins early enough to wait for
    those before it; `plan_memory` lets it begin later where there is no room for it.
    """
    arguments = {v.name for v in procedure.arguments}
    local = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer) and s.is_local]
    if not local:
        return {}
    work = cumulative_work(procedure, slack.die)
    outs = [(i, s) for i, s in local if s.write.buffer in arguments]
    port = _Port.of([(float(work.seconds[i]), slack.seconds(s)) for i, s in outs])
    bounds = {}
    for (i, stmt), end in zip(outs, port.ends, strict=True):
        latest = max(i + 1, work.first_after(end + _COPY_OUT * slack.seconds(stmt)))
        bounds[i] = Bounds(2 * i, latest, latest)
    free = float(work.seconds[-1])
    for i, stmt in reversed(local):
        if i not in bounds:
            free = port.latest_start(min(free, float(work.seconds[i])), _COPY_IN * slack.seconds(stmt))
            # The copy is complete at its own position, where later statements may use it.
            bounds[i] = Bounds(2 * work.last_within(free), i + 1, i + 1)
    return bounds


@dataclass(frozen=True, slots=True)
class _Port:
    """Queue of the copies out at the port of the memory: seconds at which each is `ready`, and at which each ends."""

    ready: NDArray[np.float64]
    ends: tuple[float, ...]

    @staticmethod
    def of(copies: list[tuple[float, float]]) -> _Port:
        """The queue of copies given as (ready, duration) in seconds, in order."""
        ends: list[float] = []
        for ready, seconds in copies:
            ends.append(max(ready, ends[-1] if ends else 0.0) + seconds)
        return _Port(np.array([ready for ready, _ in copies]), tuple(ends))

    def latest_start(self, end: float, seconds: float) -> float:
        """The latest start with which a copy in ends by `end` behind the copies out, or just before the first of
        these."""
        start = end - seconds
        k = int(np.searchsorted(self.ready, start)) - 1
        while k >= 0 and self.ends[k] + seconds > end:
            start = float(np.nextafter(self.ready[k], 0))  # before that copy out
            k -= 1
        return start
