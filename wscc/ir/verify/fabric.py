"""The check of procedures at the fabric level: buffers, kernels against their declaration, messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Final

from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard
from wscc.ir.per_die import PerDie
from wscc.ir.streams.instruction_def import InstructionDef
from wscc.ir.streams.instructions import INSTRUCTIONS
from wscc.ir.templates import bind
from wscc.ir.types import DType
from wscc.ir.verify.attrs import wrong_number
from wscc.ir.verify.finding import Findings, Place, in_procedure, listed
from wscc.ir.verify.messages import Messages
from wscc.ir.verify.routes import Paths
from wscc.ir.verify.views import Views, wrong_ints, wrong_mask
from wscc.ir.views import View

_MESSAGES: Final = frozenset({"post", "send", "wait"})
_INTEGERS: Final = frozenset(
    {
        "start", "q_start", "k_start", "e_start", "c_start", "capacity", "k", "limit", "warmup", "decay", "time",
        "width", "interleaved", "salt", "window", "heads", "group", "h_start", "g_start",
    }
)  # fmt: skip
_FLAGS: Final = frozenset({"accumulate", "causal", "renormalise"})
_TEXTS: Final = frozenset({"axes", "strides"})


def check_fabric(
    module: Module, procedure: Procedure, paths: Paths, earlier: Procedure | None = None
) -> Findings:
    """The mistakes of a procedure whose arguments have sound types, in a module whose dies and routes are right, with
    these `paths`.

    Kernels that `earlier`, a procedure of a valid module on the same dies, has too are not checked again."""
    mistakes = [*_names(procedure, module.sizes)]
    yield from mistakes
    if mistakes:
        return
    views = Views(module.dies_used, _extents(module, procedure))
    sound = _sound(module, procedure, earlier) if earlier is not None else frozenset()
    transfers = sum(isinstance(s, Transfer) for s in procedure.body)
    messages = Messages(views, paths, procedure.name, transfers)
    for stmt in procedure.body:
        match stmt:
            case Kernel():
                if id(stmt) not in sound:
                    yield from _kernel(views, procedure, stmt)
            case Transfer():
                yield from messages.transfer(stmt)
            case Op() | Reshard():
                pass  # reported by the caller
            case _:
                yield from messages.statement(stmt)
    yield from messages.unfinished()


def _sound(module: Module, procedure: Procedure, earlier: Procedure) -> frozenset[int]:
    """The kernels, by identity, that a valid procedure has too, on buffers of the same size: passes leave most of them
    as they are, and a kernel rests on nothing else."""
    before, now = _extents(module, earlier), _extents(module, procedure)
    changed = {name for name, extent in before.items() if now.get(name) != extent}
    return frozenset(
        id(s)
        for s in earlier.body
        if isinstance(s, Kernel) and changed.isdisjoint(v.buffer for v, _ in _operands(s))
    )


def _names(p: Procedure, sizes: dict[str, int]) -> Findings:
    place = in_procedure(p)
    arguments: dict[str, tuple[object, ...]] = {}
    for v in p.arguments:
        # An output with the name of an input replaces it in place: the same bytes, whatever is partial.
        shard = v.type.dtype, v.type.local_shape(sizes)
        if arguments.setdefault(v.name, shard) != shard:
            yield place.wrong(f"`%{v.name}` is an input and an output, of different size")
    seen = set(arguments)
    for b in p.buffers:
        if b.name in seen:
            yield replace(place, span=b.span).wrong(f"buffer `%{b.name}` has the name of another")
        if b.elements < 1:
            yield replace(place, span=b.span).wrong(f"buffer `%{b.name}` has {b.elements} elements")
        seen.add(b.name)


def _extents(module: Module, p: Procedure) -> dict[str, tuple[int, DType]]:
    arguments = {v.name: (prod(v.type.local_shape(module.sizes)), v.type.dtype) for v in p.arguments}
    return arguments | {b.name: (b.elements, b.dtype) for b in p.buffers}


# --------------------------------------------------------------------------------------------------- kernels


def _kernel(views: Views, p: Procedure, k: Kernel) -> Findings:
    target = f" %{k.writes[0].buffer}" if k.writes else ""
    place = Place(f"`{k.opcode}{target}` in `@{p.name}`", k.span)
    definition = INSTRUCTIONS.get(k.opcode)
    if definition is None or k.opcode in _MESSAGES:
        yield place.wrong(f"there is no kernel `{k.opcode}`")
        return
    if wrong := wrong_mask(k.where, views.dies):
        yield place.wrong(f"`where`: {wrong}")
        return
    active = None if k.where == 1 else as_array(k.where, views.dies) == 1
    for view, is_written in _operands(k):
        yield from views.check(place, view, active, is_written=is_written)
    for wrong in _wrong_attrs(definition, k, views.dies):
        yield place.wrong(wrong)
    if wrong := _wrong_shapes(definition, k):
        yield place.wrong(wrong)


def _operands(k: Kernel) -> Iterable[tuple[View, bool]]:
    """Every view, and whether it is written."""
    yield from ((v, True) for v in k.writes)
    yield from ((v, False) for v in k.reads)


def _wrong_attrs(definition: InstructionDef, k: Kernel, dies: int) -> Iterator[str]:
    names = tuple(name for name, _ in k.attrs)
    if not definition.takes(names):
        yield f"its attributes are {listed(names)}, and must be {listed(definition.attr_names)}"
        return
    for name, value in k.attrs:
        declared = int if name in _INTEGERS else bool if name in _FLAGS else str if name in _TEXTS else float
        if isinstance(value, PerDie) and declared is int:
            if wrong := wrong_ints(value, dies):
                yield f"`{name}`: {wrong}"
        elif type(value) is not declared:
            yield f"`{name}` is {value!r}, not of type {declared.__name__}"
        elif wrong := wrong_number(k.opcode, name, value):
            yield wrong


@lru_cache(maxsize=256)
def _declared(operands: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Names and slots of operands declared as `x[*,d] g[d]`; all without brackets have one shape, `...`."""
    declared = []
    for word in operands.split():
        name, bracket, inside = word.removesuffix("]").partition("[")
        declared.append((name, tuple(filter(None, inside.split(","))) if bracket else ("...",)))
    return tuple(declared)


