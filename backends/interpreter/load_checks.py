"""Checks of a program before it is run: dies exist, memory accesses are in bounds, routes exist on the wafer.

Every check raises `CompileError` W501 unless it says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.binding import MESSAGES, Routine, Template, Templates
from wscc.backends.interpreter.engine import DynamicCall
from wscc.backends.interpreter.kernels.table import SEMANTICS, Kernel
from wscc.diagnostics import Code, CompileError, fail
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code as Procedure
from wscc.ir.streams.program import Column, Field, Streams, extreme_calls, stage_of_role

Ints = NDArray[np.int64]
Routines = dict[int, dict[str, Routine]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Routines, and what they were made for."""

    manifest: Manifest
    kernels: Mapping[str, Kernel]
    routines: Routines


_LOADED: WeakKeyDictionary[Streams, _Loaded] = WeakKeyDictionary()

# Arguments are multiples of the largest element.
ALIGNED = 8


def die_name(physical: int, manifest: Manifest) -> str:
    """The text `(row, column)` of a physical die, behind the plane if there are any; switches lie behind the dies."""
    dies = manifest.rows * manifest.columns
    if manifest.hub is not None and physical >= dies:
        return f"({(physical - dies) // 2}, {manifest.columns + (physical - dies) % 2})"
    return str(_place(physical, manifest)[not manifest.planes :])


def check_dies(streams: Streams, manifest: Manifest) -> None:
    """Check that every logical die has a live physical one of its own, a program and a row of the bindings."""
    count = prod(n for _, n in manifest.axes)
    roles = {p.role for p in streams.programs}
    alive = set(range(manifest.rows * manifest.columns)) - set(manifest.dead_dies)
    if not len(streams.dies) == len(streams.roles) == len(streams.bindings) == count:
        raise fail(Code.ARTIFACT, f"the strategy has {count} dies, the artifact another number")
    if len(set(streams.dies)) != count or not set(streams.dies) <= alive:
        raise fail(Code.ARTIFACT, "a die of the program is dead, off the wafer, or used twice")
    if not set(streams.roles) <= roles:
        raise fail(Code.ARTIFACT, "a die has a role without a program")
    if not {p.stage for p in streams.programs} <= set(range(len(streams.steps))):
        raise fail(Code.ARTIFACT, "a role is of a stage without a step")


def check_computer(streams: Streams, *, shadows: bool) -> None:
    """Check that all arenas fit the memory of this computer, rather than be killed half-way; else W401."""
    arena_bytes = streams.arena_bytes * len(streams.dies) * (3 if shadows else 1)  # and two bytes beside each
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if arena_bytes > ram:
            raise fail(
                Code.OUT_OF_MEMORY,
                f"the memories of {len(streams.dies)} dies take {arena_bytes} bytes, and this computer has {ram}",
                help="run a smaller model: fewer layers, narrower ones, or a smaller batch",
            )


def loaded(streams: Streams, manifest: Manifest) -> Routines:
    """The routines of all roles, each by name, of programs that fit themselves and the wafer. What was checked before,
    for this manifest and with these kernels (a user may register an op again), is not checked again."""
    if not is_loaded(streams, manifest):
        check_dies(streams, manifest)
        _LOADED[streams] = _Loaded(manifest, dict(SEMANTICS), _routines(streams, manifest))
    return _LOADED[streams].routines


def is_loaded(streams: Streams, manifest: Manifest) -> bool:
    """True if the program was found to fit itself and the wafer before."""
    found = _LOADED.get(streams)
    return found is not None and found.manifest is manifest and found.kernels == SEMANTICS


def _routines(streams: Streams, manifest: Manifest) -> Routines:
    # Instructions that roles have in common are one object.
    cache = Templates()
    routine_of = {id(c): Routine.of(c, cache) for c in _procedures(streams)}
    routines = {p.role: {c.name: routine_of[id(c)] for c in p.procedures} for p in streams.programs}
    stages = stage_of_role(streams)
    for stage, step in enumerate(streams.steps):
        stage_routines = {role: r for role, r in routines.items() if stages[role] == stage}
        calls = list(extreme_calls(step))
        check_calls(stage_routines, calls)
        check_memory(streams, stage_routines, calls)
    check_messages(streams, manifest, routines)
    return routines


