"""The verifier of modules: `verify` yields all mistakes of a module at its level. It shares no code with passes.

All levels: names are unique and defined; calls bind arguments to array elements of the same type, inside their
extents in every iteration; values are defined once, before use; ops fit their declaration (`verify.ops`).
Sharded: one assignment of axes to factors explains every layout (`verify.sharded`). Fabric: views stay inside
their buffers on every die, messages are partial permutations over live routes (`verify.fabric`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from math import isfinite, prod

from wscc.diagnostics import Span
from wscc.diagnostics.limits import beyond_limits
from wscc.ir.array import Array, Kind
from wscc.ir.module import Level, Module, Procedure
from wscc.ir.op import Op, Reshard
from wscc.ir.ops import IGNORED
from wscc.ir.train import Rates, Train
from wscc.ir.types import TensorType
from wscc.ir.verify.fabric import check_fabric
from wscc.ir.verify.finding import Findings, Place, in_procedure
from wscc.ir.verify.layouts import check_layout, check_orders
from wscc.ir.verify.memory import check_memory
from wscc.ir.verify.ops import check_ops
from wscc.ir.verify.relations import check_relation
from wscc.ir.verify.routes import Paths, check_dies, check_routes
from wscc.ir.verify.sharded import check_sharded
from wscc.ir.verify.step import check_step

_INITS = ("zeros", "ones", "normal")


def verify(module: Module, before: Module | None = None) -> Findings:
    """The mistakes of the module; none if it is valid at its level. Never raises.

    Procedures are immutable: those that `before`, a valid module, has too are not checked again, unless something
    else that they rely on has changed.
    """
    mistakes = [*_header(module)] or [*_arrays(module)]
    yield from mistakes
    if mistakes:
        return  # the checks below rely on defined axes and sound types
    unchanged = before is not None and _surroundings(before) == _surroundings(module)
    valid = {id(p) for p in before.procedures} if before is not None and unchanged else set()
    earlier, paths = _earlier(module, before), cache(lambda: Paths.of(module))
    for procedure in module.procedures:
        if id(procedure) not in valid:
            yield from _procedure(module, procedure, earlier.get(procedure.name), paths)
    yield from check_step(module)
    if module.level is Level.FABRIC:
        yield from check_memory(module)


def _surroundings(m: Module) -> tuple[object, ...]:
    """The parts of a module on which the validity of a procedure depends."""
    return m.level, m.axes, *((m.machine, m.dies, m.routes) if m.level is Level.FABRIC else ())


def _earlier(module: Module, before: Module | None) -> dict[str, Procedure]:
    """The procedures of a valid module on the same dies by name; none across levels."""
    if before is None or (before.level, before.axes) != (module.level, module.axes):
        return {}
    return {p.name: p for p in before.procedures}


def _header(m: Module) -> Findings:
    place = Place(f"module `{m.name}`", m.spans.title)
    for axis, size in m.axes:
        if size < 1:
            yield place.wrong(f"axis `{axis}` has size {size}")
    if m.dies_used > m.machine.live_dies:
        yield place.wrong(f"its axes need {m.dies_used} dies, and the wafer has {m.machine.live_dies} alive")
    yield from _unique(place, "axis", ((a, place.span) for a, _ in m.axes))
    yield from _unique(place, "array", ((a.name, a.span) for a in m.arrays))
    yield from _unique(place, "procedure", ((p.name, p.span) for p in m.procedures))
    records = (m.train, m.train.optimizer, m.train.lr_schedule)
    wrong = [f"`{name}` {words}" for r in records for name, words in beyond_limits(r)]
    if not wrong:
        agreeing = (m.train, m.train.lr_schedule)
        wrong = [f"`{name}`: {words}" for r in agreeing for name, words in r.disagreements()]
    yield from map(place.wrong, wrong)
    yield from check_dies(m)
    yield from check_routes(m)


def _unique(place: Place, what: str, names: Iterable[tuple[str, Span]]) -> Findings:
    """Names that occur more than once, each at its second place."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for name, span in names:
        if name in seen and name not in repeated:
            yield replace(place, span=span).wrong(f"{what} `{name}` is defined twice")
            repeated.add(name)
        seen.add(name)


def _arrays(m: Module) -> Findings:
    by_name = {a.name: a for a in m.arrays}
    for a in m.arrays:
        place = Place(f"array `%{a.name}`", a.span)
        wrong_type = [*_type(m, place, a.type)]
        yield from wrong_type or check_orders(place, a, m.sizes)
        if any(n < 1 for n in a.extents):
            yield place.wrong(f"extents {list(a.extents)} are not positive")
        if a.unpadded:
            yield from _pads(place, a)
        if a.filler:
            yield from _filler(place, a)
        if a.handed:
            yield from _handed(m, place, a)
        if a.init.kind not in _INITS:
            yield place.wrong(f"`init` is `{a.init.kind}`, not {', '.join(_INITS)}")
        if not isfinite(a.init.std) or a.init.std < 0:
            yield place.wrong(f"a deviation of {a.init.std} is impossible")
        if a.rates is not None:
            yield from _rates(place, a, a.rates)
        if a.kind is Kind.INPUT:
            yield from _input(m.train, place, a)
        if a.relation is not None:
            yield from check_relation(m, place, a, a.relation)
        if a.storage:
            yield from _storage(m, place, a, by_name.get(a.storage))