def _wrong_shapes(definition: InstructionDef, k: Kernel) -> str | None:
    bound: dict[str, tuple[int, ...]] = {}
    for declared, views, word in (
        (_declared(definition.writes), k.writes, "writes"),
        (_declared(definition.reads), k.reads, "reads"),
    ):
        if len(declared) != len(views):
            return f"it {word} {len(declared)} operands, not {len(views)}"
        if k.opcode == "sum":
            continue
        for (name, slots), view in zip(declared, views, strict=True):
            if slots == ("...",):
                fits = bound.setdefault("...", view.shape) == view.shape
            else:
                fits = bind(slots, view.shape, bound)
            if not fits:
                signature = f"{definition.writes} <- {definition.reads}"
                return f"sizes {list(view.shape)} of `%{view.buffer}` do not fit `{name}` of `{signature}`"
    if k.opcode == "dropout":
        return _wrong_strides(k)
    return _wrong_sum(k) if k.opcode == "sum" else None


def _wrong_strides(k: Kernel) -> str | None:
    strides, rank = dict(k.attrs).get("strides"), len(k.reads[0].shape)
    if not isinstance(strides, str):
        return None  # reported as an attribute
    numbers = strides.split(",") if strides else []
    if len(numbers) != rank - 1 or not all(n.isdecimal() and len(n) < 16 for n in numbers):
        return f"`strides` is `{strides}`, and `%{k.reads[0].buffer}` has {rank} dimensions"
    return None


def _wrong_sum(k: Kernel) -> str | None:
    axes = dict(k.attrs).get("axes")
    if not isinstance(axes, str):
        return None  # reported as an attribute
    summed = [int(a) if a.isdecimal() and len(a) < 4 else -1 for a in axes.split(",")] if axes else []
    shape = k.reads[0].shape
    if summed != sorted(set(summed)) or not all(0 <= a < len(shape) for a in summed):
        return f"`axes` is `{axes}`, and `%{k.reads[0].buffer}` has {len(shape)} dimensions"
    result = tuple(n for i, n in enumerate(shape) if i not in summed)
    if result != k.writes[0].shape:
        return f"`%{k.writes[0].buffer}` has sizes {list(k.writes[0].shape)}, not {list(result)}"
    return None
