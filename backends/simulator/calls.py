"""The calls of a procedure on single dies: a draft of the role, and what differs between its dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wscc.backends.simulator.costs import SECOND, Costs, Leg, Reach, Work, work_of
from wscc.backends.simulator.drafts import COMPUTE, DELAY, POST, SEND, WAIT, Draft, Part, Send, draft_of
from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import fail
from wscc.ir.routes import ALONE
from wscc.ir.streams.program import Code, Column, Field, Instruction, Scalar, Streams, stage_of_role

# The memories of the arguments of a call: IN_SRAM, IN_HBM, or an address (from 0 on) for one that is in both.
Places = tuple[int, ...]
IN_SRAM: Final = -1
IN_HBM: Final = -2

ALONE_TREE: Final = (ALONE, 0)
_KINDS: Final = {"post": POST, "send": SEND, "wait": WAIT, "delay": DELAY}


class Cargo(NamedTuple):
    """The message that a `send` starts. Sends of one die with equal `tree` (not `ALONE_TREE`) carry the same bytes."""

    source: int
    to: int
    bytes: int
    legs: tuple[Leg, ...]
    tree: tuple[int, int]


# Of a message: its sender, its channel, and true if its ends are of different stages.
Ends = tuple[int, int, bool]


@dataclass(frozen=True, slots=True, eq=False)
class DieCall:
    """A call on one die: `messages` and `cargos` are those of the draft. `hbm_bytes` are all that the die accesses."""

    draft: Draft
    messages: tuple[Ends, ...]
    cargos: tuple[Cargo, ...]
    hbm_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Ties:
    """What a call on one die has to do with others: the dies and the numbers of the routes that are `peers` and
    `routes` of the draft."""

    draft: Draft
    peers: tuple[int, ...]
    routes: tuple[int, ...]

    def receivers(self) -> set[int]:
        """The dies to which messages are sent."""
        return {self.peers[n] for n in {send.peer for send in self.draft.sends}}


@dataclass
class Builder:
    """Builds the calls of a program's dies; equal calls are one object.

    Roles share most of their instructions, and dies all but a few integers: what is the same is made once.
    `CompileError` W501 for a role without the procedure, or a malformed instruction.
    """

    streams: Streams
    costs: Costs
    stages: list[int] = field(init=False)
    classes: list[int] = field(init=False)  # of dies
    _codes: dict[tuple[int, str], Code] = field(default_factory=dict, repr=False)  # equal ones are one object
    _works: dict[int, Work] = field(default_factory=dict, repr=False)
    _parts: dict[tuple[int, Places], dict[int, Part]] = field(default_factory=dict, repr=False)
    # By the identity of a code and the class of dies, if need be of one die.
    _drafts: dict[tuple[int, int, Places], Draft] = field(default_factory=dict, repr=False)
    _peers: dict[int, set[Field]] = field(default_factory=dict, repr=False)
    _touches: dict[int, dict[tuple[int, Field], tuple[int, int]]] = field(default_factory=dict, repr=False)
    _legs: dict[tuple[int, int], tuple[Leg, ...]] = field(default_factory=dict, repr=False)
    _calls: dict[tuple[int, str, Places], DieCall] = field(default_factory=dict, repr=False)
    _bounds: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        of_role = stage_of_role(self.streams)
        self.stages = [of_role[role] for role in self.streams.roles]
        self.classes = [self.costs.die_class(physical) for physical in self.streams.dies]
        same: dict[tuple[str, int, tuple[int, ...]], Code] = {}
        for p in self.streams.programs:
            for c in p.procedures:
                self._codes[p.role, c.name] = same.setdefault((c.name, c.args, tuple(map(id, c.body))), c)
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

    def ties(self, die: int, procedure: str, places: Places) -> Ties:
        """What the call of a procedure on a die has to do with others."""
        draft = self._draft(die, procedure, places)
        peers = tuple(self._die(die, peer) for peer in draft.peers)
        return Ties(draft, peers, tuple(self.integer(die, route) for route in draft.routes))

    def peers(self, die: int, procedure: str) -> set[int]:
        """The dies with which a die exchanges messages in a procedure."""
        code = self.code(die, procedure)
        if id(code) not in self._peers:
            self._peers[id(code)] = {_field(x.attrs[1][1]) for x in code.body if x.opcode in ("post", "send")}
        return {self.integer(die, peer) for peer in self._peers[id(code)]}

    def reaches(self, stage: int, procedure: str) -> list[tuple[int, int]]:
        """The first and last (exclusive) byte of each argument that any die of the stage accesses, from its address."""
        key = stage, procedure
        if key not in self._bounds:
            bounds: dict[int, tuple[int, int]] = {}
            args = 0
            for die in (d for d, s in enumerate(self.stages) if s == stage):
                code = self.code(die, procedure)
                args = code.args
                for (arg, at), (first, last) in self._touched(code).items():
                    offset = self.integer(die, at)
                    low, high = bounds.get(arg, (offset + first, offset + last))
                    bounds[arg] = min(low, offset + first), max(high, offset + last)
            self._bounds[key] = [bounds.get(i, (0, 0)) for i in range(args)]
        return self._bounds[key]

    def _touched(self, code: Code) -> dict[tuple[int, Field], tuple[int, int]]:
        """The first and last (exclusive) byte of each argument from an offset, over all operands: from 0, or from what
        differs between dies."""
        if id(code) not in self._touches:
            touched = self._touches[id(code)] = {}
            for x in {id(x): x for x in code.body}.values():
                for r in self.work(x).reaches:
                    if r.arg >= 0:
                        at, plus = (r.offset, 0) if isinstance(r.offset, Column) else (0, r.offset)
                        low, high = touched.get((r.arg, at), (plus + r.low, plus + r.high))
                        touched[r.arg, at] = min(low, plus + r.low), max(high, plus + r.high)
        return self._touches[id(code)]

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
        ties = self.ties(die, procedure, places)
        draft, peers = ties.draft, ties.peers
        across = [self.stages[peer] != self.stages[die] for peer in peers]
        messages = tuple([
            (die if sent else peers[peer], channel, across[peer]) for channel, peer, sent in draft.messages
        ])  # fmt: skip
        cargos = tuple(self._cargos(die, ties))
        # A tree reads what it sends once.
        read = {
            cargo.tree if cargo.tree != ALONE_TREE else (ALONE, n): send.hbm_bytes
            for n, (cargo, send) in reversed([*enumerate(zip(cargos, draft.sends, strict=True))])
        }
        return DieCall(draft, messages, cargos, draft.hbm_bytes + sum(read.values()))

    def _draft(self, die: int, procedure: str, places: Places) -> Draft:
        """The draft for a die: the same for all of a class with its code, unless an instruction takes longer on some of
        them."""
        code, everywhere = self.code(die, procedure), -1 - self.classes[die]
        for key in ((id(code), everywhere, places), (id(code), die, places)):
            if key in self._drafts:
                return self._drafts[key]
        parts, alike = self._parts.setdefault((self.classes[die], places), {}), True

        def part_of(x: Instruction) -> Part:
            nonlocal alike
            part = parts.get(id(x))
            if part is None:
                part = self._part(die, x, places)
                if self._is_alike(x, places):
                    parts[id(x)] = part
                else:
                    alike = False
            return part

        draft = draft_of(procedure, code.body, part_of)
        return self._drafts.setdefault((id(code), everywhere if alike else die, places), draft)

    def _part(self, die: int, x: Instruction, places: Places) -> Part:
        kind = _KINDS.get(x.opcode, COMPUTE)
        if kind == WAIT:
            return Part(WAIT, channel=int(x.attrs[0][1]), sent=x.attrs[1][1] == "sent")  # type: ignore[arg-type]
        if kind == DELAY:
            return Part(DELAY, self._delay(die, x))
        work = self.work(x)
        amount = sum(self._in_hbm(die, r, places) for r in work.reaches)
        costs, of_class = self.costs, self.classes[die]
        port = costs.hbm(amount, of_class)
        if kind == COMPUTE:
            ticks, at_peak = costs.compute(work.tiled, of_class), costs.compute(work.flops, of_class)
            return Part(COMPUTE, ticks, port, amount, work.flops, at_peak)
        channel, peer, *route = (v for _, v in x.attrs)
        return Part(
            kind, 0, port, amount, channel=self._value(die, channel), peer=_field(peer),
            route=_field(route[0]) if kind == SEND else ALONE, bytes=work.reaches[0].bytes,
        )  # fmt: skip

    def _is_alike(self, x: Instruction, places: Places) -> bool:
        """True if an instruction takes as long on every die."""
        if x.opcode in ("wait", "delay"):
            return not isinstance(x.attrs[0][1], Column)
        return all(self._is_fixed(r, places) for r in self.work(x).reaches)

    def _is_fixed(self, r: Reach, places: Places) -> bool:
        """True if an operand has the same bytes in HBM on every die."""
        if not isinstance(r.offset, Column):
            return True
        if r.arg >= 0:
            return places[r.arg] in (IN_SRAM, IN_HBM)
        sram, (least, greatest) = self.costs.wafer.die.sram, self._ends[r.offset.index]
        return greatest + r.high <= sram or least + r.low >= sram

    def _die(self, die: int, peer: Field) -> int:
        """The die at the other end of a message."""
        other = self.integer(die, peer)
        if not 0 <= other < len(self.stages):
            raise fail(ErrorCode.ARTIFACT, f"die {die} exchanges messages with {other}, which is no die")
        return other

    def _delay(self, die: int, x: Instruction) -> int:
        time = self._value(die, x.attrs[0][1])
        if time < 0:
            raise fail(ErrorCode.ARTIFACT, f"die {die} is to wait for {time} picoseconds")
        return time * (SECOND // 10**12)

    def _cargos(self, die: int, ties: Ties) -> Iterator[Cargo]:
        """The messages of all sends; equal ones are one object. The n-th sends of a die on merged routes are of one
        tree: a die sends on all of them each time."""
        numbers, peers = ties.routes, ties.peers
        merged = [self.streams.routes[number].merged for number in numbers]
        counts: Counter[int] = Counter()
        alike: dict[Send, Cargo] = {}
        for send in ties.draft.sends:
            _, route, amount, _ = send
            alone, cargo = merged[route] == ALONE, alike.get(send)
            if not alone or cargo is None:
                number = numbers[route]
                counts[number] += 1
                tree = ALONE_TREE if alone else (merged[route], counts[number])
                cargo = Cargo(die, peers[send.peer], amount, self._legs_of(number, amount), tree)
                alike[send] = cargo
            yield cargo

    def _legs_of(self, route: int, amount: int) -> tuple[Leg, ...]:
        if (route, amount) not in self._legs:
            self._legs[route, amount] = self.costs.legs(self.streams.routes[route], amount)
        return self._legs[route, amount]

    def _value(self, die: int, value: Scalar) -> int:
        return self._rows[die][value.index] if isinstance(value, Column) else int(value)


def _field(value: Scalar) -> Field:
    return value if isinstance(value, Column) else int(value)
