"""The reader of the parse tree of one procedure of a textual IR."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lark import Token

from wscc.diagnostics import Span
from wscc.ir.fabric import Buffer, FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Stream, Value
from wscc.ir.ops import RESHARDS
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.rule import Rule, parse_rule
from wscc.ir.text.reading import Node, Reading, Scalar, nodes, tokens
from wscc.ir.text.words import Misspelt, read_int, read_name
from wscc.ir.types import DType, Reduction, TensorType
from wscc.ir.views import View, contiguous_strides

_WINDOW: Final = re.compile(r'(%(?:[\w./]+|"(?:\\.|[^"\\])*"))(?:\+(-?\d+|<[^>]*>))?\[([^\]]*)\](?::(\w+))?')

_RESHARD_FIELDS: Final[dict[str, type]] = {
    "axis": str, "dim": int, "to": int, "reduction": str, "source": int, "target": int,
}  # fmt: skip


def read_procedure(r: Reading, node: Node) -> Procedure:
    """The procedure of the tree. Raises `CompileError` W601; values that are not defined are noted in `r`."""
    return _Body(r).procedure(node)


@dataclass(slots=True)
class _Body:
    """The names of one procedure: values by name, and the element types of buffers and arguments."""

    r: Reading
    values: dict[str, Value] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)

    def procedure(self, node: Node) -> Procedure:
        """The whole procedure: arguments, buffers, statements, in the order of the text."""
        inputs, outputs, *rest = nodes(node)
        arguments = tuple(self._argument(n) for n in nodes(inputs))
        for n in nodes(outputs):
            if types := [t for t in tokens(n) if t.type == "TYPE"]:
                self.dtypes[self.r.name(tokens(n)[0])] = self.r.tensor_type(types[0]).dtype
        buffers = tuple(self._buffer(n) for n in rest if n.data == "buffer")
        body = tuple(_STATEMENTS[str(n.data)](self, n) for n in rest if n.data != "buffer")
        name = self.r.name(tokens(node)[0])
        outs = tuple(self._output(n) for n in nodes(outputs))
        return Procedure(name, arguments, outs, body, buffers, self.r.line(tokens(node)[0]))

    def _argument(self, node: Node) -> Value:
        name, kind = tokens(node)
        value = Value(self.r.name(name), self.r.tensor_type(kind))
        self.values[value.name] = value
        self.dtypes[value.name] = value.type.dtype
        return value

    def _output(self, node: Node) -> Output:
        name, mode, *types = tokens(node)
        if types:
            return Output(Value(self.r.name(name), self.r.tensor_type(types[0])), Mode(mode))
        return Output(self._value(name), Mode(mode))

    def _value(self, token: Token) -> Value:
        name = self.r.name(token)
        if name not in self.values:
            self.r.note(token, f"`{token}` is not defined before this")
            self.values[name] = Value(name, TensorType((), DType.F32))
        return self.values[name]

    def _buffer(self, node: Node) -> Buffer:
        token, type_, _ = tokens(node)
        kind, name = self.r.tensor_type(type_), self.r.name(token)
        if len(kind.shape) != 1:
            raise self.r.wrong(type_, "a buffer has one dimension")
        self.dtypes[name] = kind.dtype
        values: dict[str, object] = {}
        field_types = {"address": int, "slot": bool}
        for attr in nodes(node):
            key, value = self.r.scalar_attr(attr)
            if type(value) is not field_types.get(key):
                message = "a buffer has an integer `address`, and a `slot` that is true or false"
                raise self.r.wrong(tokens(attr)[0], message)
            values[key] = value
        made = Buffer(name, kind.shape[0], kind.dtype, **values)  # type: ignore[arg-type]  # checked just above
        return replace(made, span=self.r.line(token))

    # -- ops --------------------------------------------------------------------------------------------

    def op(self, node: Node) -> GraphStmt:
        """An op or a reshard; defines its results."""
        r = self.r
        results, operands, *rest = nodes(node)
        kind, *more, end = tokens(node)
        types = [t for t in more if t.type == "TYPE"]
        names = tokens(results)
        if len(types) != len(names):
            raise r.wrong(kind, f"`{kind}` has {len(names)} results and {len(types)} types")
        parts = {str(n.data): n for n in rest}
        reads = tuple(self._value(t) for t in tokens(operands))
        writes = tuple(Value(r.name(n), r.tensor_type(t)) for n, t in zip(names, types, strict=True))
        self.values.update((v.name, v) for v in writes)
        rules = [self._rule(t) for t in more if t.type == "RULE"]
        attrs = tuple(r.scalar_attr(n) for n in rest if n.data == "attr")
        if r.word(kind) in RESHARDS:
            if rules or parts.keys() - {"attr"}:
                raise r.wrong(kind, "a reshard has no rule, no stream and no origin")
            return self._reshard(kind, reads, writes, attrs, r.span(names[0], end))
        if not rules:
            raise r.wrong(kind, f"`{kind}` has no index rule")
        return Op(
            r.word(kind), reads, writes, rules[0], attrs,
            self._stream(parts["stream"]) if "stream" in parts else None,
            r.word(tokens(parts["origin"])[0]) if "origin" in parts else "",
            r.span(names[0], end),
        )  # fmt: skip

    def _reshard(
        self,
        kind: Token,
        reads: tuple[Value, ...],
        writes: tuple[Value, ...],
        attrs: tuple[tuple[str, Scalar], ...],
        span: Span,
    ) -> Reshard:
        if len(reads) != 1 or len(writes) != 1:
            raise self.r.wrong(kind, "a reshard takes one operand and gives one result")
        field_types = {name: _RESHARD_FIELDS[name] for name in ("axis", *RESHARDS[self.r.word(kind)])}
        if [(name, type(value)) for name, value in attrs] != list(field_types.items()):
            fields = ", ".join(f"`{name}` ({t.__name__})" for name, t in field_types.items())
            raise self.r.wrong(kind, f"the attributes of `{kind}` are {fields}")
        values: dict[str, Any] = dict(attrs)
        if "reduction" in values:
            if values["reduction"] not in list(Reduction):
                raise self.r.wrong(kind, f"`{values['reduction']}` is no reduction: {', '.join(Reduction)}")
            values["reduction"] = Reduction(values["reduction"])
        return Reshard(self.r.word(kind), operand=reads[0], result=writes[0], span=span, **values)

    def _rule(self, token: Token) -> Rule:
        text = str(token)[1:-1]
        if text not in self.rules:
            try:
                self.rules[text] = parse_rule(text)
            except ValueError as mistake:
                raise self.r.wrong(token, str(mistake)) from None
        return self.rules[text]

    def _stream(self, node: Node) -> Stream:
        factor, axis = map(self.r.word, tokens(node))
        moving = {str(n.data): tuple(map(self.r.integer, tokens(n))) for n in nodes(node)}
        return Stream(axis, factor, moving.get("moving_in", ()), moving.get("moving_out", ()))

    # -- the fabric level -------------------------------------------------------------------------------

    def kernel(self, node: Node) -> Kernel:
        """`gemm %y[4,8] <- %x[4,2], %w[2,8] ...`."""
        r = self.r
        opcode, *_, end = tokens(node)
        parts = {str(n.data): n for n in nodes(node) if n.data != "attr"}
        writes, reads = (
            tuple(map(self._view, tokens(parts[side]))) if side in parts else ()
            for side in ("writes", "reads")
        )
        attrs = tuple(r.attr(n) for n in nodes(node, "attr"))
        return Kernel(
            r.word(opcode), writes, reads, attrs, self._where(parts), self._source(parts), r.span(opcode, end)
        )

    def transfer(self, node: Node) -> Transfer:
        """`transfer 0 %x[4] -> %y[4] to <1,0> ...`."""
        r = self.r
        channel, read, write, *_ = tokens(node)
        parts = {str(n.data): n for n in nodes(node)}
        return Transfer(
            r.integer(channel),
            r.ints(tokens(parts["to"])[0]),
            self._view(read),
            self._view(write),
            r.word(tokens(parts["group"])[0]) if "group" in parts else "",
            r.word(tokens(parts["content"])[0]) if "content" in parts else "",
            r.integer(tokens(parts["phase"])[0]) if "phase" in parts else -1,
            r.ints(tokens(parts["route_of"])[0]) if "route_of" in parts else NOBODY,
            "one_hop" in parts,
            self._source(parts),
            r.line(channel),
        )

    def post(self, node: Node) -> Post:
        """`post 0 %y[4] from <1,0>`."""
        channel, write, _ = tokens(node)
        sender = self.r.ints(tokens(nodes(node)[0])[0])
        return Post(self.r.integer(channel), sender, self._view(write), self.r.line(channel))

    def send(self, node: Node) -> Send:
        """`send 0 %x[4] to <1,0> route <0,1>`."""
        channel, read, _ = tokens(node)
        parts = {str(n.data): n for n in nodes(node)}
        to, route = (self.r.ints(tokens(parts[name])[0]) for name in ("to", "route_of"))
        number, view = self.r.integer(channel), self._view(read)
        return Send(number, to, view, route, self._source(parts), self.r.line(channel))

    def wait(self, node: Node) -> Wait:
        """`wait received 0`."""
        side, channel, _ = tokens(node)
        where = self._where({str(n.data): n for n in nodes(node)})
        return Wait(self.r.integer(channel), side == "sent", where, self.r.line(channel))

    def _where(self, parts: dict[str, Node]) -> Ints:
        return self.r.ints(tokens(parts["where"])[0]) if "where" in parts else 1

    def _source(self, parts: dict[str, Node]) -> str:
        return self.r.name(tokens(parts["of"])[0]) if "of" in parts else ""

    def _view(self, token: Token) -> View:
        if token not in self.views:
            self.views[str(token)] = self._window(token)
        return self.views[token]

    def _window(self, token: Token) -> View:
        window = _WINDOW.fullmatch(token)
        assert window is not None, "the grammar's VIEW is this pattern"
        buffer, offset, inside, dtype = window.groups()
        name = self.r.read(token, lambda _: read_name(buffer))
        if not dtype and name not in self.dtypes:
            raise self.r.wrong(token, f"`{buffer}` is no buffer or argument of this procedure")
        shape, strides = self.r.read(token, lambda _: _dimensions(inside))
        start = self.r.ints(token.update(value=offset)) if offset else 0
        return View(name, start, shape, strides, DType(dtype) if dtype else self.dtypes[name])


def _dimensions(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of a view, spelled `8,64` or `8:64,64:1`."""
    parts = [p.strip().split(":") for p in text.split(",")] if text.strip() else []
    shape = tuple(read_int(p[0].strip()) for p in parts)
    lengths = {len(p) for p in parts}
    if lengths <= {1}:
        return shape, contiguous_strides(shape)
    if lengths != {2}:
        raise Misspelt("either each dimension has a stride, `size:stride`, or none has")
    return shape, tuple(read_int(p[1].strip()) for p in parts)


_STATEMENTS: Final[dict[str, Callable[[_Body, Node], GraphStmt | FabricStmt]]] = {
    "op": _Body.op,
    "kernel": _Body.kernel,
    "transfer": _Body.transfer,
    "post": _Body.post,
    "send": _Body.send,
    "wait": _Body.wait,
}
