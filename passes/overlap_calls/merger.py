"""Merged, restricted and interleaved procedures of a module, made on demand, with the estimates that decide on them."""

from __future__ import annotations

import numpy as np

from wscc.analysis.aliases import aliases
from wscc.analysis.memory.fits import arrays_fit_sram
from wscc.analysis.statement_times import StatementTimes
from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Send
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import Names
from wscc.ir.per_die import NOBODY
from wscc.ir.step import Call
from wscc.passes.overlap_calls.call_dependences import CallDependences
from wscc.passes.overlap_calls.components import Components, components, message_seconds, restricted
from wscc.passes.overlap_calls.merge_bodies import interleaved, merged


class Merger:
    """The procedures of a module by name, with those made of them; `merged`: the names of merged ones, in order."""

    def __init__(self, module: Module) -> None:
        self.dependences = CallDependences(module)
        self.procedures = {p.name: p for p in module.procedures}
        self.merged: dict[str, None] = {}
        self._module = module
        self._aliases = aliases(module)
        self._in_sram = arrays_fit_sram(module)
        self._names = Names(self.procedures)
        self._times: dict[str, StatementTimes] = {}
        self._components: dict[str, Components] = {}
        self._messages: dict[str, float] = {}

    # -- analyses of a procedure ------------------------------------------------------------------------

    def times(self, procedure: str) -> StatementTimes:
        """The estimated times of its statements."""
        if procedure not in self._times:
            p = self.procedures[procedure]
            self._times[procedure] = StatementTimes.of(p, self._module, in_sram=self._in_sram)
        return self._times[procedure]

    def components(self, procedure: str) -> Components:
        """Its independent components."""
        if procedure not in self._components:
            self._components[procedure] = components(self.procedures[procedure], self._aliases[procedure])
        return self._components[procedure]

    def work(self, procedure: str) -> float:
        """Seconds of its kernels."""
        return sum(self.times(procedure).work)

    def link_idle(self, procedure: str) -> float:
        """Seconds in which it leaves links to other messages."""
        return sum(self.times(procedure).link_idle)

    def messages(self, procedure: str) -> float:
        """Seconds of its messages with its components interleaved."""
        if procedure not in self._messages:
            self._messages[procedure] = message_seconds(self.components(procedure), self.times(procedure))
        return self._messages[procedure]

    def saving(self, procedure: str, removed: Components) -> float:
        """Seconds that its messages take less without these of its components."""
        rest = [c for c in self.components(procedure) if c not in removed]
        return self.messages(procedure) - message_seconds(rest, self.times(procedure))

    def waits(self, procedure: str) -> bool:
        """Whether its messages, one after the other, take longer than its work."""
        return sum(self.times(procedure).messages) > self.work(procedure)

    def may_merge(self, procedure: str) -> bool:
        """Whether a procedure may be merged: not twice, and not with messages between stages, which call different
        ones."""
        return procedure not in self.merged and self._within_stages(self.procedures[procedure])

    def _within_stages(self, procedure: Procedure) -> bool:
        dies = self._module.dies_used
        stages = np.arange(dies) // (dies // self._module.stages)
        for receivers in {s.to for s in procedure.body if isinstance(s, Send)}:
            to = as_array(receivers, dies)
            sending = to != NOBODY
            if (stages[to[sending]] != stages[sending]).any():
                return False
        return True

    # -- new procedures ---------------------------------------------------------------------------------

    def call(self, first: Call, second: Call) -> Call:
        """One call with the effect of both, which must not conflict."""
        p, q = self.procedures[first.procedure], self.procedures[second.procedure]
        name = self._names.of((p.name, q.name), f"{p.name}.{q.name}")
        if name not in self.procedures:
            times = self.times(p.name), self.times(q.name)
            self._add(merged(p, q, name, times, self.components(q.name)), {})
            self.merged[name] = None
        a, b = len(p.inputs), len(q.inputs)
        return Call(name, (*first.args[:a], *second.args[:b], *first.args[a:], *second.args[b:]))

    def restricted(self, call: Call, selected: Components) -> Call:
        """A call of these components of its procedure alone."""
        positions = tuple(i for component in selected for i in component)
        name = self._names.of((call.procedure, positions), f"{call.procedure}.part")
        restriction, numbers = restricted(self.procedures[call.procedure], name, positions)
        self._add(restriction, self._aliases[call.procedure])
        return Call(name, tuple(call.args[i] for i in numbers))

    def interleaved(self, procedure: str) -> Procedure:
        """The procedure, with its components interleaved if it mostly waits and is not merged."""
        p = self.procedures[procedure]
        if procedure in self.merged or not self.waits(procedure):
            return p
        return interleaved(p, self.times(procedure), self.components(procedure))

    def _add(self, procedure: Procedure, names: dict[str, str]) -> None:
        self.procedures[procedure.name] = procedure
        self._aliases[procedure.name] = names
        self.dependences.add(procedure)