def _procedures(streams: Streams) -> Iterable[Procedure]:
    """All procedures, those that roles have in common once."""
    return {id(c): c for p in streams.programs for c in p.procedures}.values()


def check_calls(routines: dict[int, dict[str, Routine]], calls: Sequence[DynamicCall]) -> None:
    """Check that every role has each procedure that is called, with that number of arguments."""
    for name, args in dict.fromkeys((name, len(args)) for name, args in calls):
        for role in routines.values():
            if name not in role or role[name].args != args:
                raise fail(Code.ARTIFACT, f"a role has no procedure `{name}` of {args} arguments")


def check_memory(
    streams: Streams, routines: dict[int, dict[str, Routine]], calls: Sequence[DynamicCall]
) -> None:
    """Check that every operand of every call is aligned and in the arena, and that every column exists."""
    limits: dict[str, list[list[int]]] = {}
    spans_of: dict[int, list[_Span]] = {}
    for role, by_name in routines.items():
        ends = _Ends(streams.bindings[np.asarray(streams.roles) == role])
        for routine in by_name.values():
            bounds = limits.setdefault(routine.name, [[0, 0] for _ in range(routine.args)])
            if id(routine) not in spans_of:
                spans_of[id(routine)] = _spans(routine)
            for arg, low, high in _byte_ranges(routine.name, spans_of[id(routine)], ends):
                if arg >= 0:
                    b = bounds[arg]
                    b[:] = min(b[0], low), max(b[1], high)
                elif low < 0 or high > streams.arena_bytes:
                    raise _outside(routine.name, low, high, streams.arena_bytes)
    for name, args in set(calls):
        for address, (low, high) in zip(args, limits[name], strict=True):
            if address % ALIGNED:
                raise fail(Code.ARTIFACT, f"`{name}` is called with {address}, which is not aligned")
            if address + low < 0 or address + high > streams.arena_bytes:
                raise _outside(name, address + low, address + high, streams.arena_bytes)


class _Ends:
    """The least and greatest value of a field on the dies of some rows, and the union of the bits of its values."""

    def __init__(self, rows: Ints) -> None:
        self.rows = rows
        # By column, all at once.
        ends = (rows.min(axis=0), rows.max(axis=0), np.bitwise_or.reduce(rows, axis=0)) if len(rows) else ()
        self._ends = list(zip(*(x.tolist() for x in ends), strict=True))

    def of(self, value: Field) -> tuple[int, int, int]:
        """Refuses a column that the table does not have."""
        if not isinstance(value, Column):
            return value, value, value
        if not 0 <= value.index < len(self._ends):
            column(value, self.rows)
        return self._ends[value.index]


# Argument, offset, first byte and one past the last from there, and size of an element of an operand.
_Span = tuple[int, Field, int, int, int]


def _spans(routine: Routine) -> list[_Span]:
    """The distinct spans of the operands of a procedure, in order."""
    places = (place for t in routine.distinct for place in t.places)
    return list(dict.fromkeys((p.arg, p.offset, p.low, p.high, p.dtype.itemsize) for p in places))


def _byte_ranges(procedure: str, spans: Sequence[_Span], ends: _Ends) -> Iterator[tuple[int, int, int]]:
    """(argument, first byte, one past the last) over all dies, counted from the address of the argument."""
    for arg, offset, low, high, size in spans if len(ends.rows) else ():
        least, greatest, bits = ends.of(offset)
        if bits % size:  # a power of two
            raise fail(Code.ARTIFACT, f"`{procedure}` has an operand that is not aligned")
        yield arg, least + low, greatest + high


def _outside(procedure: str, low: int, high: int, size: int) -> CompileError:
    return fail(Code.ARTIFACT, f"`{procedure}` reaches bytes {low} to {high} of an arena of {size} bytes")


def column(value: object, rows: Ints) -> Ints:
    """The value of a field on every die of `rows` [dies, columns]; W501 if the table has no such column."""
    if not isinstance(value, Column):
        return np.full(len(rows), value, np.int64)
    if not 0 <= value.index < rows.shape[1]:
        raise fail(Code.ARTIFACT, f"column {value.index} of a binding table of {rows.shape[1]} columns")
    return rows[:, value.index]


