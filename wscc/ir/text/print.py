"""The printer of textual IR: `to_text` returns the text of a module, which `wscc.ir.text.parse` reads back.

Invariant: `parse(to_text(m)) == m` for every module that verifies. The syntax is `grammar/wir.lark`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from wscc.ir.array import Array, Init
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Stream, Value
from wscc.ir.ops import RESHARDS
from wscc.ir.routes import ALONE, Leg, Route
from wscc.ir.step import Affine, Call, Loop, Ref, Step
from wscc.ir.text.die_text import spell_ints
from wscc.ir.text.print_fabric import buffer_line, fabric_line
from wscc.ir.text.words import spell_name, spell_scalar, spell_type, spell_word
from wscc.machine.wafer import OPEN, Wafer

_WIDTH = 110


def to_text(module: Module) -> str:
    """The text of the whole module, one statement per line; equal modules have the same text."""
    lines: list[str] = [*_header(module)]
    lines += map(_array, module.arrays)
    for procedure in module.procedures:
        lines += _procedure(procedure)
    lines += ["step {", *_step(module.step, "  "), "}"]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------------- header


def _header(m: Module) -> Iterator[str]:
    axes = "".join(f" {spell_word(a)}={n}" for a, n in m.axes)
    yield f"module {spell_word(m.name)} level {m.level} axes{axes}"
    yield f"train {record(m.train)}"
    if m.train.stages:
        yield f"stages {' '.join(map(str, m.train.stages))}"
    yield f"optimizer {record(m.train.optimizer)}"
    yield f"lr_schedule {record(m.train.lr_schedule)}"
    yield from _machine(m.machine)
    if m.dies:
        yield f"dies {spell_ints(m.dies)}"
    yield from map(_route, range(len(m.routes)), m.routes)
    if m.memory:
        yield f"memory {record(m.memory)}"
        for place in m.memory.arrays:
            yield f"place %{spell_name(place.array)} address={place.address} stride={place.stride}"


def _route(number: int, route: Route) -> str:
    merged = f" merged {route.merged}" if route.merged != ALONE else ""
    return f"route {number}{merged}: {', '.join(map(_leg, route.legs))}"


def _leg(leg: Leg) -> str:
    channel = f" channel {leg.channel}" if leg.channel else ""
    share = f" share {leg.share}" if leg.share != 1 else ""
    return f"{' '.join(map(str, leg.path))}{channel}{share}"


def _machine(w: Wafer) -> Iterator[str]:
    yield f"wafer {spell_word(w.name)} rows={w.rows} cols={w.cols}"
    yield f"die {record(w.die)}"
    yield f"link {record(w.link)}"
    if w.circuits is not None:
        yield f"circuits {record(w.circuits)}"
    for (row, col), die in w.unlike:
        yield f"unlike die {row}, {col} {record(die)}"
    if w.planes:
        yield f"planes {w.planes}"
    if w.torus != OPEN:
        planes = " planes=true" if w.torus.planes else ""
        yield f"torus rows={spell_scalar(w.torus.rows)} cols={spell_scalar(w.torus.cols)}{planes}"
    yield from _switches(w)
    if w.joint is not None:
        yield f"joint rows={w.joint.rows} cols={w.joint.cols} {record(w.joint.link)}"
        if w.joint.ports:
            yield f"ports {' '.join(map(str, w.joint.ports))}"
    for row, col in sorted(w.dead_dies):
        yield f"dead die {row}, {col}"
    down = w.circuits.down if w.circuits else ()
    for word, links in (("dead", w.dead_links), ("down", down)):
        for (ra, ca), (rb, cb) in sorted(links):
            yield f"{word} link {ra}, {ca} to {rb}, {cb}"


def _switches(w: Wafer) -> Iterator[str]:
    if w.hub is not None:
        yield f"hub {record(w.hub)}"
    if w.network is not None:
        yield f"network {record(w.network)}"
        yield f"uplink {record(w.network.link)}"
        if w.network.leaves is not None:
            yield f"leaves {record(w.network.leaves)}"


def record(obj: Any) -> str:
    """The scalar fields of a dataclass as `name=value`, in order."""
    values = ((f.name, getattr(obj, f.name)) for f in fields(obj))
    return " ".join(f"{k}={spell_scalar(v)}" for k, v in values if isinstance(v, bool | int | float | str))


def _array(a: Array) -> str:
    extents = f" extents=({', '.join(map(str, a.extents))})" if a.extents else ""
    std = f"({spell_scalar(a.init.std)})" if a.init.std else ""
    init = "" if a.init == Init() else f" init={spell_word(a.init.kind)}{std}"
    storage = f" storage=%{spell_name(a.storage)}" if a.storage else ""
    stage = f" stage={a.stage}" if a.stage >= 0 else ""
    part = f" of=%{spell_name(a.of)} first={a.first}" if a.of else ""
    relation = f" {a.relation.role}_of=%{spell_name(a.relation.array)}" if a.relation else ""
    rates = f" rates({record(a.rates)})" if a.rates else ""
    zigzag = f" zigzag=({', '.join(map(str, a.zigzag))})" if a.zigzag else ""
    unpadded = f" unpadded=({', '.join(map(str, a.unpadded))})" if a.unpadded else ""
    filler = f" filler={a.filler}" if a.filler else ""
    handed = " handed" if a.handed else ""
    options = f"{extents}{init}{storage}{stage}{part}{relation}{rates}{zigzag}{unpadded}{filler}{handed}"
    return f"array %{spell_name(a.name)} : {spell_type(a.type)} kind={a.kind}{options}"


# ------------------------------------------------------------------------------------------------ procedures


def _procedure(p: Procedure) -> Iterator[str]:
    definitions = {v.name: v for v in p.inputs}
    definitions.update((v.name, v) for s in p.statements for v in s.results)
    inputs = _filled(f"proc @{spell_name(p.name)}(", [_typed(v) for v in p.inputs], ")")
    outputs = [_output(o, definitions) for o in p.outputs]
    yield from inputs[:-1]
    yield from _filled(f"{inputs[-1]} -> (", outputs, ") {")
    yield from map(buffer_line, p.buffers)
    dtypes = {v.name: v.type.dtype for v in p.arguments} | {b.name: b.dtype for b in p.buffers}
    for stmt in p.body:
        yield _statement(stmt) if isinstance(stmt, Op | Reshard) else fabric_line(stmt, dtypes)
    yield "}"


def _typed(v: Value) -> str:
    return f"%{spell_name(v.name)} : {spell_type(v.type)}"


def _output(o: Output, definitions: dict[str, Value]) -> str:
    """An output with its mode, and with its type unless a definition in the procedure has that."""
    is_defined = definitions.get(o.value.name) == o.value
    return f"%{spell_name(o.value.name)} {o.mode}" + ("" if is_defined else f" : {spell_type(o.value.type)}")


def _statement(s: GraphStmt) -> str:
    results = ", ".join(f"%{spell_name(v.name)}" for v in s.results)
    operands = ", ".join(f"%{spell_name(v.name)}" for v in s.operands)
    types = ", ".join(spell_type(v.type) for v in s.results)
    more = _op(s) if isinstance(s, Op) else _reshard(s)
    return f"  {results} = {spell_word(s.kind)}({operands}){more} : {types}"


def _op(op: Op) -> str:
    attrs = "".join(f" {spell_word(k)}={spell_scalar(v)}" for k, v in op.attrs)
    stream = f" {_stream(op.stream)}" if op.stream else ""
    origin = f" origin {spell_word(op.origin)}" if op.origin else ""
    return f" {{{op.rule}}}{attrs}{stream}{origin}"


def _reshard(s: Reshard) -> str:
    values = (("axis", s.axis), *((name, getattr(s, name)) for name in RESHARDS[s.kind]))
    return "".join(f" {name}={spell_scalar(value)}" for name, value in values)


def _stream(s: Stream) -> str:
    moving = "".join(
        f", {direction} {' '.join(map(str, numbers))}"
        for direction, numbers in (("in", s.moving_in), ("out", s.moving_out))
        if numbers
    )
    return f"stream({spell_word(s.factor)} over {spell_word(s.axis)}{moving})"


# ------------------------------------------------------------------------------------------------------ step


def _step(stmts: Step, indent: str) -> Iterator[str]:
    for stmt in stmts:
        if isinstance(stmt, Call):
            yield from _filled(
                f"{indent}call @{spell_name(stmt.procedure)}(", map(_ref, stmt.args), ")", indent
            )
        else:
            head = f"loop {spell_word(stmt.variable)} <" if isinstance(stmt, Loop) else "stage"
            yield f"{indent}{head} {stmt.count if isinstance(stmt, Loop) else stmt.index} {{"
            yield from _step(stmt.body, indent + "  ")
            yield f"{indent}}}"


def _ref(r: Ref) -> str:
    index = f"[{', '.join(map(_affine, r.index))}]" if r.index else ""
    return f"%{spell_name(r.array)}{index}"


def _affine(a: Affine) -> str:
    """`l + 1`, `2*mb - 1*l`, `(l + 1) mod 2`."""
    text = ""
    for variable, coefficient in a.terms:
        text += _term(f"{abs(coefficient)}*", coefficient, spell_word(variable), bool(text))
    if a.base or not text:
        text += _term("", a.base, str(abs(a.base)), bool(text))
    return f"({text}) mod {a.modulus}" if a.modulus else text


def _term(scale: str, sign: int, what: str, joined: bool) -> str:
    """A term with its sign; `joined` if another stands before it."""
    scale = "" if scale == "1*" and (joined or sign > 0) else scale
    minus = (" - " if joined else "-") if sign < 0 else (" + " if joined else "")
    return f"{minus}{scale}{what}"


def _filled(head: str, items: Iterator[str] | Sequence[str], tail: str, indent: str = "") -> list[str]:
    """Lines of the items between head and tail, separated by commas; a line that would be too long ends at one."""
    lines, line = [], head
    parts = list(items)
    for i, part in enumerate(parts):
        last = i + 1 == len(parts)
        piece = part + (tail if last else ",")
        if i and len(line) + 1 + len(piece) > _WIDTH:
            lines.append(line)
            line = f"{indent}    {piece}"
        else:
            line += f" {piece}" if i else piece
    return [*lines, line if parts else line + tail]
