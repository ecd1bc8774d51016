"""The seconds that calls which wait for messages save beside calls that work, by the estimated times of each.

`overlap_calls` merges the completion of a gradient with the backward work on the next layer, in the last micro-batch.
Here its own rules say which calls of a sharded step are merged; a merged call takes as long as the resource that both
need most: the die, the port of its HBM, or the links of an axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from wscc.ir.module import Module, Procedure
from wscc.ir.op import Reshard
from wscc.ir.step import Call, Loop
from wscc.passes.overlap_calls import OverlapCalls
from wscc.passes.overlap_calls.call_dependences import CallDependences
from wscc.passes.overlap_calls.components import Components
from wscc.passes.overlap_calls.step_writer import StepWriter
from wscc.search.statement_times import Task
from wscc.strategy import stage_axes

# Procedures by estimate have no statements in common that could be told apart.
_WHOLE: Components = [[0]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a call takes of each resource, in seconds: of the `die`, of the `port` of its HBM, of the `links` of each
    axis, and `latency` of its messages; and by itself in all."""

    die: float
    port: float
    links: Mapping[str, float]
    latency: float
    seconds: float

    @staticmethod
    def of(tasks: Sequence[Task], seconds: float) -> Load:
        """The load of a call whose statements are these tasks."""
        links = {axis: sum(t.messages for t in tasks if t.axis == axis) for axis in {t.axis for t in tasks}}
        latency = sum(t.latency for t in tasks)
        return Load(sum(t.work for t in tasks), sum(t.copies for t in tasks), links, latency, seconds)

    @property
    def messages(self) -> float:
        """Seconds of its messages, one after the other."""
        return sum(self.links.values()) + self.latency

    def beside(self, other: Load) -> Load:
        """The load of a call that does both at once: none of the two is shorter than by itself."""
        die, port = self.die + other.die, self.port + other.port
        axes = {*self.links, *other.links}
        links = {axis: self.links.get(axis, 0.0) + other.links.get(axis, 0.0) for axis in axes}
        seconds = max(self.seconds, other.seconds, die, port, *links.values())
        return Load(die, port, links, self.latency + other.latency, seconds)


@dataclass(slots=True)
class _Merges:
    """The merges of calls whose loads are estimated, for the rules of `overlap_calls`."""

    loads: dict[str, Load]
    procedures: dict[str, Procedure]
    dependences: CallDependences
    across: frozenset[str]  # procedures with messages between stages
    _merged: set[str] = field(default_factory=set)

    def work(self, procedure: str) -> float:
        """Seconds of its work."""
        return self.loads[procedure].die

    def messages(self, procedure: str) -> float:
        """Seconds of its messages."""
        return self.loads[procedure].messages

    def link_idle(self, procedure: str) -> float:
        """Seconds in which it leaves links to other messages."""
        return self.loads[procedure].die + self.loads[procedure].latency

    def components(self, procedure: str) -> Components:
        """Its parts that have nothing to do with each other: not told apart."""
        return _WHOLE

    def saving(self, procedure: str, removed: Components) -> float:
        """Seconds that its messages take less without all of them."""
        return self.messages(procedure)

    def restricted(self, call: Call, selected: Components) -> Call:
        """The call of all its parts."""
        return call

    def may_merge(self, procedure: str) -> bool:
        """Whether a procedure may be merged: not twice, and not with messages between stages."""
        return procedure not in self._merged and procedure not in self.across

    def call(self, first: Call, second: Call) -> Call:
        """One call with the effect of both."""
        p, q = self.procedures[first.procedure], self.procedures[second.procedure]
        name = f"{p.name}.{q.name}"
        if name not in self.procedures:
            inputs, outputs = (*p.inputs, *q.inputs), (*p.outputs, *q.outputs)
            self.procedures[name] = replace(p, name=name, inputs=inputs, outputs=outputs, body=())
            self.dependences.add(self.procedures[name])
            self.loads[name] = self.loads[p.name].beside(self.loads[q.name])
            self._merged.add(name)
        a, b = len(p.inputs), len(q.inputs)
        return Call(name, (*first.args[:a], *second.args[:b], *first.args[a:], *second.args[b:]))


def overlapped(
    module: Module, loads: Mapping[str, Load]
) -> tuple[list[tuple[Call | Loop, ...]], dict[str, float]]:
    """The step of each stage of a sharded module with calls that are merged, and the seconds of a call of each
    procedure."""
    axes = set(stage_axes(module.sizes))
    across = frozenset(p.name for p in module.procedures if _axes(p) & axes)
    merges = _Merges(dict(loads), {p.name: p for p in module.procedures}, CallDependences(module), across)
    worth = OverlapCalls().worth / 1000
    steps = [tuple(StepWriter.of(merges, s, worth).overlapped(list(s))) for s in module.steps()]
    return steps, {name: load.seconds for name, load in merges.loads.items()}


def _axes(p: Procedure) -> set[str]:
    return {s.axis for s in p.statements if isinstance(s, Reshard)}