def check_routes(streams: Streams, manifest: Manifest, channels: int) -> None:
    """Check all routes, used or not: legs that join the same dies over live links, on channels that links have, or one
    leg of a die alone, of a copy within it; merged routes begin at one die, and have legs of equal shares and
    channels."""
    merged: dict[int, object] = {}
    for number, route in enumerate(streams.routes):
        ends = {(leg.path[:1], leg.path[-1:]) for leg in route.legs}
        is_copy = len(route.legs) == 1 and len(route.legs[0].path) == 1
        shortest = 1 if is_copy else 2
        if len(ends) != 1 or any(leg.channel >= channels or len(leg.path) < shortest for leg in route.legs):
            raise fail(Code.ARTIFACT, f"route {number} has no legs that join dies on {channels} channels")
        for leg in route.legs:
            _check_path(number, leg.path, manifest)
        tree = (route.ends[0], *((leg.channel, leg.share) for leg in route.legs))
        if route.merged >= 0 and merged.setdefault(route.merged, tree) != tree:
            raise fail(Code.ARTIFACT, f"route {number} is merged with others of another begin or other legs")


def check_messages(streams: Streams, manifest: Manifest, routines: dict[int, dict[str, Routine]]) -> None:
    """Check that peers are dies, and that every route leads from its sender to its receiver over live links."""
    checked_routes: set[int] = set()
    scalars_of: dict[int, list[Template]] = {}
    checked: dict[int, object] = {}
    for role, by_name in routines.items():
        logical = np.flatnonzero(np.asarray(streams.roles) == role)
        rows = streams.bindings[logical]
        for routine in by_name.values():
            if id(routine) not in scalars_of:
                scalars_of[id(routine)] = _distinct_scalars(routine, checked)
            for t in scalars_of[id(routine)]:
                _check_scalars(t, rows)
                if t.opcode in ("post", "send"):
                    _check_message(t, logical, rows, streams, manifest, checked_routes)


def _distinct_scalars(routine: Routine, checked: dict[int, object]) -> list[Template]:
    """The first of all instructions that only differ in what is not checked here: operands, and numbers of channels.
    `checked` has what is checked of an instruction that routines have in common, by its identity."""
    first: dict[object, Template] = {}
    for t in routine.distinct:
        if id(t) not in checked:
            checked[id(t)] = _scalars(t)
        first.setdefault(checked[id(t)], t)
    return list(first.values())


def _scalars(t: Template) -> object:
    is_message = t.opcode in MESSAGES
    size = tuple((p.sizes, p.dtype.itemsize) for p in t.places if is_message)
    return t.opcode, size, t.attrs[1:] if is_message and not isinstance(t.attrs[0], Column) else t.attrs


def _check_scalars(t: Template, rows: Ints) -> None:
    for value in t.attrs:
        if isinstance(value, Column):
            column(value, rows)
    if t.opcode == "delay" and int(column(t.attrs[0], rows).min(initial=0)) < 0:
        raise fail(Code.ARTIFACT, "a `delay` takes less than no time")
    if t.opcode == "wait" and t.attrs[1] not in ("received", "sent"):
        raise fail(Code.ARTIFACT, f"`wait` is for `received` or `sent`, not `{t.attrs[1]}`")


def _check_message(
    t: Template, logical: Ints, rows: Ints, streams: Streams, manifest: Manifest, checked_routes: set[int]
) -> None:
    """Check one post or send on the dies `logical`, whose rows of the bindings are `rows`."""
    if (size := prod(t.places[0].sizes) * t.places[0].dtype.itemsize) > streams.arena_bytes:
        raise fail(Code.ARTIFACT, f"a message of {size} bytes, and an arena of {streams.arena_bytes}")
    peers = column(t.attrs[1], rows)
    for die, peer in zip(logical.tolist(), peers.tolist(), strict=True):
        if not 0 <= peer < len(streams.dies):
            name = die_name(streams.dies[die], manifest)
            raise fail(Code.ARTIFACT, f"die {name} exchanges messages with {peer}, which is no die")
    if t.opcode == "post":
        return
    routes = column(t.attrs[2], rows)
    for die, peer, route in zip(logical.tolist(), peers.tolist(), routes.tolist(), strict=True):
        if not 0 <= route < len(streams.routes):
            raise fail(Code.ARTIFACT, f"route {route} of {len(streams.routes)}")
        legs = streams.routes[route].legs
        ends = (streams.dies[die], streams.dies[peer])
        if not legs or any((leg.path[:1], leg.path[-1:]) != (ends[:1], ends[1:]) for leg in legs):
            src, dst = (die_name(d, manifest) for d in ends)
            raise fail(Code.ARTIFACT, f"route {route} does not lead from die {src} to die {dst}")
        if route not in checked_routes:
            for leg in legs:
                _check_path(route, leg.path, manifest)
            checked_routes.add(route)


