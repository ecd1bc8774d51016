"""The times of the statements of a sharded procedure: seconds of work, of the port of the HBM, of links and of latency.

Work is FLOPs at the efficiency of the tiles of a die. Of arrays that are small beside the SRAM, the part behind it is
taken to lie in HBM, as `plan_memory` lays them out behind the locals; of others, which `promote` copies, all but what
calls hand on. So does a local that finds no room in SRAM beside those with more accesses for their time. What is added
to is passed over twice; what a stream moves, also by the messages that it leaves with.
Reshards take the algorithm of least time at nominal places of the dies (`wscc.search.nominal`).

Rates are those of the wafer (`wscc.analysis.cost`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.flops import computed_flops
from wscc.analysis.memory.array_layout import peak_array_bytes, place_arrays
from wscc.analysis.op_axes import working_axes
from wscc.ir.array import Kind
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import calls
from wscc.passes.lower_collectives.algorithms import Algorithm, Algorithms
from wscc.search.nominal import nominal

# Arguments are copied in if arrays have more than so many times the SRAM, of which other locals then have this part.
_COPIED: Final = 4
_ROOM: Final = 0.5
# Calls hand on what is no larger than one part in so many of the SRAM; a reduction holds as much in it at once.
_HANDED: Final = 16
_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class Task:
    """What a statement takes, in seconds: `work` of the die, `copies` through the port of the HBM, `messages` on the
    links of `axis`, and `latency` until the last one is there; one of `chunks` parts of the work then remains."""

    work: float = 0.0
    copies: float = 0.0
    messages: float = 0.0
    latency: float = 0.0
    axis: str = ""
    chunks: int = 1


@dataclass(slots=True)
class StatementTimes:
    """The times of the statements of a sharded module, whose locals have `room` bytes of SRAM. `far`: of each
    procedure, the share of each argument that lies in HBM, where there is any."""

    module: Module
    rates: Rates[float]
    algorithms: Algorithms
    room: float
    far: dict[str, dict[str, float]]

    @staticmethod
    def of(sharded: Module) -> StatementTimes:
        """The times of a sharded module."""
        sram, rates = sharded.machine.die.sram, Rates.of(sharded.machine)
        is_copied = peak_array_bytes(sharded) > _COPIED * sram
        times = StatementTimes(sharded, rates, nominal(sharded), sram * _ROOM if is_copied else sram, {})
        if is_copied:
            times.far = _not_handed(sharded)
        elif rates.die.has_hbm:
            times.far = _behind(sharded, max(map(times.most_local, sharded.procedures), default=0))
        return times

    def most_local(self, p: Procedure) -> int:
        """The most bytes of locals of a procedure that live at once."""
        spans, values = self._spans(p)
        change = [0] * (len(p.statements) + 1)
        for name, span in spans.items():
            change[span[0]] += self._local(values[name])
            change[span[-1] + 1] -= self._local(values[name])
        return max(accumulate(change), default=0)

    def tasks(self, p: Procedure) -> list[Task]:
        """What each statement of a procedure takes."""
        slow = self._slow(p)
        return [self._reshard(s, slow) if isinstance(s, Reshard) else self._op(s, slow) for s in p.statements]

    # -- places of values

    def _slow(self, p: Procedure) -> dict[str, float]:
        """The values that are taken to lie in HBM, with their share there: arguments, and locals that find no room. An
        access passes twice over what is added to."""
        arguments = dict(self.far.get(p.name, {}))
        for o in p.outputs:
            if o.mode is Mode.ADD and o.value.name in arguments:
                arguments[o.value.name] *= 2
        return arguments | dict.fromkeys(self._spilled(p), 1.0)

    def _spans(self, p: Procedure) -> tuple[dict[str, list[int]], dict[str, Value]]:
        """The statements that access each local, in order, and the locals by name."""
        arguments = {v.name for v in p.arguments}
        spans: dict[str, list[int]] = {}
        values: dict[str, Value] = {}
        for i, s in enumerate(p.statements):
            for v in (*s.operands, *s.results):
                if v.name not in arguments:
                    spans.setdefault(v.name, []).append(i)
                    values[v.name] = v
        return spans, values

    def _spilled(self, p: Procedure) -> frozenset[str]:
        """The locals that find no room in SRAM, where those with the most accesses for their time go first."""
        spans, values = self._spans(p)
        room = [self.room] * len(p.statements)
        spilled = []
        for name in sorted(
            spans, key=lambda n: (-len(spans[n]) / (spans[n][-1] - spans[n][0] + 1), self._local(values[n]))
        ):
            first, last, size = spans[name][0], spans[name][-1] + 1, self._local(values[name])
            if size <= min(room[first:last]):
                room[first:last] = [r - size for r in room[first:last]]
            else:
                spilled.append(name)
        return frozenset(spilled)

    def _op(self, op: Op, slow: dict[str, float]) -> Task:
        work, copies = self._compute(op), self.rates.die.hbm(self._hbm(op, slow))
        if op.stream is None:
            return Task(work, copies)
        axis, n = op.stream.axis, self.module.sizes[op.stream.axis]
        ring = self.algorithms.neighbours(axis)
        latency, messages = self._message(ring, sum(map(self._local, self._moving(op))))
        return Task(work, copies, messages, latency, axis, n)

    def _message(self, algorithm: Algorithm, shard: int) -> tuple[float, float]:
        """Seconds of latency, and of bytes on the fullest link, of shards of so many bytes."""
        rates, rounds = self.rates, algorithm.rounds
        on_link = rates.link.busy(rates.link.times().on_link(shard))
        hops, shards = sum(h for h, _ in rounds), sum(n for _, n in rounds)
        return hops * rates.link.latency, shards * on_link

    # -- work on a die ----------------------------------------------------------------------------------

    def _compute(self, op: Op) -> float:
        if not op.flops:
            return 0.0
        split = prod(self.module.sizes[a] for a in working_axes(op))
        flops = float(computed_flops(op, self.module)) / split
        return self.rates.die.compute(flops / self._efficiency(op))

    def _efficiency(self, op: Op) -> float:
        """Part of the peak that the products of a die reach."""
        local: dict[str, int] = {}
        for value, term in op.terms():
            for factor, n in zip(term, value.type.local_shape(self.module.sizes), strict=True):
                local[factor] = max(n, local.get(factor, 1))
        if op.stream is not None:
            local[op.stream.factor] = self._in_a_turn(op, op.stream.factor)
        a, b, out = op.rule.ins[0], op.rule.ins[1], op.rule.outs[0]
        if op.definition.positional:  # products of queries, keys and widths, one for each head
            sides = [local[a[1]], local[b[1]], local[a[-1]]]
        else:
            rows, columns, inner = set(a) - set(b), set(b) - set(a), (set(a) & set(b)) - set(out)
            sides = [prod(local[f] for f in side) for side in (rows, columns, inner)]
        return self.rates.die.efficiency(sides)

    def _in_a_turn(self, op: Op, factor: str) -> int:
        """The size of a streamed factor in the shards that move: what stays may have all of it, as the result of a
        product has, or none, as queries have no keys."""
        moving = {v.name for v in self._moving(op)}
        shapes = ((term, v.type.local_shape(self.module.sizes)) for v, term in op.terms() if v.name in moving)
        return min(shape[term.index(factor)] for term, shape in shapes if factor in term)

    def _hbm(self, op: Op, slow: dict[str, float]) -> float:
        """Bytes through the port of the HBM. A stream is done in slices of which all turns find room in SRAM; a shard
        that leaves is read once more for each way, then lies in slots."""
        stream = op.stream
        leaving = [op.operands[i] for i in stream.moving_in] if stream else []
        ways = min(2, self.module.sizes[stream.axis] - 1) if stream else 0
        amounts: dict[str, float] = {}
        for v, _ in op.terms():
            if v.name in slow:
                amounts[v.name] = self._local(v) * slow[v.name] * (1 + ways * (v in leaving))
        if op.definition.table is not None:
            amounts.pop(op.operands[op.definition.table].name, None)
        return sum(amounts.values())

    def _moving(self, op: Op) -> list[Value]:
        if op.stream is None:
            return []
        return [
            *(op.operands[i] for i in op.stream.moving_in),
            *(op.results[j] for j in op.stream.moving_out),
        ]

    def _local(self, v: Value) -> int:
        return prod(v.type.local_shape(self.module.sizes)) * v.type.dtype.size

    # -- links ------------------------------------------------------------------------------------------

    def _reshard(self, op: Reshard, slow: dict[str, float]) -> Task:
        ends = (op.operand, op.result)
        copies = self.rates.die.hbm(sum(self._local(v) * slow.get(v.name, 0.0) for v in ends))
        if op.kind in ("slice", "mask"):
            return Task(copies=copies)
        latency, messages = self._collective(op)
        if op.kind == "all_reduce":
            copies += self.rates.die.hbm(self._parts(op))
        return Task(0.0, copies, messages, latency, op.axis)

    def _parts(self, op: Reshard) -> int:
        """Bytes through the port of the HBM of the parts that an all_reduce adds, where SRAM does not hold them."""
        size, n, whole = op.operand.type.dtype.size, self.module.sizes[op.axis], self._local(op.operand)
        chosen = self.algorithms.reduction(op.axis, whole // size, size)
        held = whole if chosen.scatter else n * whole
        if held * _PARTS <= self.module.machine.die.sram:
            return 0
        return 7 * (n - 1) * (whole // n) if chosen.scatter else (5 * n - 3) * whole

    def _collective(self, op: Reshard) -> tuple[float, float]:
        axis, algorithms = op.axis, self.algorithms
        n = self.module.sizes[axis]
        match op.kind:
            case "all_gather":
                shard = self._local(op.operand)
                return self._message(algorithms.gather(axis, shard), shard)
            case "reduce_scatter":
                shard = self._local(op.result)
                return self._message(algorithms.scatter(axis, shard), shard)
            case "all_reduce":
                return self._all_reduce(op)
            case "all_to_all":
                shard = self._local(op.operand) // n
                latency, messages = self._message(algorithms.neighbours(axis), shard)
                return latency, messages * n / 2
            case _:  # to the next peer
                hops, shards = algorithms.neighbours(axis).rounds[0]
                busy = self.rates.link.busy(self._local(op.operand))
                return hops * self.rates.link.latency, max(1.0, shards) * busy

    def _all_reduce(self, op: Reshard) -> tuple[float, float]:
        size = op.operand.type.dtype.size
        elements = self._local(op.operand) // size
        chosen = self.algorithms.reduction(op.axis, elements, size)
        shard = self._local(op.operand) // (self.module.sizes[op.axis] if chosen.scatter else 1)
        parts = [self._message(a, shard) for a in (chosen.scatter, chosen.gather) if a]
        return sum(latency for latency, _ in parts), sum(messages for _, messages in parts)


def _not_handed(module: Module) -> dict[str, dict[str, float]]:
    """All arguments, but those that calls hand from one to the next in SRAM."""
    arrays = {a.name: a for a in module.arrays}
    most = module.machine.die.sram / _HANDED
    found = {p.name: {v.name: 1.0 for v in p.arguments} for p in module.procedures}
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            if arrays[ref.array].kind is Kind.CARRIED and _bytes(v, module) <= most:
                found[p.name].pop(v.name, None)
    return found


def _behind(module: Module, scratch: int) -> dict[str, dict[str, float]]:
    """Of the arguments whose arrays reach behind the SRAM, where arrays begin behind so many bytes, the share there."""
    sram, share = module.machine.die.sram, dict[str, float]()
    for a, place in zip(module.arrays, place_arrays(module, scratch)[0], strict=True):
        size = a.count * place.stride
        share[a.name] = min(1.0, max(0.0, place.address + size - sram) / size) if size else 0.0
    found: dict[str, dict[str, float]] = {p.name: {} for p in module.procedures}
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            if share[ref.array]:
                found[p.name][v.name] = max(share[ref.array], found[p.name].get(v.name, 0.0))
    return found


def _bytes(v: Value, module: Module) -> int:
    return prod(v.type.local_shape(module.sizes)) * v.type.dtype.size
