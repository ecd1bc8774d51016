"""The end of a run whose numbers are no longer finite: which step, which tensor, which die, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from wscc.backends.interpreter.finite import Lookout, NotFinite
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, CompileError, Diagnostic, fail
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.step import walk
from wscc.ir.streams.artifact import HostTensor
from wscc.ir.train import Train
from wscc.ir.types import DType
from wscc.reference.training import History

LOSS: Final = "loss"
_COMPARE: Final = "run it with `--dtype f64 --check`: if one device has no overflow there either, report it"
# Kinds that lie in memory after a step as the step has left them. A gradient that is not finite makes the weight so
# that it updates, or a moment of it, and it need not be looked at before something is found.
_LAST: Final = (Kind.SCALAR, Kind.STATE, Kind.PARAM)
# In the order in which a step computes them.
_ORDER: Final = (Kind.GRAD, Kind.SCALAR, Kind.STATE, Kind.PARAM)


class Diverged(CompileError):
    """W507: a step has left a number that is not finite."""

    def beside(self, run_reference: Callable[[], History]) -> CompileError:
        """The error, with a word on what one device does in as many steps."""
        (first,) = self.diagnostics
        if _overflows(run_reference):
            return fail(first.code, f"{first.message}; one device overflows too", help=first.help)
        return fail(first.code, f"{first.message}; one device has no overflow", help=_COMPARE)


def _overflows(run_reference: Callable[[], History]) -> bool:
    """Whether one device meets a number that is too large for its type, or ends with one that is not finite."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            history = run_reference()
    except FloatingPointError:
        return True
    return not all(np.isfinite(np.asarray(x)).all() for x in (history.losses, *history.weights.values()))


class Watch:
    """Looks at the numbers of a machine after each step."""

    def __init__(self, machine: Machine, graph: Module) -> None:
        self._machine = machine
        self._graph = graph
        self._last = Lookout(machine, _LAST)

    def check(self, step: int) -> None:
        """Raise `Diverged` if step `step`, counted from 1, has left a number that is not finite."""
        if self._last.is_clear():
            return
        found = self._first()
        words = f"training diverged in step {step}: {self._words(found)} {found.value} on die {found.die}"
        raise Diverged(Diagnostic(Code.DIVERGED, words, help=_help(found, self._graph.train, step)))

    def check_validation(self, steps: int) -> None:
        """Raise W507 if the loss of rows held out, after so many steps, is not finite. What such a step has made of the
        weights does not count: it is put back."""
        found = next((f for f in Lookout(self._machine, (Kind.SCALAR,)).found() if _is_loss(f.tensor)), None)
        if found:
            words = f"the loss of the rows held out is {found.value} on die {found.die} after step {steps}"
            raise fail(Code.DIVERGED, words, help=f"try {', '.join(_remedies(self._graph.train))}")

    def _first(self) -> NotFinite:
        """Of all numbers that are not finite, the one that the step has computed first: the loss; then gradients, in
        the order of the backward pass; their norm; moments; weights."""
        everything = Lookout(self._machine, _ORDER)
        used = _last_uses(self._graph)

        def rank(found: NotFinite) -> tuple[bool, int, int]:
            kind = found.tensor.kind
            use = used.get((self._owner(found.tensor), found.index), 0) if kind is Kind.GRAD else 0
            return not _is_loss(found.tensor), _ORDER.index(kind), -use

        return min(everything.found(), key=rank)

    def _owner(self, t: HostTensor) -> str:
        """The parameter that an array belongs to; its own name if it belongs to none."""
        relations = {x.name: x.relation for x in self._machine.manifest.tensors if x.relation}
        name = t.name
        while relation := relations.get(name):
            name = relation.array
        return name

    def _words(self, found: NotFinite) -> str:
        t = found.tensor
        place = f"[{', '.join(map(str, found.index))}]" if found.index else ""
        owner = f"`{self._owner(t)}{place}`"
        if t.kind is Kind.SCALAR:
            return "the loss is" if _is_loss(t) else "the squared norm of the gradients is"
        of = {Kind.GRAD: "the gradient of ", Kind.STATE: "a moment of "}.get(t.kind, "")
        return f"{of}{owner} holds"


def _is_loss(t: HostTensor) -> bool:
    return t.kind is Kind.SCALAR and t.name == LOSS


def _last_uses(graph: Module) -> dict[tuple[str, tuple[int, ...]], int]:
    """For each array element, the number of the last argument of the forward calls that is bound to it."""
    uses = ((ref, variables) for call, variables in walk(graph.step) for ref in call.args)
    return {
        (ref.array, tuple(i.at(variables) for i in ref.index)): number
        for number, (ref, variables) in enumerate(uses)
    }


def _help(found: NotFinite, train: Train, step: int) -> str:
    if step == 1 and (found.tensor.kind is Kind.GRAD or _is_loss(found.tensor)):
        return "the first step computes with the weights as they were given: begin with smaller ones"
    return f"try {', '.join(_remedies(train))}"


def _remedies(train: Train) -> Iterator[str]:
    yield f"a lower `lr` than {train.optimizer.lr:g}"
    if not train.clip:
        yield "`clip 1.0`"
    if not train.lr_schedule.warmup:
        yield "`lr_schedule warmup(100)`"
    if DType.BF16 in (train.compute, train.params, train.grads):
        yield "`--dtype f32`"