def _check_path(route: int, path: tuple[int, ...], manifest: Manifest) -> None:
    dead_links = {frozenset(link) for link in manifest.dead_links}
    dead = set(manifest.dead_dies)
    if not 0 <= path[0] < manifest.rows * manifest.columns or path[0] in dead:
        raise fail(Code.ARTIFACT, f"route {route} begins at die {path[0]}, which is no live die of the wafer")
    for a, b in pairwise(path):
        link = f"{die_name(a, manifest)} - {die_name(b, manifest)}"
        if not (_are_switched(a, b, manifest) if _has_switch(manifest) else _are_neighbours(a, b, manifest)):
            raise fail(Code.ARTIFACT, f"route {route} takes {link}, which is no link of the wafer")
        if {a, b} & dead or frozenset((a, b)) in dead_links:
            raise fail(Code.ARTIFACT, f"route {route} takes {link}, which is dead")


def _has_switch(manifest: Manifest) -> bool:
    return manifest.hub is not None and manifest.hub.capacity > 0


def _are_switched(a: int, b: int, manifest: Manifest) -> bool:
    """Whether a link leads from a die into the switch of its row or its leaf of the network, through a switch, between
    a leaf and the spine behind the last of them, or out of a switch to a die."""
    rows, columns, network = manifest.rows, manifest.columns, manifest.network
    tree = network.leaves if network else None
    leaves = (
        0 if network is None else 1 if tree is None else -(-rows // tree.nodes) if tree.nodes else columns
    )
    first, dies = rows * columns + 2 * rows, rows * columns
    spine = first + 2 * leaves
    last = spine + 2 * (leaves > 1)
    if not (0 <= a < last and 0 <= b < last):
        return False

    def joined(die: int, entry: int) -> bool:
        row, column = divmod(die, columns)
        leaf = 0 if tree is None else row // tree.nodes if tree.nodes else column
        return entry == dies + 2 * row or (leaves > 0 and entry == first + 2 * leaf)

    def leads_out(vertex: int) -> bool:
        return (vertex - dies) % 2 == 1

    if a < dies:
        return b >= dies and joined(a, b)
    if b < dies:
        return leads_out(a) and joined(b, a - 1)
    if leads_out(a) != leads_out(b):
        return leads_out(b) and b == a + 1
    high, low = (a - 1, b - 1) if leads_out(a) else (b, a)
    return leaves > 1 and high == spine and first <= low < spine


def _are_neighbours(a: int, b: int, manifest: Manifest) -> bool:
    if not all(0 <= d < manifest.rows * manifest.columns for d in (a, b)):
        return False
    if manifest.hub is not None:
        return a != b
    planes, torus = max(1, manifest.planes), manifest.torus
    rows = manifest.rows // planes
    apart = [abs(x - y) for x, y in zip(_place(a, manifest), _place(b, manifest), strict=True)]
    around = zip(apart, (planes, rows, manifest.columns), (torus.planes, torus.cols, torus.rows), strict=True)
    if sum(map(bool, apart)) != 1:
        return False
    return sum(apart) == 1 or any(closed and far == extent - 1 > 1 for far, extent, closed in around)


def _place(die: int, manifest: Manifest) -> tuple[int, int, int]:
    """Plane, row and column; rows of every other plane are numbered backwards."""
    rows = manifest.rows // max(1, manifest.planes)
    row, column = divmod(die, manifest.columns)
    plane, row = divmod(row, rows)
    return plane, row if plane % 2 == 0 else rows - 1 - row, column
