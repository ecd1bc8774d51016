"""A call of a procedure on one die, as the event loop runs it: a flat list of steps with durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wscc.backends.simulator.costs import SECOND, Costs, Leg, Reach, Work, work_of
from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import fail
from wscc.ir.routes import ALONE
from wscc.ir.streams.program import Code, Column, Field, Instruction, Streams, stage_of_role

# The memories of the arguments of a call: IN_SRAM, IN_HBM, or an address (from 0 on) for one that is in both.
Places = tuple[int, ...]
IN_SRAM: Final = -1
IN_HBM: Final = -2

ALONE_TREE: Final = (ALONE, 0)

COMPUTE: Final = 0
POST: Final = 1
SEND: Final = 2
WAIT: Final = 3
DELAY: Final = 4


class Step(NamedTuple):
    """One instruction. `position` is its number in the code of the role.

    COMPUTE takes `ticks`, and the HBM's port for `hbm` of them; DELAY takes `ticks` alone. The other kinds concern
    the message `channel` from `sender`; `across` is true if it comes from another stage or goes to one.
    """

    kind: int
    position: int
    ticks: int = 0
    hbm: int = 0
    sender: int = -1
    channel: int = -1
    sent: bool = False
    across: bool = False
    cargo: Cargo | None = None


class Cargo(NamedTuple):
    """The message that a `send` starts. Sends of one die with equal `tree` (not `ALONE_TREE`) carry the same bytes."""

    source: int
    to: int
    bytes: int
    legs: tuple[Leg, ...]
    tree: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DieCall:
    """The steps of one die in a call, and their totals, which do not depend on the time of the call."""

    steps: tuple[Step, ...]
    flops: int
    ideal_ticks: int
    tile_ticks: int
    hbm_bytes: int


@dataclass
class Builder:
    """Builds the calls of a program's dies; equal calls are one object.

    `CompileError` W501 for a role without the procedure, or a malformed instruction.
    """

    streams: Streams
    costs: Costs
    stages: list[int] = field(init=False)
    _codes: dict[tuple[int, str], Code] = field(init=False, repr=False)
    _works: dict[int, Work] = field(default_factory=dict, repr=False)
    _costs: dict[tuple[int, Places], tuple[int, int, int, int]] = field(default_factory=dict, repr=False)
    _legs: dict[tuple[int, int], tuple[Leg, ...]] = field(default_factory=dict, repr=False)
    _calls: dict[tuple[int, str, Places], DieCall] = field(default_factory=dict, repr=False)
    _bounds: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        of_role = stage_of_role(self.streams)
        self.stages = [of_role[role] for role in self.streams.roles]
        self._codes = {(p.role, c.name): c for p in self.streams.programs for c in p.procedures}
        self._rows = [[int(n) for n in row] for row in self.streams.bindings]
        self._ends: list[tuple[int, int]] = [
            (min(column), max(column)) for column in zip(*self._rows, strict=True)
        ]

    def code(self, die: int, procedure: str) -> Code:
        """The code of a procedure in the role of a die."""
        code = self._codes.get((self.streams.roles[die], procedure))
        if code is None:
            raise fail(ErrorCode.ARTIFACT, f"a role has no procedure `{procedure}`")
        return code

    def places(self, stage: int, procedure: str, args: Sequence[int]) -> Places:
        """The memories of the arguments at addresses `args`, the same on every die of the stage."""
        sram, places = self.costs.wafer.die.sram, []
        for address, (low, high) in zip(args, self.reaches(stage, procedure), strict=False):
            across = address + low < sram < address + high
            places.append(address if across else IN_HBM if address + low >= sram else IN_SRAM)
        return tuple(places)

    def call(self, die: int, procedure: str, places: Places) -> DieCall:
        """The call of a procedure on a die, with its arguments in these memories."""
        key = die, procedure, places
        if key not in self._calls:
            self._calls[key] = self._build(die, procedure, places)
        return self._calls[key]

    def peers(self, die: int, procedure: str) -> set[int]:
        """The dies with which a die exchanges messages in a procedure."""
        body = self.code(die, procedure).body
        return {self._scalar(die, x, 1) for x in body if x.opcode in ("post", "send")}

    def reaches(self, stage: int, procedure: str) -> list[tuple[int, int]]:
        """The first and last (exclusive) byte of each argument that any die of the stage accesses, from its address."""
        key = stage, procedure
        if key not in self._bounds:
            bounds: dict[int, tuple[int, int]] = {}
            args = 0
            for die in (d for d, s in enumerate(self.stages) if s == stage):
                code = self.code(die, procedure)
                args = code.args
                for x in code.body:
                    for r in self.work(x).reaches:
                        if r.arg >= 0:
                            offset = self.integer(die, r.offset)
                            low, high = bounds.get(r.arg, (offset + r.low, offset + r.high))
                            bounds[r.arg] = min(low, offset + r.low), max(high, offset + r.high)
            self._bounds[key] = [bounds.get(i, (0, 0)) for i in range(args)]
        return self._bounds[key]

    def work(self, x: Instruction) -> Work:
        """The work of an instruction, cached by identity."""
        if id(x) not in self._works:
            self._works[id(x)] = work_of(x, self.costs.wafer.die.tile)
        return self._works[id(x)]

    def integer(self, die: int, value: Field) -> int:
        """The value of a field on a die."""
        return self._rows[die][value.index] if isinstance(value, Column) else value

    def _in_hbm(self, die: int, r: Reach, places: Places) -> int:
        """The bytes of an operand in HBM."""
        if r.arg < 0:
            return self.costs.in_hbm(r, self.integer(die, r.offset))
        place = places[r.arg]
        if place in (IN_SRAM, IN_HBM):
            return r.bytes if place == IN_HBM else 0
        return self.costs.in_hbm(r, place + self.integer(die, r.offset))

    def _build(self, die: int, procedure: str, places: Places) -> DieCall:
        steps: list[Step] = []
        flops = ideal = tiled = hbm_bytes = 0
        ends: dict[tuple[int, bool], Step] = {}
        sends: dict[int, int] = {}
        trees: set[tuple[int, int]] = set()
        for index, x in enumerate(self.code(die, procedure).body):
            if x.opcode == "wait":
                steps.append(_wait(x, index, ends, procedure))
                continue
            if x.opcode == "delay":
                steps.append(Step(DELAY, index, self._delay(die, x)))
                continue
            amount, port, ticks, at_peak = self._cost(die, x, places)
            if x.opcode in ("post", "send"):
                step = self._message(die, x, index, port, self.work(x).reaches[0].bytes, sends)
                ends[step.channel, x.opcode == "send"] = step
                # A tree reads what it sends once.
                amount = 0 if step.cargo is not None and step.cargo.tree in trees else amount
                if step.cargo is not None and step.cargo.tree != ALONE_TREE:
                    trees.add(step.cargo.tree)
            else:
                step = Step(COMPUTE, index, ticks, port)
                flops += self.work(x).flops
                ideal += at_peak
                tiled += ticks
            hbm_bytes += amount
            steps.append(step)
        return DieCall(tuple(steps), flops, ideal, tiled - ideal, hbm_bytes)

    def _cost(self, die: int, x: Instruction, places: Places) -> tuple[int, int, int, int]:
        """Of an instruction: bytes in HBM, the ticks of its port for them, the ticks of its work, and those at the
        peak of a die. Remembered where they are the same on all dies: roles share most of their instructions."""
        key = id(x), places
        cost = self._costs.get(key)
        if cost is None:
            work = self.work(x)
            amount = sum(self._in_hbm(die, r, places) for r in work.reaches)
            cost = (
                amount,
                self.costs.hbm(amount),
                self.costs.compute(work.tiled),
                self.costs.compute(work.flops),
            )
            if all(self._is_fixed(r, places) for r in work.reaches):
                self._costs[key] = cost
        return cost

    def _is_fixed(self, r: Reach, places: Places) -> bool:
        """True if an operand has the same bytes in HBM on every die."""
        if not isinstance(r.offset, Column):
            return True
        if r.arg >= 0:
            return places[r.arg] in (IN_SRAM, IN_HBM)
        sram, (least, greatest) = self.costs.wafer.die.sram, self._ends[r.offset.index]
        return greatest + r.high <= sram or least + r.low >= sram

    def _message(
        self, die: int, x: Instruction, index: int, hbm: int, amount: int, sends: dict[int, int]
    ) -> Step:
        channel, peer = (self._scalar(die, x, i) for i in (0, 1))
        if not 0 <= peer < len(self.stages):
            raise fail(ErrorCode.ARTIFACT, f"die {die} exchanges messages with {peer}, which is no die")
        across = self.stages[peer] != self.stages[die]
        if x.opcode == "post":
            return Step(POST, index, 0, hbm, peer, channel, False, across)
        number = self._scalar(die, x, 2)
        cargo = self._cargo(die, peer, amount, number, sends)
        return Step(SEND, index, 0, hbm, die, channel, True, across, cargo)

    def _delay(self, die: int, x: Instruction) -> int:
        time = self._scalar(die, x, 0)
        if time < 0:
            raise fail(ErrorCode.ARTIFACT, f"die {die} is to wait for {time} picoseconds")
        return time * (SECOND // 10**12)

    def _cargo(self, die: int, peer: int, amount: int, number: int, sends: dict[int, int]) -> Cargo:
        """The message of a send on route `number`. The n-th sends of a die on merged routes are of one tree: a die
        sends on all of them each time."""
        route = self.streams.routes[number]
        ordinal = sends[number] = sends.get(number, 0) + 1
        tree = (route.merged, ordinal) if route.merged != ALONE else ALONE_TREE
        legs = self._legs.get((number, amount))
        if legs is None:
            legs = self._legs[number, amount] = self.costs.legs(route, amount)
        return Cargo(die, peer, amount, legs, tree)

    def _scalar(self, die: int, x: Instruction, i: int) -> int:
        value = x.attrs[i][1]
        return self._rows[die][value.index] if isinstance(value, Column) else int(value)


def _wait(x: Instruction, index: int, ends: dict[tuple[int, bool], Step], procedure: str) -> Step:
    """The step of a `wait`; `ends` has the step that began the message, by (channel, is a send)."""
    channel, sent = int(x.attrs[0][1]), x.attrs[1][1] == "sent"  # type: ignore[arg-type]
    beginning = ends.get((channel, sent))
    if beginning is None:
        raise fail(
            ErrorCode.ARTIFACT,
            f"`{procedure}` instruction {index} waits for channel {channel}, on which nothing was begun",
        )
    return Step(WAIT, index, 0, 0, beginning.sender, channel, sent, beginning.across)