def _pads(place: Place, a: Array) -> Findings:
    shape = a.type.shape
    if len(a.unpadded) != len(shape) or not all(
        1 <= n <= whole for n, whole in zip(a.unpadded, shape, strict=True)
    ):
        yield place.wrong(f"`unpadded` is {list(a.unpadded)}, which is no part of its shape {list(shape)}")


def _filler(place: Place, a: Array) -> Findings:
    if a.filler != IGNORED or a.kind is not Kind.INPUT or a.type.dtype.is_float or not a.unpadded:
        yield place.wrong(f"its pads hold {a.filler}: they hold 0, or {IGNORED} in an input of integers")


def _handed(m: Module, place: Place, a: Array) -> Findings:
    """What calls hand on is one element that nobody else holds: procedures have its bytes in between."""
    if a.kind is not Kind.CARRIED or a.extents:
        yield place.wrong(f"it is handed from call to call, and is {a.kind} with extents {list(a.extents)}")
    if a.storage or any(other.storage == a.name for other in m.arrays):
        yield place.wrong("it is handed from call to call, and shares its bytes with another array")


def _rates(place: Place, a: Array, rates: Rates) -> Findings:
    if a.kind is not Kind.PARAM:
        yield place.wrong("it is no parameter, and has rates of the optimizer")
    for name, words in beyond_limits(rates):
        yield place.wrong(f"`{name}` {words}")


def _input(train: Train, place: Place, a: Array) -> Findings:
    """An input has an element for each micro-batch (and layer, if it holds keys of random draws), and its first
    dimension are the sequences of one."""
    sequences = (*a.unpadded, *a.type.shape, 0)[0]
    if (
        a.extents[:1] != (train.microbatches,)
        or len(a.extents) > 2
        or sequences * train.microbatches != train.batch
    ):
        yield place.wrong(
            f"an input holds {list(a.extents)} x {sequences} sequences, and the training has {train.microbatches} "
            f"micro-batches of {train.batch // train.microbatches}"
        )


def _storage(m: Module, place: Place, a: Array, owner: Array | None) -> Findings:
    if owner is None:
        yield place.wrong(f"its storage `%{a.storage}` is no array")
    elif owner.storage:
        yield place.wrong(f"its storage `%{a.storage}` itself lies in `%{owner.storage}`")
    elif (_held(m, a), a.extents) != (_held(m, owner), owner.extents):
        yield place.wrong(f"a die holds something else of it than of its storage `%{owner.name}`")


def _held(m: Module, a: Array) -> tuple[object, ...]:
    """The shard that a die holds of an element: element type, shape, number of parts of each dimension."""
    layout = a.type.layout
    return (
        a.type.dtype,
        a.type.shape,
        layout and tuple(prod(m.sizes.get(x, 1) for x in d) for d in layout.dims),
    )


def _type(m: Module, place: Place, kind: TensorType) -> Findings:
    if any(n < 1 for n in kind.shape):
        yield place.wrong(f"its shape {list(kind.shape)} has a dimension that is not positive")
    elif m.level is Level.GRAPH:
        if kind.layout is not None:
            yield place.wrong("a type has no layout at the graph level")
    else:
        yield from check_layout(place, kind, m.sizes)


def _procedure(m: Module, p: Procedure, earlier: Procedure | None, paths: Callable[[], Paths]) -> Findings:
    place = in_procedure(p)
    values = dict.fromkeys(p.arguments, p.span) | {v: s.span for s in p.statements for v in s.results}
    wrong_types = [
        d for v, span in values.items() for d in _type(m, Place(f"`%{v.name}` of `@{p.name}`", span), v.type)
    ]
    yield from wrong_types
    yield from _unique(place, "input", ((v.name, p.span) for v in p.inputs))
    if m.level is Level.FABRIC:
        if p.statements:
            place = replace(place, span=p.statements[0].span)
            yield place.wrong(f"`{p.statements[0].kind}` is an op, and the fabric level has none")
        elif not wrong_types:
            yield from check_fabric(m, p, paths(), earlier)
        return
    fabric = [s.span for s in (*p.buffers, *p.body) if not isinstance(s, Op | Reshard)]
    if fabric:
        yield replace(place, span=fabric[0]).wrong(
            f"buffers and statements of the fabric cannot stand at the {m.level} level"
        )
    problems = [*check_ops(m, p)]
    yield from problems
    if m.level is Level.SHARDED and not problems and not wrong_types:
        yield from check_sharded(m, p)
