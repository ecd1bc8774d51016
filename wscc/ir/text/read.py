"""The reader of the parse tree of a textual IR: header, arrays and step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lark import Token

from wscc.diagnostics import CompileError, Source
from wscc.ir.array import Array, Init, Kind, Relation, Role
from wscc.ir.memory import Memory, Placement
from wscc.ir.module import HeaderSpans, Level, Module
from wscc.ir.routes import ALONE, Leg, Route
from wscc.ir.step import Affine, Call, Loop, Ref, Stage, Step
from wscc.ir.text.read_body import read_procedure
from wscc.ir.text.reading import Node, Reading, T, nodes, tokens
from wscc.ir.text.words import read_scalar
from wscc.ir.train import LrSchedule, Optimizer, Rates, Train
from wscc.machine.wafer import (
    OPEN,
    Circuits,
    Coordinate,
    DeadLink,
    Die,
    Hub,
    Joint,
    Leaves,
    Link,
    Network,
    Torus,
    Wafer,
    dead_link,
)

_MAX_LOOPS = 32
# Kinds of arrays as texts of earlier versions spell them.
_FORMER_KINDS = {"saved": "residual", "working": "compute_copy"}


def read_module(tree: Node, source: Source) -> Module:
    """The module of the tree. Raises `CompileError` W601 with the mistakes that the grammar cannot tell."""
    r = Reading(source)
    by_rule = {str(n.data): n for n in nodes(tree)}
    name, level, axes = _title(r, by_rule["module"])
    r.has_layout = level is not Level.GRAPH
    module = Module(
        name,
        level,
        axes,
        _train(r, by_rule),
        _wafer(r, tree, by_rule),
        tuple(_array(r, n) for n in nodes(tree, "array")),
        tuple(read_procedure(r, n) for n in nodes(tree, "procedure")),
        _step(r, by_rule["step"], 0),
        _dies(r, by_rule.get("dies")),
        tuple(_route(r, i, n) for i, n in enumerate(nodes(tree, "route"))),
        _memory(r, by_rule.get("memory"), nodes(tree, "placement")),
        _spans(r, by_rule),
    )
    if r.mistakes:
        raise CompileError(*r.mistakes)
    return module


def _spans(r: Reading, by_rule: dict[str, Node]) -> HeaderSpans:
    # A rule that is only a keyword and attributes has one token of its own, the end of the line.
    rules = {"title": "module"} | {n: n for n in ("stages", "dies", "memory", "step")}
    return HeaderSpans(
        **{n: r.line(tokens(by_rule[rule])[0]) for n, rule in rules.items() if rule in by_rule}
    )


# ---------------------------------------------------------------------------------------------------- header


def _title(r: Reading, node: Node) -> tuple[str, Level, tuple[tuple[str, int], ...]]:
    name, level, _ = tokens(node)
    axes: list[tuple[str, int]] = []
    for attr in nodes(node, "attr"):
        axis, size = r.scalar_attr(attr)
        if type(size) is not int:
            raise r.wrong(tokens(attr)[1], f"the size of axis `{axis}` is an integer")
        axes.append((axis, size))
    return r.word(name), r.choice(level, Level, "level", list(Level)), tuple(axes)


def _train(r: Reading, by_rule: dict[str, Node]) -> Train:
    return _record(
        r, Train, by_rule["train"],
        optimizer=_record(r, Optimizer, by_rule["optimizer"]),
        lr_schedule=_record(r, LrSchedule, by_rule["lr_schedule"]),
        stages=tuple(map(r.integer, tokens(by_rule["stages"])[:-1])) if "stages" in by_rule else (),
    )  # fmt: skip


def _record(r: Reading, kind: type[T], node: Node, **values: object) -> T:
    return r.record(kind, nodes(node, "attr"), tokens(node)[-1], **values)


def _wafer(r: Reading, tree: Node, by_rule: dict[str, Node]) -> Wafer:
    node = by_rule["wafer"]
    wafer = _record(
        r, Wafer, node, name=r.word(tokens(node)[0]),
        die=_record(r, Die, by_rule["die"]), link=_record(r, Link, by_rule["link"]),
        dead_dies=frozenset(), dead_links=frozenset(),
        torus=_record(r, Torus, by_rule["torus"]) if "torus" in by_rule else OPEN,
        joint=_joint(r, by_rule), hub=_record(r, Hub, by_rule["hub"]) if "hub" in by_rule else None,
        planes=r.integer(tokens(by_rule["planes"])[0]) if "planes" in by_rule else None,
        network=_network(r, by_rule),
    )  # fmt: skip
    for unlike in nodes(tree, "unlike"):
        row, col = map(r.integer, tokens(unlike)[:2])
        also = (*wafer.unlike, ((row, col), _record(r, Die, unlike)))
        wafer = r.at(tokens(unlike)[0], partial(replace, wafer, unlike=also))
    dies: set[Coordinate] = set()
    links: set[DeadLink] = set()
    # One by one, so that a mistake is marked where it stands.
    for dead in nodes(tree, "dead_die"):
        row, col = map(r.integer, tokens(dead)[:2])
        dies.add((row, col))
        r.at(tokens(dead)[0], partial(replace, wafer, dead_dies=frozenset({(row, col)})))
    for dead in nodes(tree, "dead_link"):
        links.add(link := _link(r, dead))
        r.at(tokens(dead)[0], partial(replace, wafer, dead_links=frozenset({link})))
    wafer = replace(wafer, dead_dies=frozenset(dies), dead_links=frozenset(links))
    # Which links are up at a die depends on the damage.
    circuits = _circuits(r, tree, by_rule)
    if circuits is None:
        return wafer
    return r.at(tokens(by_rule["circuits"])[-1], partial(replace, wafer, circuits=circuits))


def _link(r: Reading, node: Node) -> DeadLink:
    a, b, c, d = map(r.integer, tokens(node)[:4])
    return dead_link((a, b), (c, d))


def _circuits(r: Reading, tree: Node, by_rule: dict[str, Node]) -> Circuits | None:
    down = nodes(tree, "down_link")
    if "circuits" in by_rule:
        return _record(r, Circuits, by_rule["circuits"], down=frozenset(_link(r, n) for n in down))
    if down:
        raise r.wrong(tokens(down[0])[0], "links that are down are those of circuits, and there are none")
    return None


def _network(r: Reading, by_rule: dict[str, Node]) -> Network | None:
    if "network" not in by_rule:
        return None
    leaves = _record(r, Leaves, by_rule["leaves"]) if "leaves" in by_rule else None
    link = _record(r, Link, by_rule["uplink"])
    return _record(r, Network, by_rule["network"], link=link, leaves=leaves)


def _joint(r: Reading, by_rule: dict[str, Node]) -> Joint | None:
    if "joint" not in by_rule:
        if "ports" in by_rule:
            raise r.wrong(tokens(by_rule["ports"])[0], "ports are those of a joint, and there is none")
        return None
    node = by_rule["joint"]
    shape = [a for a in nodes(node, "attr") if r.attr(a)[0] in ("rows", "cols")]
    end = tokens(node)[-1]
    link = r.record(Link, [a for a in nodes(node, "attr") if a not in shape], end)
    ports = tuple(map(r.integer, tokens(by_rule["ports"])[:-1])) if "ports" in by_rule else ()
    return r.record(Joint, shape, end, link=link, ports=ports)


def _dies(r: Reading, node: Node | None) -> tuple[int, ...]:
    return r.per_die(tokens(node)[0]).values if node else ()


def _route(r: Reading, expected: int, node: Node) -> Route:
    number = tokens(node)[0]
    if r.integer(number) != expected:
        raise r.wrong(number, f"this is route {expected}: routes are numbered in order from 0")
    legs = tuple(
        Leg(tuple(map(r.integer, tokens(n))), _number(r, n, "channel", 0), _number(r, n, "share", 1))
        for n in nodes(node, "leg")
    )
    return Route(legs, _number(r, node, "merged", ALONE), r.line(number))


def _number(r: Reading, node: Node, word: str, default: int) -> int:
    """The number behind a word that may be left out."""
    return next((r.integer(tokens(n)[0]) for n in nodes(node, word)), default)


def _memory(r: Reading, node: Node | None, placements: list[Node]) -> Memory | None:
    if node is None:
        if placements:
            raise r.wrong(tokens(placements[0])[0], "a place needs a `memory` line before it")
        return None
    arrays = (_record(r, Placement, p, array=r.name(tokens(p)[0])) for p in placements)
    return _record(r, Memory, node, arrays=tuple(arrays))


def _array(r: Reading, node: Node) -> Array:
    name, type_, kind, end = tokens(node)
    kind = kind.update(value=_FORMER_KINDS.get(kind, kind))
    parts = {str(n.data): tokens(n) for n in nodes(node)}
    rates = next((r.record(Rates, nodes(n, "attr"), end) for n in nodes(node, "rates")), None)
    extents = tuple(map(r.integer, parts.get("extents", ())))
    storage = r.name(parts["storage"][0]) if "storage" in parts else ""
    stage = r.integer(parts["at"][0]) if "at" in parts else -1
    of, first = (r.name(parts["part"][0]), r.integer(parts["part"][1])) if "part" in parts else ("", 0)
    return Array(
        r.name(name), r.tensor_type(type_), r.choice(kind, Kind, "kind of array", list(Kind)), extents,
        _init(r, parts.get("init")), storage, stage, of, first, _relation(r, parts.get("relation")),
        rates, tuple(map(r.integer, parts.get("zigzag", ()))),
        tuple(map(r.integer, parts.get("unpadded", ()))), "handed" in parts,
        r.integer(parts["filler"][0]) if "filler" in parts else 0, r.span(name, end),
    )  # fmt: skip


def _relation(r: Reading, parts: list[Token] | None) -> Relation | None:
    return Relation(Role(parts[0].removesuffix("_of=")), r.name(parts[1])) if parts else None


def _init(r: Reading, parts: list[Token] | None) -> Init:
    if parts is None:
        return Init()
    std = r.read(parts[1], read_scalar) if len(parts) > 1 else 0.0
    if not isinstance(std, float):
        raise r.wrong(parts[1], f"`{parts[1]}` is not a number with a fraction")
    return Init(r.word(parts[0]), std)


# ------------------------------------------------------------------------------------------------------ step


def _step(r: Reading, node: Node, depth: int) -> Step:
    return tuple(_call(r, n) if n.data == "call" else _block(r, n, depth + 1) for n in nodes(node))


def _block(r: Reading, node: Node, depth: int) -> Loop | Stage:
    number, *_ = tokens(node)
    if node.data == "loop":
        return _loop(r, node, depth)
    if depth > 1:
        raise r.wrong(number, "a stage stands at the top of the step")
    return Stage(r.integer(number), _inner(r, node, depth), r.line(number))


def _inner(r: Reading, node: Node, depth: int) -> tuple[Call | Loop, ...]:
    return tuple(s for s in _step(r, node, depth) if not isinstance(s, Stage))


def _loop(r: Reading, node: Node, depth: int) -> Loop:
    variable, count, *_ = tokens(node)
    if depth > _MAX_LOOPS:
        raise r.wrong(variable, f"loops more than {_MAX_LOOPS} deep")
    return Loop(r.word(variable), r.integer(count), _inner(r, node, depth), r.line(variable))


def _call(r: Reading, node: Node) -> Call:
    name = tokens(node)[0]
    return Call(r.name(name), tuple(_ref(r, n) for n in nodes(node, "ref")), r.line(name))


def _ref(r: Reading, node: Node) -> Ref:
    return Ref(r.name(tokens(node)[0]), tuple(_index(r, n) for n in nodes(node)))


def _index(r: Reading, node: Node) -> Affine:
    if node.data != "wrapped":
        return _affine(r, node, 0)
    modulus = tokens(node)[0]
    if (size := r.integer(modulus)) < 1:
        raise r.wrong(modulus, "a modulus is at least 1")
    return _affine(r, nodes(node)[0], size)


def _affine(r: Reading, node: Node, modulus: int) -> Affine:
    base = 0
    terms: list[tuple[str, int]] = []
    for part in nodes(node):
        signed = part.data in ("plus", "minus")
        product, sign = (nodes(part)[0] if signed else part), (-1 if part.data == "minus" else 1)
        *scale, what = tokens(product)
        if what.type == "NUMBER":
            base += sign * r.integer(what)
        else:
            terms.append((r.word(what), sign * (r.integer(scale[0]) if scale else 1)))
    return Affine(base, tuple(terms), modulus)
