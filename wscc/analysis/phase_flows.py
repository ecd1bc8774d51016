"""Flows of each phase of a procedure, for the router: one for each pair of dies that exchange bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, TypeGuard

import numpy as np

from wscc.analysis.flops import gemm_flops
from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY, Ints
from wscc.routing.flows import Flow
from wscc.routing.limits import Limits

# (content, one hop, channel or _ANY) of a transfer; transfers of one kind share flows.
Kind = tuple[str, bool, int]
_ANY: Final = -1
# A phase of at most so many messages, all too small to be cut, has a flow for each of them.
_FEW: Final = 512

# A pair of physical dies as one integer: source * _CODE + destination.
_CODE = 1 << 24


@dataclass(frozen=True, slots=True)
class PhaseFlows:
    """The flows of one phase. Messages of one pair of dies and one kind are one flow of all their bytes; the flows of a
    kind are those of the sorted `pairs[kind]` (codes of pairs), from number `first[kind]` on. `flops` is the work of
    kernels between the transfers."""

    procedure: str
    phase: int
    transfers: tuple[Transfer, ...]
    flows: tuple[Flow, ...]
    pairs: dict[Kind, DieArray]
    first: dict[Kind, int]
    flops: int = 0

    @property
    def name(self) -> str:
        """The name of the phase: `procedure/phase`."""
        return f"{self.procedure}/{self.phase}"

    def kind(self, transfer: Transfer) -> Kind:
        """The kind of a transfer of the phase: with the same receivers by sender, it has the same flows."""
        return next(k for k in (_kind(transfer, apart=True), _kind(transfer, apart=False)) if k in self.first)

    def numbers(self, transfer: Transfer, dies: DieArray) -> DieArray:
        """The flow of each sender's message, or `NOBODY`: [senders]. `dies`: the physical die of each logical one."""
        kind = self.kind(transfer)
        codes = _codes(transfer.to, dies)
        return np.where(codes == NOBODY, NOBODY, self.first[kind] + np.searchsorted(self.pairs[kind], codes))


def module_flows(module: Module) -> tuple[PhaseFlows, ...]:
    """The flows of every phase of every procedure, in order."""
    dies = np.asarray(module.dies, np.int64)
    return tuple(phase for p in module.procedures for phase in _procedure_flows(p, dies))


def unphased_flows(module: Module) -> tuple[PhaseFlows, ...]:
    """The flows of each procedure as if it were one phase; procedures that send nothing are left out."""
    dies = np.asarray(module.dies, np.int64)
    sent = {p.name: [t for t in p.body if _takes_links(t)] for p in module.procedures}
    return tuple(_phase_flows(name, 0, transfers, dies) for name, transfers in sent.items() if transfers)


def _procedure_flows(procedure: Procedure, dies: DieArray) -> list[PhaseFlows]:
    by_phase: dict[int, list[Transfer]] = {}
    work: dict[int, int] = {}
    flops = 0  # of kernels since the previous transfer
    for stmt in procedure.body:
        if isinstance(stmt, Kernel):
            flops += gemm_flops(stmt)
        elif _takes_links(stmt):
            if stmt.phase in by_phase:
                work[stmt.phase] = work.get(stmt.phase, 0) + flops
            by_phase.setdefault(stmt.phase, []).append(stmt)
            flops = 0
    return [
        replace(_phase_flows(procedure.name, phase, transfers, dies), flops=work.get(phase, 0))
        for phase, transfers in by_phase.items()
    ]


def _takes_links(stmt: object) -> TypeGuard[Transfer]:
    return isinstance(stmt, Transfer) and stmt.to != NOBODY and not stmt.is_local


def _phase_flows(name: str, phase: int, transfers: Sequence[Transfer], dies: DieArray) -> PhaseFlows:
    kinds: dict[Kind, list[Transfer]] = {}
    apart = _are_few_and_small(transfers, len(dies))
    for t in transfers:
        kinds.setdefault(_kind(t, apart=apart), []).append(t)
    flows: list[Flow] = []
    pairs: dict[Kind, DieArray] = {}
    first: dict[Kind, int] = {}
    for kind, of_kind in sorted(kinds.items()):
        sent: Counter[Ints] = Counter()
        for t in of_kind:
            sent[t.to] += t.read.bytes
        codes = [c[c != NOBODY] for c in (_codes(to, dies) for to in sent)]
        sizes = np.repeat(np.asarray([*sent.values()], np.int64), [len(c) for c in codes])
        pairs[kind], index = np.unique(np.concatenate(codes), return_inverse=True)
        amounts = np.zeros(len(pairs[kind]), np.int64)
        np.add.at(amounts, index, sizes)
        first[kind] = len(flows)
        content, one_hop, _ = kind
        flows += [
            Flow(code // _CODE, code % _CODE, size, content or None, one_hop)
            for code, size in zip(pairs[kind].tolist(), amounts.tolist(), strict=True)
        ]
    return PhaseFlows(name, phase, tuple(transfers), tuple(flows), pairs, first)


def _are_few_and_small(transfers: Sequence[Transfer], dies: int) -> bool:
    least = 2 * Limits().part_bytes
    if not all(t.read.bytes < least for t in transfers):
        return False
    messages = (int(np.count_nonzero(as_array(t.to, dies) != NOBODY)) for t in transfers)
    return all(total <= _FEW for total in accumulate(messages))


def _kind(t: Transfer, *, apart: bool) -> Kind:
    return t.content, t.one_hop, t.channel if apart else _ANY


def _codes(to: Ints, dies: DieArray) -> DieArray:
    """The code of each sender's pair of dies, or `NOBODY`: [senders]."""
    target = as_array(to, len(dies))
    return np.where(target == NOBODY, NOBODY, dies * _CODE + dies[target])
