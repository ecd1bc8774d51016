"""The times of the statements of a sharded procedure: seconds of work, of the port of the HBM, of links and of latency.

Work is FLOPs at the efficiency of the tiles of a die. Bytes in HBM are those of `wscc.search.traffic`: of arrays that
are small beside the SRAM, the part behind it lies there, as `plan_memory` lays them out behind the locals; of others,
which `promote` copies, all but what calls hand on. Reshards take the algorithm of least time at nominal places of the
dies (`wscc.search.nominal`).

Rates are those of the wafer (`wscc.analysis.cost`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.flops import computed_flops
from wscc.analysis.memory.array_layout import peak_array_bytes, place_arrays
from wscc.analysis.op_axes import working_axes
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import calls
from wscc.passes.lower_collectives.algorithm import Algorithm
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.search.needed import local_bytes, most_local
from wscc.search.nominal import nominal
from wscc.search.slicing import Slicing
from wscc.search.traffic import Room, traffic

# Arguments are copied in if arrays have more than so many times the SRAM.
_COPIED: Final = 4
# Calls hand on what is no larger than one part in so many of the SRAM; a reduction holds as much in it at once.
_HANDED: Final = 16
_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class Task:
    """What a statement takes, in seconds: `work` of the die; at the port of the HBM `direct` by kernels, `brought`
    before it and `taken` behind it by copies; `gathered` on the links of `axis` before all work, or in `chunks` parts
    beside it, `sent` behind it; and `latency` in `rounds` each way."""

    work: float = 0.0
    direct: float = 0.0
    brought: float = 0.0
    taken: float = 0.0
    axis: str = ""
    gathered: float = 0.0
    sent: float = 0.0
    latency: float = 0.0
    rounds: int = 0
    chunks: int = 1
    slices: int = 1

    @property
    def parts(self) -> int:
        """The parts of its work, one behind the other."""
        return self.chunks * self.slices

    @property
    def messages(self) -> float:
        return self.gathered + self.sent

    @property
    def copies(self) -> float:
        return self.direct + self.brought + self.taken


@dataclass(slots=True)
class StatementTimes:
    """The times of the statements of a sharded module. `far`: of each procedure, the share of each argument that lies
    in HBM, where there is any."""

    module: Module
    rates: Rates[float]
    algorithms: Algorithms
    slicing: Slicing
    far: dict[str, dict[str, float]]

    @staticmethod
    def of(sharded: Module) -> StatementTimes:
        """The times of a sharded module."""
        sram, rates, algorithms = sharded.die.sram, Rates.of(sharded.machine, sharded.die), nominal(sharded)
        times = StatementTimes(sharded, rates, algorithms, Slicing.new(sharded, algorithms), {})
        if peak_array_bytes(sharded) > _COPIED * sram:
            times.far = _not_handed(sharded)
        elif rates.die.has_hbm:
            times.far = _behind(sharded, most_local(sharded))
        return times

    def tasks(self, p: Procedure) -> list[Task]:
        """What each statement of a procedure takes."""
        tasks = [self._reshard(s) if isinstance(s, Reshard) else self._op(s) for s in p.statements]
        die = self.rates.die
        if not die.has_hbm:
            return tasks
        room = Room(self.module.die.sram, self.far.get(p.name, {}))
        found = traffic(p, [t.work for t in tasks], room, die, self.slicing)
        return [
            replace(
                t, direct=t.direct + die.hbm(x.direct), brought=die.hbm(x.brought), taken=die.hbm(x.taken)
            )
            for t, x in zip(tasks, found, strict=True)
        ]

    def _op(self, op: Op) -> Task:
        work = self._compute(op)
        if op.stream is None:
            return Task(work)
        axis, ring = op.stream.axis, self.algorithms.neighbours(op.stream.axis)
        inward = [op.operands[i] for i in op.stream.moving_in]
        outward = [op.results[j] for j in op.stream.moving_out]
        latency, gathered = self._message(ring, sum(map(self._local, inward)))
        _, sent = self._message(ring, sum(map(self._local, outward)))
        return Task(
            work, axis=axis, gathered=gathered, sent=sent, latency=latency, rounds=len(ring.rounds),
            chunks=self.module.sizes[axis], slices=self.slicing.of(op).count,
        )  # fmt: skip

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

    def _moving(self, op: Op) -> list[Value]:
        if op.stream is None:
            return []
        return [
            *(op.operands[i] for i in op.stream.moving_in),
            *(op.results[j] for j in op.stream.moving_out),
        ]

    def _local(self, v: Value) -> int:
        return local_bytes(self.module, v)

    # -- links ------------------------------------------------------------------------------------------

    def _reshard(self, op: Reshard) -> Task:
        if op.kind in ("slice", "mask"):
            return Task()
        latency, messages, rounds = self._collective(op)
        direct = self.rates.die.hbm(self._parts(op)) if op.kind == "all_reduce" else 0.0
        return Task(0.0, direct, axis=op.axis, gathered=messages, latency=latency, rounds=rounds)

    def _parts(self, op: Reshard) -> int:
        """Bytes through the port of the HBM of the parts that an all_reduce adds, where SRAM does not hold them."""
        size, n, whole = op.operand.type.dtype.size, self.module.sizes[op.axis], self._local(op.operand)
        chosen = self.algorithms.reduction(op.axis, whole // size, size)
        held = whole if chosen.scatter else n * whole
        if held * _PARTS <= self.module.die.sram:
            return 0
        return 7 * (n - 1) * (whole // n) if chosen.scatter else (5 * n - 3) * whole

    def _collective(self, op: Reshard) -> tuple[float, float, int]:
        """Seconds of latency and of bytes of a reshard, and its rounds."""
        axis, algorithms = op.axis, self.algorithms
        n = self.module.sizes[axis]
        match op.kind:
            case "all_gather":
                shard = self._local(op.operand)
                return self._taking(algorithms.gather(axis, shard), shard)
            case "reduce_scatter":
                shard = self._local(op.result)
                return self._taking(algorithms.scatter(axis, shard), shard)
            case "all_reduce":
                return self._all_reduce(op)
            case "all_to_all":
                shard = self._local(op.operand) // n
                latency, messages, rounds = self._taking(algorithms.neighbours(axis), shard)
                return latency, messages * n / 2, rounds
            case _:  # to the next peer
                hops, shards = algorithms.neighbours(axis).rounds[0]
                busy = self.rates.link.busy(self._local(op.operand))
                return hops * self.rates.link.latency, max(1.0, shards) * busy, 1

    def _taking(self, algorithm: Algorithm, shard: int) -> tuple[float, float, int]:
        return *self._message(algorithm, shard), len(algorithm.rounds)

    def _all_reduce(self, op: Reshard) -> tuple[float, float, int]:
        size = op.operand.type.dtype.size
        elements = self._local(op.operand) // size
        chosen = self.algorithms.reduction(op.axis, elements, size)
        shard = self._local(op.operand) // (self.module.sizes[op.axis] if chosen.scatter else 1)
        latency, messages, rounds = zip(
            *(self._taking(a, shard) for a in (chosen.scatter, chosen.gather) if a), strict=True
        )
        return sum(latency), sum(messages), sum(rounds)


def _not_handed(module: Module) -> dict[str, dict[str, float]]:
    """All arguments, but those that calls hand from one to the next in SRAM."""
    arrays = {a.name: a for a in module.arrays}
    most = module.die.sram / _HANDED
    found = {p.name: {v.name: 1.0 for v in p.arguments} for p in module.procedures}
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            if arrays[ref.array].kind is Kind.CARRIED and local_bytes(module, v) <= most:
                found[p.name].pop(v.name, None)
    return found


def _behind(module: Module, scratch: int) -> dict[str, dict[str, float]]:
    """Of the arguments whose arrays reach behind the SRAM, where arrays begin behind so many bytes, the share there."""
    sram, share = module.die.sram, dict[str, float]()
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
