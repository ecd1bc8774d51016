"""A model and its blocks built in Python: statements in order, each a node of the syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from wscc.api.expressions import Expression, Operand, called, name, wrapped
from wscc.diagnostics import Code, fail
from wscc.frontend import ast

Init = str | Expression


def normal(deviation: Operand) -> Expression:
    """The initial value of a parameter: normally distributed around 0 with this standard deviation.
    Raises `CompileError` W005 for what is no number."""
    return called("normal", deviation)


class Body:
    """Statements of a model or of a block. Sizes are attributes: `m.d` is the parameter `d` of model `m`."""

    def __init__(self, word: str, sizes: tuple[ast.Parameter, ...]) -> None:
        self.name = name(word)
        self._parameters = sizes
        self._bodies: list[list[ast.Statement]] = [[]]
        self._blocks: dict[str, ast.Block] = {}

    def __getattr__(self, word: str) -> Expression:
        """A size, by its name. `AttributeError` if there is none, so that `hasattr` and copies work."""
        if word.startswith("_") or word not in {p.name.id for p in self._parameters}:
            raise AttributeError(f"`{self.__dict__.get('name', '')}` has no size `{word}`")
        return Expression(ast.Name(word))

    @property
    def batch(self) -> Expression:
        """Sequences of one micro-batch, as `batch` in the language."""
        return Expression(ast.Name("batch"))

    def param(
        self, word: str, dims: tuple[Operand, ...], init: Init = "zeros", *, decay: bool | None = None
    ) -> Expression:
        """A parameter `[dims]`; `init` is "zeros", "ones" or `normal(deviation)`. Inside `repeat` there is one for each
        turn. `decay` says whether the optimizer makes it smaller; None: as `Train(decay=...)` says.
        Raises `CompileError` W001 for a name that is none, W011 for another `init`."""
        kind = wrapped(init).node
        if isinstance(kind, ast.Call):
            start = ast.Init(kind.function, kind.args[0] if kind.args else None)
        elif isinstance(kind, ast.Name):
            start = ast.Init(kind)
        else:
            raise fail(Code.CHOICE, f"`{word}` starts as {init!r}", help="zeros, ones or normal(deviation)")
        shape = tuple(wrapped(d).node for d in _tuple(dims))
        switch = None if decay is None else ast.Name("on" if decay else "off")
        return self._add(ast.Param(ast.Name(name(word)), shape, start, switch), word)

    def let(self, word: str, value: Operand) -> Expression:
        """The value under a name; in a `repeat`, a name from before it carries its value from turn to turn.
        Raises `CompileError` W001 for a name that is none."""
        return self.parts(word, value)[0]

    def parts(self, names: str, value: Operand) -> tuple[Expression, ...]:
        """The parts of a value under names: `q, k, v = m.parts("q k v", nn.split(x))`. Raises as `let`."""
        words = [name(w) for w in names.replace(",", " ").split()]
        if not words:
            raise fail(Code.SYNTAX, "a value needs a name", help='write `m.let("x", value)`')
        expression = wrapped(value)
        self._use(expression)
        self._bodies[-1].append(ast.Assign(tuple(map(ast.Name, words)), expression.node))
        return tuple(Expression(ast.Name(w)) for w in words)

    def _add(self, statement: ast.Statement, word: str) -> Expression:
        self._bodies[-1].append(statement)
        return Expression(ast.Name(word))

    def _use(self, value: Expression) -> None:
        for block in value.blocks:
            if self._blocks.setdefault(block.name.id, block) != block:
                raise fail(
                    Code.DUPLICATE, f"two blocks are called `{block.name.id}`", help="rename one of them"
                )


class Model(Body):
    """A model: `Model("gpt", layers=4, d=64)` has these sizes, which overrides may change (`model.layers`).

    Raises `CompileError` W001 for a name, W005 for a size that is none.
    """

    def __init__(self, word: str, **sizes: Operand) -> None:
        super().__init__(word, _sizes(sizes))

    def input(self, word: str, *dims: Operand, dtype: str = "i32") -> Expression:
        """An input `[dims]` of "i32" or "f32", `batch` first: `m.input("tokens", m.batch, m.seq)`.
        Raises `CompileError` W001 for a name that is none."""
        shape = tuple(wrapped(d).node for d in dims)
        return self._add(ast.Input(ast.Name(name(word)), ast.Name(dtype), shape), word)

    @contextmanager
    def repeat(self, word: str, count: Operand) -> Iterator[None]:
        """Repeat the statements inside `count` times, with parameters of their own each time.
        Raises `CompileError` W103 inside another `repeat`."""
        if len(self._bodies) > 1:
            raise fail(Code.STRUCTURE, "`repeat` stands inside a `repeat`", help="put one behind the other")
        self._bodies.append([])
        try:
            yield
        finally:
            inner = self._bodies.pop()
        self._bodies[-1].append(ast.Repeat(wrapped(count).node, ast.Name(name(word)), ast.Body(tuple(inner))))

    def loss(self, value: Operand) -> None:
        """Set the scalar that training minimises: a `cross_entropy`."""
        expression = wrapped(value)
        self._use(expression)
        self._bodies[-1].append(ast.Loss(expression.node))

    def items(self) -> tuple[ast.Item, ...]:
        """The blocks that the model calls, and the model, in the order of a file."""
        model = ast.Model(ast.Name(self.name), self._parameters, ast.Body(tuple(self._bodies[0])))
        return (*self._blocks.values(), model)


class Block(Body):
    """A part of a model with parameters of its own at every call: `mlp = Block("mlp", "x", d=None, ffn=256)`.

    Tensors come first, by name, then sizes; a size of None has no default. `returns` ends it, and `mlp(x, m.d)` calls
    it. Raises as `Model` does.
    """

    def __init__(self, word: str, *tensors: str, **sizes: Operand | None) -> None:
        arguments = tuple(ast.Parameter(ast.Name(name(t))) for t in tensors)
        super().__init__(word, (*arguments, *_sizes(sizes)))

    def tensor(self, word: str) -> Expression:
        """The argument of this name. W001 for a name that is none."""
        return Expression(ast.Name(name(word)))

    def returns(self, *values: Operand) -> None:
        """End the block with these values."""
        expressions = [wrapped(v) for v in values]
        for v in expressions:
            self._use(v)
        self._bodies[-1].append(ast.Return(tuple(v.node for v in expressions)))

    def __call__(self, *args: Operand, **options: Operand) -> Expression:
        call = called(self.name, *args, **options)
        own = ast.Block(ast.Name(self.name), self._parameters, ast.Body(tuple(self._bodies[0])))
        return replace(call, blocks=(*call.blocks, *self._blocks.values(), own))


def _sizes(sizes: dict[str, Operand] | dict[str, Operand | None]) -> tuple[ast.Parameter, ...]:
    return tuple(
        ast.Parameter(ast.Name(name(word)), None if value is None else wrapped(value).node)
        for word, value in sizes.items()
    )


def _tuple(dims: object) -> tuple[Operand, ...]:
    return dims if isinstance(dims, tuple) else tuple(dims) if isinstance(dims, list) else (dims,)
