"""Carried arrays of which a call reads what the call right before it wrote: handed on in the fast memory.

One element does for all of them, if each call has read what it is handed before it writes what it hands on. If others
read the array later, the call that is handed an element saves it meanwhile, behind its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from wscc.analysis.memory.handed import handed_places
from wscc.analysis.memory.stride import element_stride
from wscc.analysis.statement_accesses import positions_by_buffer
from wscc.analysis.successive_calls import Body, Occurrence, successive
from wscc.ir.array import Array, Kind
from wscc.ir.die_arrays import as_ints
from wscc.ir.fabric import Transfer
from wscc.ir.module import Mode, Module, Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import Value
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.step import Call, Loop, Ref, Stage, Step
from wscc.ir.views import whole_view

# The part of the SRAM in which arrays that are handed on may lie.
_SHARE: Final = 0.25

# (procedure, number of the argument)
Argument = tuple[str, int]


def handed_on(module: Module, lost: Callable[[Module], float]) -> Module:
    """The module with carried arrays handed on, as far as a part of the SRAM has room for them, the smallest first.

    An array that is handed on takes room from all else while a call runs: only one with which less time is `lost` to
    HBM is.
    """
    room = int(_SHARE * module.die.sram)
    owners = {a.storage for a in module.arrays}
    carried = [a for a in module.arrays if a.kind is Kind.CARRIED and not a.storage and a.name not in owners]
    for a in sorted(carried, key=lambda a: (element_stride(module, a), a.name)):
        found = Handover.of(module, a)
        if found is None:
            continue
        changed = found.applied()
        if _end(changed) <= room and lost(changed) < lost(module):
            module = changed
    return module


def _end(module: Module) -> int:
    """The end of the last array that is handed on."""
    places = handed_places(module)
    return max((places[a.name] + element_stride(module, a) for a in module.arrays if a.handed), default=0)


@dataclass(frozen=True, slots=True)
class Handover:
    """An array whose elements go from each call that writes one to the next call.

    `written`: the arguments that write it; `handed`: those that read what the call before wrote; `is_saved`: whether
    others read it.
    """

    module: Module
    array: Array
    written: frozenset[Argument]
    handed: frozenset[Argument]
    is_saved: bool

    @staticmethod
    def of(module: Module, array: Array) -> Handover | None:
        """The hand-over of an array; None if some calls do not allow it."""
        bodies = [b for b in module.steps() if any(True for c in _calls(b) for _ in _bound(c, array))]
        if len(bodies) != 1:
            return None
        accesses = _Accesses.of(module, bodies[0], array)
        if accesses is None:
            return None
        handed = accesses.read - _read_late(bodies[0], array, accesses)
        if not handed or _lost(bodies[0], array, accesses.written, handed):
            return None
        sides = accesses.written | handed
        if not _one_each(accesses.written) or not _one_each(handed):
            return None  # one element cannot stand for two
        if not all(_reads_first(p, sides) for p in module.procedures):
            return None
        return Handover(module, array, accesses.written, handed, handed != accesses.read)

    def applied(self) -> Module:
        """The module in which one element is handed on, and saved if others read it."""
        m, a = self.module, self.array
        one = replace(
            a, name=fresh(f"{a.name}.handed", {x.name for x in m.arrays}), extents=(), of="", first=0,
            relation=None, handed=True,
        )  # fmt: skip
        arrays = [
            y for x in m.arrays for y in ((x,) if x.name != a.name else (one, a) if self.is_saved else (one,))
        ]
        named = {n for x in arrays for n in (x.name, x.of)}
        arrays = [
            replace(x, relation=None) if x.relation and x.relation.array not in named else x for x in arrays
        ]
        dies = _dies_of_stage(m, a.stage)
        procedures = tuple(self._saving(p, dies) for p in m.procedures) if self.is_saved else m.procedures
        return m.with_(arrays=tuple(arrays), procedures=procedures, step=self._rewritten(m.step, one.name))

    def _rewritten(self, step: Step, one: str) -> Step:
        return tuple(
            self._call(s, one)
            if isinstance(s, Call)
            else replace(s, body=_without_stages(self._rewritten(s.body, one)))
            for s in step
        )

    def _call(self, c: Call, one: str) -> Call:
        sides = self.written | self.handed
        args = (Ref(one) if (c.procedure, i) in sides else r for i, r in enumerate(c.args))
        saved = (c.args[i] for i in self._handed_to(c.procedure)) if self.is_saved else ()
        return replace(c, args=(*args, *saved))

    def _handed_to(self, procedure: str) -> list[int]:
        return sorted(i for name, i in self.handed if name == procedure)

    def _saving(self, procedure: Procedure, dies: Ints) -> Procedure:
        """The procedure that also copies what it is handed to where it is read later."""
        handed = [procedure.inputs[i] for i in self._handed_to(procedure.name)]
        if not handed:
            return procedure
        taken = {v.name for v in procedure.arguments} | {b.name for b in procedure.buffers}
        channel = 1 + max((s.channel for s in procedure.body if isinstance(s, Transfer)), default=-1)
        outputs: list[Output] = []
        copies: list[Transfer] = []
        for n, value in enumerate(handed):
            name = fresh(f"{value.name}.saved", taken)
            taken.add(name)
            elements = prod(value.type.local_shape(self.module.sizes))
            view = whole_view(value.name, (elements,), value.type.dtype)
            copies.append(Transfer(channel + n, dies, view, view.on(name), source=name))
            outputs.append(Output(Value(name, value.type)))
        return replace(procedure, outputs=(*procedure.outputs, *outputs), body=(*copies, *procedure.body))


def _without_stages(step: Step) -> Body:
    return tuple(s for s in step if not isinstance(s, Stage))


def _calls(body: Body) -> Iterator[Call]:
    for s in body:
        if isinstance(s, Loop):
            yield from _calls(s.body)
        else:
            yield s


def _bound(call: Call | Occurrence, array: Array) -> Iterator[tuple[int, Ref]]:
    """The numbers of the arguments that the array is bound to, and the elements."""
    return ((i, r) for i, r in enumerate(call.args) if r.array == array.name)


@dataclass(frozen=True, slots=True)
class _Accesses:
    """The arguments that read an array, and those that write it."""

    read: frozenset[Argument]
    written: frozenset[Argument]

    @staticmethod
    def of(module: Module, body: Body, array: Array) -> _Accesses | None:
        """The accesses of all calls; None where a call adds to it, or binds to another array what one binds to it."""
        read: set[Argument] = set()
        written: set[Argument] = set()
        for call in _calls(body):
            p = module.procedure(call.procedure)
            for i, _ in _bound(call, array):
                if i >= len(p.inputs) and p.outputs[i - len(p.inputs)].mode is not Mode.WRITE:
                    return None
                (written if i >= len(p.inputs) else read).add((p.name, i))
        sides = read | written
        for call in _calls(body):
            if any(call.args[i].array != array.name for name, i in sides if name == call.procedure):
                return None
        return _Accesses(frozenset(read), frozenset(written))


def _read_late(body: Body, array: Array, accesses: _Accesses) -> set[Argument]:
    """The arguments that do not always read what the call right before wrote."""
    late: set[Argument] = set()
    for before, after in successive(body):
        if after is None:
            continue
        written = (
            {r for i, r in _bound(before, array) if (before.call.procedure, i) in accesses.written}
            if before
            else set()
        )
        read = ((after.call.procedure, i, r) for i, r in _bound(after, array))
        late |= {(name, i) for name, i, r in read if (name, i) in accesses.read and r not in written}
    return late


def _lost(body: Body, array: Array, written: frozenset[Argument], handed: frozenset[Argument]) -> bool:
    """Whether some call writes an element that the next call is not handed."""
    for before, after in successive(body):
        if before is None:
            continue
        taken = (
            {r for i, r in _bound(after, array) if (after.call.procedure, i) in handed} if after else set()
        )
        if any(r not in taken for i, r in _bound(before, array) if (before.call.procedure, i) in written):
            return True
    return False


def _one_each(arguments: frozenset[Argument]) -> bool:
    """Whether no procedure has two of the arguments."""
    return len({name for name, _ in arguments}) == len(arguments)


def _reads_first(procedure: Procedure, sides: frozenset[Argument]) -> bool:
    """Whether the procedure has read all that it is handed before it writes what it hands on."""
    names = {
        procedure.arguments[i].name: i < len(procedure.inputs) for name, i in sides if name == procedure.name
    }
    if len(set(names.values())) < 2:
        return True  # it is handed nothing, or hands nothing on
    positions = positions_by_buffer(procedure.body)
    read = [i for name, reads in names.items() if reads for i in positions.get(name, ())]
    written = [i for name, reads in names.items() if not reads for i in positions.get(name, ())]
    return not read or not written or max(read) < min(written)


def _dies_of_stage(module: Module, stage: int) -> Ints:
    """The receiver of a message of each die of a stage to itself; of all dies with -1."""
    dies = np.arange(module.dies_used)
    if stage < 0:
        return as_ints(dies)
    return as_ints(np.where(dies // (module.dies_used // module.stages) == stage, dies, NOBODY))
