"""Hypothesis strategies of valid modules of the fabric level, before and after messages are scheduled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Final

import networkx as nx
from hypothesis import strategies as st

from tests.support.generate import Calls, in_loops
from tests.support.generate_header import Dice, header
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, KernelAttr, Post, Send, Transfer, Wait
from wscc.ir.memory import Memory, Placement, aligned
from wscc.ir.module import Level, Mode, Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.per_die import NOBODY, Ints, PerDie, per_die
from wscc.ir.routes import Leg, Route
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.types import DType, Layout, TensorType
from wscc.ir.views import View
from wscc.machine.wafer import Wafer

_OPCODES: Final = sorted(set(INSTRUCTIONS) - {"post", "send", "wait"})
_ATTR_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("start", "q_start", "k_start", "limit", "warmup", "decay", "time"), int),
    **dict.fromkeys(
        ("e_start", "c_start", "capacity", "k", "salt", "window", "heads", "group", "h_start", "g_start"), int
    ),
    **dict.fromkeys(("accumulate", "causal", "renormalise"), bool),
}


@dataclass(slots=True)
class Fabric:
    """The dies and routes of one module, which its procedures share; `waits` are dependences of links (no circle)."""

    dice: Dice
    dies: tuple[int, ...]
    machine: Wafer
    routes: dict[Route, int] = field(default_factory=dict)
    waits: nx.DiGraph = field(default_factory=nx.DiGraph)

    def ints(self, low: int, high: int) -> Ints:
        """Integers from `low` to `high`: one for all dies, or one for each."""
        if self.dice.coin():
            return self.dice.randint(low, high)
        step = self.dice.randint(0, high - low)
        some = [
            self.dice.randint(low, high),
            *(low + i * step % (high - low + 1) for i in range(len(self.dies))),
        ]
        return per_die(self.dice.choice((some[1:], [self.dice.choice(some) for _ in self.dies])))

    def peers(self) -> tuple[Ints, Ints, bool]:
        """A partial permutation without fixed points, its routes by sender, and whether all are one hop."""
        to, route, hops = [NOBODY] * len(self.dies), [NOBODY] * len(self.dies), []
        targets = self.dice.sample(range(len(self.dies)), len(self.dies))
        for i, j in enumerate(targets):
            path = self._route(self.dies[i], self.dies[j]) if i != j and self.dice.random() < 0.8 else None
            if path:
                to[i], route[i] = j, self.routes.setdefault(path, len(self.routes))
                hops.append(path.hops == 1)
        return per_die(to), per_die(route), all(hops)

    def _route(self, a: int, b: int) -> Route | None:
        """A shortest path as one leg or two, on a random channel; None if links would wait in a circle there."""
        path = self._path(a, b)
        if path is None:
            return None
        channel = self.dice.randint(0, self.machine.link.channels - 1)
        hops = [(channel, *hop) for hop in pairwise(path)]
        waits = nx.DiGraph(self.waits)
        waits.add_edges_from(pairwise(hops))
        if not nx.is_directed_acyclic_graph(waits):
            return None
        self.waits = waits
        whole = Leg(path, channel, self.dice.randint(1, 3))
        return Route((whole,) if self.dice.coin() else (whole, Leg(path, channel)))

    def _path(self, a: int, b: int) -> tuple[int, ...] | None:
        """A shortest live path between physical dies, by breadth-first search."""
        w, previous, queue = self.machine, {a: a}, deque([a])
        while queue and b not in previous:
            die = queue.popleft()
            for other in range(w.dies):
                ends = w.coordinate(die), w.coordinate(other)
                live = w.joins(*ends) and ends[1] not in w.dead_dies and not w.is_missing(*ends)
                if live and other not in previous:
                    previous[other] = die
                    queue.append(other)
        path = [b]
        while b in previous and path[-1] != a:
            path.append(previous[path[-1]])
        return tuple(reversed(path)) if b in previous else None


@dataclass(slots=True)
class Body:
    """A procedure under construction."""

    fabric: Fabric
    arguments: dict[str, TensorType]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    body: list[FabricStmt] = field(default_factory=list)
    channel: int = 0

    @property
    def dice(self) -> Dice:
        return self.fabric.dice

    def view(self, shape: tuple[int, ...], dtype: DType, *, is_written: bool) -> View:
        """A view on a new buffer that is just large enough."""
        d = self.dice
        strides, step = [], 1
        for n in reversed(shape):
            strides.insert(0, 0 if not is_written and d.random() < 0.1 else step)
            step *= n if d.random() < 0.7 else n + 1
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        offset = self.fabric.ints(0, 8)
        last = reach + (offset if isinstance(offset, int) else max(offset.values))
        name = d.name({*self.buffers, *self.arguments})
        self.buffers[name] = Buffer(name, last + 1, dtype, slot=d.coin())
        return View(name, offset, shape, tuple(strides), dtype)

    def add_kernel(self) -> None:
        d = self.dice
        row = INSTRUCTIONS[d.choice(_OPCODES)]
        sizes: dict[str, tuple[int, ...]] = {"*": tuple(d.choices((1, 2, 3), k=d.randint(0, 2)))}
        sizes[""] = tuple(d.choices((1, 2, 4), k=d.randint(0, 3)))

        def shape(operand: str) -> tuple[int, ...]:
            _, bracket, inside = operand.rstrip("]").partition("[")
            if not bracket:
                return sizes[""]
            slots = [s for s in inside.split(",") if s]
            return tuple(n for s in slots for n in sizes.setdefault(s, (d.randint(1, 4),)))

        dtype = d.choice(list(DType))
        writes = tuple(self.view(shape(o), dtype, is_written=True) for o in row.writes.split())
        reads = tuple(self.view(shape(o), d.choice(list(DType)), is_written=False) for o in row.reads.split())
        attrs = tuple((name, self._attr(row.opcode, name)) for name in row.attr_names)
        if row.opcode == "sum":
            summed = sorted(d.sample(range(len(sizes[""])), d.randint(0, len(sizes[""]))))
            result = tuple(n for i, n in enumerate(sizes[""]) if i not in summed)
            writes = (self.view(result, dtype, is_written=True),)
            attrs = (("axes", ",".join(map(str, summed))), attrs[1])
        if row.opcode == "dropout":
            strides = ",".join(str(d.randint(1, 9)) for _ in writes[0].shape[1:])
            attrs = tuple((n, strides if n == "strides" else v) for n, v in attrs)
        where = self.fabric.ints(0, 1)
        self.body.append(Kernel(row.opcode, writes, reads, attrs, where, d.choice(("", d.name()))))

    def _attr(self, opcode: str, name: str) -> KernelAttr:
        kind = _ATTR_TYPES.get(name, float)
        if kind is int and self.dice.coin():
            return self.fabric.ints(0, 99)
        return self.dice.scalar(opcode, name, kind)  # type: ignore[no-any-return]

    def add_message(self, *, scheduled: bool) -> None:
        """Append a transfer, or the four statements of a message: post and send in random places, waits at the end."""
        d = self.dice
        shape, dtype = tuple(d.choices((1, 2, 3), k=d.randint(0, 2))), d.choice(list(DType))
        read, write = self.view(shape, dtype, is_written=False), self.view(shape, dtype, is_written=True)
        to, route, one_hop = self.fabric.peers()
        self.channel += d.randint(1, 3)
        if not scheduled:
            hop, source = one_hop and d.coin(), d.choice(("", d.name()))
            content = d.choice(("", f"{d.name()}.{self.channel}"))
            self.body.append(
                Transfer(
                    self.channel, to, read, write, d.name(), content, d.randint(-1, 0), route, hop, source
                )
            )
            return
        dies = len(self.fabric.dies)
        receivers = to.values if isinstance(to, PerDie) else (to,) * dies
        senders = per_die(receivers.index(i) if i in receivers else NOBODY for i in range(dies))
        send = Send(self.channel, to, read, route, d.choice(("", d.name())))
        starts: list[FabricStmt] = [Post(self.channel, senders, write), send]
        ends: list[FabricStmt] = [
            Wait(self.channel, True, _present(to)),
            Wait(self.channel, False, _present(senders)),
        ]
        position = d.randint(0, len(self.body))
        self.body[position:position] = d.sample(starts, 2)
        self.body += d.sample(ends, 2)


def _present(peers: Ints) -> Ints:
    if isinstance(peers, int):
        return int(peers != NOBODY)
    return per_die(int(v != NOBODY) for v in peers.values)


def fabric_modules() -> st.SearchStrategy[Module]:
    """Placed modules of up to three procedures of up to five statements, that verify."""
    return st.builds(fabric_module, st.integers(1, 15), st.integers(0, 1 << 32))


def fabric_module(statements: int, seed: int) -> Module:
    d = Dice(seed)
    empty = header(d, Level.FABRIC)
    fabric, calls, procedures, step = Fabric(d, empty.dies, empty.machine), Calls(d, dict(empty.axes)), [], []
    scheduled = d.coin()
    for i in range(-(-statements // 5)):
        body = Body(fabric, {})
        for _ in range(min(statements, 5)):
            if d.coin():
                body.add_kernel()
            else:
                body.add_message(scheduled=scheduled)
        procedures.append(_procedure(d, f"{d.name()}.{i}", body))
        step.append(in_loops(d, calls, procedures[-1]))
    placed = empty.with_(
        arrays=tuple(calls.arrays), procedures=tuple(procedures), step=tuple(s for s in step if s),
        routes=tuple(fabric.routes),
    )  # fmt: skip
    return _planned(placed) if d.coin() else placed


def _procedure(d: Dice, name: str, body: Body) -> Procedure:
    """The procedure of a body in which some buffers become arguments."""
    inputs, outputs = [], []
    for b in list(body.buffers.values()):
        if d.random() < 0.3:
            value = Value(b.name, TensorType((b.elements,), b.dtype, Layout.whole(1)))
            del body.buffers[b.name]
            is_input, is_output = d.choice(((1, 0), (0, 1), (1, 1)))
            inputs += [value] * is_input
            outputs += [Output(value, d.choice(list(Mode)))] * is_output
    return Procedure(name, tuple(inputs), tuple(outputs), tuple(body.body), tuple(body.buffers.values()))


def _planned(m: Module) -> Module:
    """The module with addresses: locals of each procedure from 0 on, then the arrays."""
    procedures, scratch = [], 0
    for p in m.procedures:
        end, placed = 0, []
        for b in p.buffers:
            placed.append(replace(b, address=end))
            end = aligned(end + b.bytes)
        scratch = max(scratch, end)
        procedures.append(replace(p, buffers=tuple(placed)))
    end, regions = scratch, {}
    for a in m.arrays:
        if not a.storage:
            stride = aligned(prod(a.type.local_shape(m.sizes)) * a.type.dtype.size)
            regions[a.name] = (end, stride)
            end += stride * a.count
    placements = tuple(Placement(a.name, *regions[a.storage or a.name]) for a in m.arrays)
    return m.with_(procedures=tuple(procedures), memory=Memory(scratch, scratch, end, placements))
