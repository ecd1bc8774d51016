"""Translation of expressions to ops: operators, built-in calls and calls of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from wscc.diagnostics import Code, CompileError, Label, Span, fail
from wscc.frontend import ast
from wscc.frontend.builtins import BUILTINS, EDGES, FLAGS, INTEGERS
from wscc.frontend.evaluate import integer, number
from wscc.frontend.fmt import expression
from wscc.frontend.shape_errors import Operand, shape_error
from wscc.ir import construct as nn
from wscc.ir import experts as moe
from wscc.ir import graphs
from wscc.ir.builder import Builder, ShapeMismatch
from wscc.ir.op import Value

# The constructors of operations that take tensors alone and give one.
_PLAIN: Final[Mapping[str, Callable[..., Value]]] = {
    "embedding": nn.embedding, "project": nn.project, "mean": nn.mean, "concat": nn.concat, "first": nn.first,
    "weigh": nn.weigh,
}  # fmt: skip
_BESIDE_A_TENSOR: Final = "a number may only be added to, taken from, multiply or divide a tensor"
# The number that an operation belongs to, and a usual one.
_NUMBERS: Final = {"dropout": ("rate", "0.1"), "soft_cap": ("cap", "30")}


class Frame(Protocol):
    """The environment in which the expressions of one segment are built."""

    builder: Builder

    def tensor(self, name: ast.Name) -> Value | None:
        """The value that the name stands for, in the type of computation; None if it is not a tensor."""

    def lists_edges(self, value: Value) -> bool:
        """Whether a value is the edges of a graph."""

    def count(self) -> Value:
        """The number of valid labels of the whole batch."""

    def draw(self) -> tuple[Value, int]:
        """The keys [batch] of random draws of this call, and the number of the draw."""

    def count_tokens(self, chosen: Value, dropped: Value) -> None:
        """Add to the statistics of a step, of each expert the tokens that chose it and those that it dropped."""

    @property
    def sequences(self) -> int:
        """The number of sequences of the whole batch."""


class Scope:
    """Names of one block call, or of the segment itself: local values, then `outer` (a frame) for the rest."""

    def __init__(self, frame: Frame, blocks: Mapping[str, ast.Block], sizes: Mapping[str, int]) -> None:
        self.frame = frame
        self.blocks = blocks
        self.sizes = dict(sizes)
        self.values: dict[str, Value] = {}
        self.declare: Callable[[ast.Param, Mapping[str, int], str], Value] | None = None
        self.prefix = ""
        # Operands of the expression being built, as they are written, for messages about them.
        self._operands: list[Operand] = []

    def tensor(self, name: ast.Name) -> Value | None:
        """The value that the name stands for here; None if it is not a tensor."""
        if name.id in self.values:
            return self.values[name.id]
        return None if self.prefix else self.frame.tensor(name)

    # -- statements -------------------------------------------------------------------------------------

    def assign(self, s: ast.Assign) -> None:
        """Bind the targets to the results of the expression. Raises as `evaluate`."""
        results = self.evaluate(s.value, len(s.targets), [t.id for t in s.targets])
        self.values.update(zip((t.id for t in s.targets), results, strict=True))

    # -- expressions ------------------------------------------------------------------------------------

    def evaluate(self, e: ast.Expr, results: int = 1, hints: Sequence[str] = ()) -> tuple[Value, ...]:
        """The values of an expression; shape mistakes become W101 at the expression's place."""
        outer_operands, self._operands = self._operands, []
        try:
            return self._evaluate(e, results, hints)
        except ShapeMismatch as problem:
            raise shape_error(problem, e, self._operands) from None
        finally:
            self._operands = outer_operands

    def one(self, e: ast.Expr) -> Value:
        """The one value of an operand."""
        value = self.evaluate(e)[0]
        self._operands.append((e, value))
        return value

    def floats(self, e: ast.Expr, call: str = "embedding(ids, table)") -> Value:
        """The operand of an op that computes with it. Raises W101 for integers."""
        value = self.one(e)
        if not value.type.dtype.is_float:
            raise fail(
                Code.SHAPE,
                f"`{expression(e)}` holds integers: only `embedding`, the labels of `cross_entropy` and the slots of "
                "`dispatch` and `combine` are such",
                e.span,
                help=f"write `{call}`",
            )
        return value

    def integers(self, e: ast.Expr, call: str) -> Value:
        """The ids of `embedding` or the labels of `cross_entropy`. Raises W101 for floats."""
        value = self.one(e)
        if value.type.dtype.is_float:
            raise fail(
                Code.SHAPE, f"`{expression(e)}` holds {value.type.dtype}, and integers are wanted here", e.span,
                help=f"write `{call}`",
            )  # fmt: skip
        return value

    def _evaluate(self, e: ast.Expr, results: int, hints: Sequence[str]) -> tuple[Value, ...]:
        b = self.frame.builder
        match e:
            case ast.Name():
                value = self.tensor(e)
                if value is None:
                    raise fail(Code.SHAPE, f"`{e.id}` is a size, not a tensor", e.span)
                return (value,)
            case ast.Number():
                raise fail(
                    Code.SHAPE, f"`{e.text}` stands where a tensor is needed", e.span,
                    help=_BESIDE_A_TENSOR,
                )  # fmt: skip
            case ast.Negative():
                return (nn.scale(b, self.floats(e.operand), -1.0, span=e.span),)
            case ast.Binary():
                return (self._binary(e, hints),)
            case ast.Call():
                if e.function.id in self.blocks:
                    return self._block(e, self.blocks[e.function.id])
                return self._builtin(e, results, hints)

    def _binary(self, e: ast.Binary, hints: Sequence[str]) -> Value:
        b = self.frame.builder
        if e.op == "@":
            if _is_transpose(e.right):
                assert isinstance(e.right, ast.Call)
                return nn.matmul(
                    b, self.floats(e.left), self.floats(e.right.args[0]), transposed=True, span=e.span
                )
            return nn.matmul(b, self.floats(e.left), self.floats(e.right), span=e.span)
        left, right = self._factor(e.left), self._factor(e.right)
        if left is not None or right is not None:
            return self._scaled(e, left, right)
        kind = {"+": "add", "-": "sub", "*": "mul", "/": "div"}[e.op]
        return nn.binary(
            b, kind, self.floats(e.left), self.floats(e.right), hint=hints[0] if hints else "", span=e.span
        )

    def _factor(self, e: ast.Expr) -> float | None:
        """The value of an expression of sizes and literals; None if it reads a tensor."""
        if not _is_numeric(e, self._is_tensor):
            return None
        return float(number(e, self.sizes))

    def _is_tensor(self, name: ast.Name) -> bool:
        return name.id not in self.sizes and self.tensor(name) is not None

    def _scaled(self, e: ast.Binary, left: float | None, right: float | None) -> Value:
        b = self.frame.builder
        if e.op == "*" and left is not None and right is None:
            return nn.scale(b, self.floats(e.right), left, span=e.span)
        if e.op in "*/" and right is not None and left is None:
            if e.op == "/" and right == 0:
                raise fail(Code.NUMBER, f"`{expression(e)}` divides by zero", e.span)
            return nn.scale(b, self.floats(e.left), right if e.op == "*" else 1 / right, span=e.span)
        if e.op in "+-" and (left is None) != (right is None):
            return self._moved(e, left, right)
        raise fail(
            Code.SHAPE, f"`{expression(e)}` joins a number and a tensor with `{e.op}`", e.span,
            help=_BESIDE_A_TENSOR,
        )  # fmt: skip

    def _moved(self, e: ast.Binary, left: float | None, right: float | None) -> Value:
        """A tensor plus or minus a number, or a number plus or minus a tensor."""
        b, kind = self.frame.builder, "add" if e.op == "+" else "sub"
        x = self.floats(e.left if left is None else e.right)
        n = nn.number(b, left if right is None else right, x.type.dtype, span=e.span)  # type: ignore[arg-type]
        return nn.binary(b, kind, *((x, n) if left is None else (n, x)), span=e.span)

    # -- calls ------------------------------------------------------------------------------------------

    def _builtin(self, e: ast.Call, results: int, hints: Sequence[str]) -> tuple[Value, ...]:
        b, name, span = self.frame.builder, e.function.id, e.span
        options = {k.name.id: float(number(k.value, self.sizes)) for k in e.keywords}
        flags = {a.id for a in e.args if isinstance(a, ast.Name) and a.id in FLAGS}
        operands = [a for a in e.args if not (isinstance(a, ast.Name) and a.id in FLAGS)]
        if name in INTEGERS:
            call = str(BUILTINS[name])
            readers = [self.integers if i == INTEGERS[name] else self.floats for i in range(len(operands))]
            args = [read(a, call) for read, a in zip(readers, operands, strict=True)]
            self._require_edges(name, operands[INTEGERS[name]], args[INTEGERS[name]])
        else:
            args = [self.floats(a) for a in operands]
        if name in _PLAIN:
            return (_PLAIN[name](b, *args, span=span),)
        match name:
            case "layernorm" | "rmsnorm":
                return (nn.norm(b, name, *args, eps=options.get("eps", 1e-5), span=span),)
            case "split":
                return nn.split(b, args[0], results, hints=hints, span=span)
            case "attention":
                return (self._attention(args, options, flags, span),)
            case "dropout" | "soft_cap":
                return (self._by_number(name, args[0], options, span),)
            case "rope":
                return (nn.rope(b, args[0], interleaved="interleaved" in flags, **options, span=span),)
            case "spmm" | "edge_attention" | "edge_max" | "edge_sum":
                return (self._of_graphs(name, args, options, flags, span),)
            case "router" | "route" | "dispatch" | "experts" | "combine" | "balance" | "z_loss":
                return self._of_experts(name, args, options, flags, span)
            case "cross_entropy":
                return (self._cross_entropy(args, operands[1], options, span),)
            case "transpose":
                raise fail(
                    Code.SHAPE, "`transpose` is a view: it stands to the right of `@`", span,
                    help="write `x @ transpose(w)`",
                )  # fmt: skip
            case _:
                own = BUILTINS[name]
                attrs = {**own.defaults, **options}
                return (nn.elementwise(b, name, *args, attrs=attrs, rows=own.rows, span=span),)

    def _cross_entropy(
        self, args: list[Value], second: ast.Expr, options: Mapping[str, float], span: Span
    ) -> Value:
        logits, labels, *weights = args
        if labels is not self.frame.tensor(ast.Name("labels", span=second.span)):
            raise fail(
                Code.STRUCTURE,
                f"`{expression(second)}` is not the input `labels`, whose valid entries the loss counts", second.span,
                help="give the input `labels`",
            )  # fmt: skip
        return nn.cross_entropy(
            self.frame.builder, logits, labels, self.frame.count(), weights=next(iter(weights), None),
            smoothing=options.get("smoothing", 0.0), z_loss=options.get("z_loss", 0.0), span=span,
        )  # fmt: skip

    def _attention(
        self, args: list[Value], options: Mapping[str, float], flags: set[str], span: Span
    ) -> Value:
        q, k, v = args
        return nn.attention(
            self.frame.builder, q, k, v, causal="causal" in flags, alibi="alibi" in flags,
            window=options.get("window", 0.0), cap=options.get("cap", 0.0), span=span,
        )  # fmt: skip

    def _by_number(self, name: str, x: Value, options: Mapping[str, float], span: Span) -> Value:
        """The ops that a number belongs to."""
        option, usual = _NUMBERS[name]
        if option not in options:
            example = f"{name}(x, {option} = {usual})"
            raise fail(Code.ARGUMENTS, f"`{name}` has no `{option}`", span, help=f"write `{example}`")
        if name == "soft_cap":
            return nn.soft_cap(self.frame.builder, x, cap=options["cap"], span=span)
        keys, salt = self.frame.draw()
        return nn.dropout(self.frame.builder, x, keys, salt=salt, rate=options["rate"], span=span)

    def _require_edges(self, name: str, e: ast.Expr, value: Value) -> None:
        """Raise W101 unless ops that take the edges of a graph, and they alone, have some as their integers."""
        takes = BUILTINS[name].args[0] == EDGES
        if takes == self.frame.lists_edges(value):
            return
        wanted = "edges are wanted here" if takes else "only ops of graphs take edges"
        raise fail(
            Code.SHAPE, f"`{expression(e)}` is {value.type}, and {wanted}", e.span,
            help="declare `input adjacency : edges[count]`, and call `spmm(adjacency, x)`",
        )  # fmt: skip

    def _of_graphs(
        self, name: str, args: list[Value], options: Mapping[str, float], flags: set[str], span: Span
    ) -> Value:
        """The ops of graph networks."""
        b = self.frame.builder
        match name:
            case "spmm":
                return graphs.spmm(b, *args, weights=next(iter(flags), "sum"), span=span)
            case "edge_max":
                return graphs.edge_max(b, *args, span=span)
            case "edge_sum":
                return graphs.edge_sum(b, *args, span=span)
            case _:
                return graphs.edge_attention(b, *args, slope=options.get("slope", 0.2), span=span)

    def _of_experts(
        self, name: str, args: list[Value], options: Mapping[str, float], flags: set[str], span: Span
    ) -> tuple[Value, ...]:
        """The ops of a mixture of experts."""
        b, sequences = self.frame.builder, self.frame.sequences
        first, *others = args
        match name:
            case "router":
                return (moe.router(b, first, *others, span=span),)
            case "experts":
                return (moe.experts(b, first, *others, span=span),)
            case "dispatch":
                return (moe.dispatch(b, first, *others, span=span),)
            case "combine":
                return (moe.combine(b, first, *others, span=span),)
            case "route":
                gates, slots, *counts = moe.route(
                    b, first, renormalise="renormalise" in flags, span=span, **options
                )
                self.frame.count_tokens(*counts)
                return gates, slots
            case "balance":
                return (moe.balance(b, first, sequences=sequences, span=span, **options),)
            case _:
                return (moe.z_loss(b, first, sequences=sequences, span=span),)

    def _block(self, e: ast.Call, block: ast.Block) -> tuple[Value, ...]:
        """The block's body in place of the call, with parameters of its own under the block's name."""
        inner = Scope(self.frame, self.blocks, {"batch": self.sizes["batch"]})
        inner.declare = self.declare
        inner.prefix = self._unique_prefix(block.name.id)
        keywords = {k.name.id: k.value for k in e.keywords}
        positional = dict(zip((p.name.id for p in block.parameters), e.args, strict=False))
        for p in block.parameters:
            argument = {**positional, **keywords}.get(p.name.id)
            if argument is None:
                assert p.default is not None
                inner.sizes[p.name.id] = integer(p.default, inner.sizes)
            elif _is_numeric(argument, self._is_tensor):
                inner.sizes[p.name.id] = integer(argument, self.sizes)
            else:
                inner.values[p.name.id] = self.one(argument)
        try:
            return _body(inner, block)
        except CompileError as error:
            call = Label(e.span, "in this call")
            raise CompileError(*(replace(d, others=(*d.others, call)) for d in error.diagnostics)) from None

    def _unique_prefix(self, name: str) -> str:
        unique = self.frame.builder.fresh(f"{self.prefix}{name}")
        return f"{unique}."


def _body(scope: Scope, block: ast.Block) -> tuple[Value, ...]:
    """The values that the block returns; `scope` holds its arguments."""
    returned: tuple[Value, ...] = ()
    for s in block.body.lines:
        match s:
            case ast.Param():
                assert scope.declare is not None
                scope.values[s.name.id] = scope.declare(s, scope.sizes, scope.prefix)
            case ast.Assign():
                scope.assign(s)
            case ast.Return():
                returned = tuple(scope.one(v) for v in s.values)
            case _:
                pass
    return returned


def _is_transpose(e: ast.Expr) -> bool:
    return isinstance(e, ast.Call) and e.function.id == "transpose" and len(e.args) == 1


def _is_numeric(e: ast.Expr, is_tensor: Callable[[ast.Name], bool]) -> bool:
    """Whether the expression holds sizes and literals only."""
    match e:
        case ast.Number():
            return True
        case ast.Name():
            return not is_tensor(e)
        case ast.Negative():
            return _is_numeric(e.operand, is_tensor)
        case ast.Binary():
            return e.op != "@" and _is_numeric(e.left, is_tensor) and _is_numeric(e.right, is_tensor)
        case ast.Call():
            return False
