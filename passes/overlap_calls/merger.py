"""Calls merged and taken apart, with the procedures that this makes."""

from __future__ import annotations

import numpy as np

from wscc.analysis.aliases import aliases
from wscc.analysis.memory.array_layout import place_arrays
from wscc.analysis.statement_times import Seconds
from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Send
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import Names
from wscc.ir.per_die import NOBODY
from wscc.ir.step import Call
from wscc.passes.overlap_calls.dependences import Order
from wscc.passes.overlap_calls.merge_bodies import abreast, merged
from wscc.passes.overlap_calls.strands import Strands, part, strands, waiting


class Merger:
    """The procedures of a module by name, and those that are made of them; `merged` are the names of merged ones."""

    def __init__(self, module: Module) -> None:
        self.order = Order(module)
        self.procedures = {p.name: p for p in module.procedures}
        self.merged: dict[str, None] = {}
        self._module = module
        self._aliases = aliases(module)
        self._in_sram = place_arrays(module, 0)[1] <= module.machine.die.sram
        self._names = Names(self.procedures)
        self._seconds: dict[str, Seconds] = {}
        self._strands: dict[str, Strands] = {}

    # -- what is known of a procedure -------------------------------------------------------------------

    def seconds(self, procedure: str) -> Seconds:
        if procedure not in self._seconds:
            found = self.procedures[procedure]
            self._seconds[procedure] = Seconds.of(found, self._module.machine, in_sram=self._in_sram)
        return self._seconds[procedure]

    def strands(self, procedure: str) -> Strands:
        if procedure not in self._strands:
            self._strands[procedure] = strands(self.procedures[procedure], self._aliases[procedure])
        return self._strands[procedure]

    def work(self, procedure: str) -> float:
        return sum(self.seconds(procedure).work)

    def room(self, procedure: str) -> float:
        return sum(self.seconds(procedure).room)

    def messages(self, procedure: str) -> float:
        """Seconds of messages, strands side by side."""
        return waiting(self.strands(procedure), self.seconds(procedure))

    def saved(self, procedure: str, some: Strands) -> float:
        """Seconds that the messages of a procedure take less without some of its strands."""
        left = [x for x in self.strands(procedure) if x not in some]
        return self.messages(procedure) - waiting(left, self.seconds(procedure))

    def waits(self, procedure: str) -> bool:
        """Whether messages, one after the other, take longer than its work."""
        return sum(self.seconds(procedure).messages) > self.work(procedure)

    def may_merge(self, procedure: str) -> bool:
        """Not twice, and not where messages come from another stage, which would call something else."""
        return procedure not in self.merged and self._within_stages(self.procedures[procedure])

    def _within_stages(self, procedure: Procedure) -> bool:
        dies = self._module.dies_used
        stages = np.arange(dies) // (dies // self._module.stages)
        for stmt in procedure.body:
            if isinstance(stmt, Send):
                to = as_array(stmt.to, dies)
                sending = to != NOBODY
                if (stages[to[sending]] != stages[sending]).any():
                    return False
        return True

    # -- what is made -----------------------------------------------------------------------------------

    def call(self, first: Call, second: Call) -> Call:
        """One call that does what both do, which must not clash."""
        p, q = self.procedures[first.procedure], self.procedures[second.procedure]
        name = self._names.of((p.name, q.name), f"{p.name}.{q.name}")
        if name not in self.procedures:
            times = self.seconds(p.name), self.seconds(q.name)
            self._add(merged(p, q, name, times, self.strands(q.name)), {})
            self.merged[name] = None
        a, b = len(p.inputs), len(q.inputs)
        return Call(name, (*first.args[:a], *second.args[:b], *first.args[a:], *second.args[b:]))

    def part(self, call: Call, some: Strands) -> Call:
        """A call of some strands alone."""
        positions = tuple(i for strand in some for i in strand)
        name = self._names.of((call.procedure, positions), f"{call.procedure}.part")
        made, kept = part(self.procedures[call.procedure], name, positions)
        self._add(made, self._aliases[call.procedure])
        return Call(name, tuple(call.args[i] for i in kept))

    def abreast(self, procedure: str) -> Procedure:
        """The procedure, its strands side by side if it waits and is not merged."""
        found = self.procedures[procedure]
        if procedure in self.merged or not self.waits(procedure):
            return found
        return abreast(found, self.seconds(procedure), self.strands(procedure))

    def _add(self, procedure: Procedure, names: dict[str, str]) -> None:
        self.procedures[procedure.name] = procedure
        self._aliases[procedure.name] = names
        self.order.learn(procedure)
