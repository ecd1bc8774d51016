"""Symbolic execution of a step: each element of an array holds the name of how it was computed.

Two sharded steps with equal symbols in the end compute the same, whatever their order, slots and exchanges. Stages run
as they would on dies: each by itself, until a call in which it exchanges data with others. Shares no code with the
passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from wscc.ir.array import Kind
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.op import Reshard
from wscc.ir.step import Call, walk

Place = tuple[int, str, tuple[int, ...]]


class Waiting(AssertionError):
    """Stages that wait for one another."""


class Symbols:
    """The symbols of the arrays of all stages of a module, while its step runs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.arrays = {a.name: a for a in module.arrays}
        self.procedures = {p.name: p for p in module.procedures}
        self.held: dict[Place, Hashable] = {}

    def _place(self, stage: int, array: str, index: tuple[int, ...]) -> Place:
        a = self.arrays[array]
        assert a.stage in (-1, stage), f"stage {stage} has no {array}"
        assert len(index) == len(a.extents)
        assert all(0 <= i < n for i, n in zip(index, a.extents, strict=True))
        return stage, a.storage or a.name, index

    def _read(self, place: Place) -> Hashable:
        array = self.arrays[place[1]]
        is_input = array.kind in (Kind.PARAM, Kind.STATE, Kind.INPUT) or place[1] == "t"
        if is_input:
            # Parts of an array are known by the elements of the whole.
            index = (place[2][0] + array.first, *place[2][1:]) if array.of and place[2] else place[2]
            return self.held.setdefault(place, ("at first", array.of or array.name, index))
        return self.held[place]  # a KeyError is a read of what nobody wrote

    def _store(self, place: Place, value: Hashable, mode: Mode) -> None:
        if mode is Mode.WRITE:
            self.held[place] = value
            return
        total: Counter[Hashable] = Counter()
        for part in (self._read(place), value):
            total.update(dict(part[1]) if isinstance(part, tuple) and part[0] == "sum" else {part: 1})
        self.held[place] = ("sum", frozenset(total.items()))

    def _local(self, stage: int, call: Call, variables: dict[str, int]) -> None:
        p = self.procedures[call.procedure]
        places = [self._place(stage, r.array, tuple(i.at(variables) for i in r.index)) for r in call.args]
        n = len(p.inputs)
        inputs = [self._read(x) for x in places[:n]]
        names = [v.name for v in p.inputs]
        key = hash((p.name, tuple(inputs)))  # short, and equal in every run of this process
        for out, place in zip(p.outputs, places[n:], strict=True):
            is_passed = out.value.name in names
            value = inputs[names.index(out.value.name)] if is_passed else ("made", key, out.value.name)
            self._store(place, value, out.mode)

    def _exchange(self, call: Call, variables: dict[str, int], p: Procedure) -> None:
        n, indices = len(p.inputs), [tuple(i.at(variables) for i in r.index) for r in call.args]
        if p.statements[0].kind == "stage_sum":
            (x, y), stages = call.args, range(self.module.stages)
            total: Counter[Hashable] = Counter()
            for s in stages:
                part: Any = self._read(self._place(s, x.array, indices[0]))
                total.update(dict(part[1]) if part[0] == "sum" else {part: 1})
            for s in stages:
                self.held[self._place(s, y.array, indices[1])] = ("sum", frozenset(total.items()))
            return
        ends = [(self.arrays[r.array].stage, r.array, i) for r, i in zip(call.args, indices, strict=True)]
        values = [self._read(self._place(*e)) for e in ends[:n]]
        for value, end in zip(values, ends[n:], strict=True):
            self.held[self._place(*end)] = value

    def _participants(self, p: Procedure) -> frozenset[Any]:
        if any(s.kind == "stage_sum" for s in p.statements):
            return frozenset(range(self.module.stages))
        moves = [s for s in p.statements if isinstance(s, Reshard) and s.kind == "permute"]
        return frozenset(end for s in moves for end in (s.source, s.target))

    def run(self) -> dict[Hashable, Hashable]:
        """Symbols of loss, gradients, parameters and optimizer state after a step, by element of the whole array."""
        queues = [list(walk(s)) for s in self.module.steps()]
        pc = [0] * len(queues)
        while any(i < len(q) for i, q in zip(pc, queues, strict=True)):
            progress = False
            for s, q in enumerate(queues):
                while pc[s] < len(q) and not self._participants(self.procedures[q[pc[s]][0].procedure]):
                    self._local(s, *q[pc[s]])
                    pc[s] += 1
                    progress = True
            heads = [q[i] if i < len(q) else None for i, q in zip(pc, queues, strict=True)]
            for head in heads:
                if head is None:
                    continue
                call, variables = head
                participants = self._participants(self.procedures[call.procedure])
                bound_calls = [
                    h and (h[0].procedure, [[i.at(h[1]) for i in r.index] for r in h[0].args]) for h in heads
                ]
                if participants and all(
                    bound_calls[s] == bound_calls[heads.index(head)] for s in participants
                ):
                    self._exchange(call, variables, self.procedures[call.procedure])
                    for s in participants:
                        pc[s] += 1
                    progress = True
                    break
            if not progress:
                raise Waiting([h[0].procedure if h else None for h in heads])
        return self._outcome()

    def _outcome(self) -> dict[Hashable, Hashable]:
        symbols: dict[Hashable, Hashable] = {}
        for (stage, name, index), symbol in self.held.items():
            a = self.arrays[name]
            if a.kind in (Kind.PARAM, Kind.STATE, Kind.GRAD) or name in ("loss", "norm2"):
                index = (index[0] + a.first, *index[1:]) if a.of and index else index
                symbols[a.of or a.name, index, stage] = symbol
        return symbols
