"""The check of names, calls and structure of models and blocks, before any shape is computed.

Models and blocks that pass it have only defined names, the right numbers of arguments and results, and every
statement where it belongs, so that elaboration need not check again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wscc.diagnostics import Code, Span
from wscc.frontend import ast
from wscc.frontend.builtins import BUILTINS, FLAGS, INITS, INPUT_DTYPES, SWITCH
from wscc.frontend.report import Report, hint

BATCH: Final = "batch"  # a size that every model and block knows: sequences in one call


@dataclass(slots=True)
class _Scope:
    """The names visible at one point: sizes, values that can be assigned again, and names that cannot."""

    sizes: set[str]
    fixed: dict[str, Span] = field(default_factory=dict)  # parameters of the model, inputs
    values: set[str] = field(default_factory=set)

    def inner(self) -> _Scope:
        return _Scope(self.sizes, dict(self.fixed), set(self.values))

    def defines(self, name: str) -> bool:
        return name in self.sizes or name in self.fixed or name in self.values

    @property
    def names(self) -> set[str]:
        return self.sizes | self.fixed.keys() | self.values


class NameCheck:
    """The check of one file's models and blocks; mistakes go to the report."""

    def __init__(self, blocks: Mapping[str, ast.Block], report: Report) -> None:
        self.blocks = blocks
        self.report = report

    def model(self, model: ast.Model) -> None:
        """Note mistakes of a model: W007, W008, W011, W102, W103."""
        self._parameters(model.parameters, tensors=False)
        scope = _Scope({BATCH, *(p.name.id for p in model.parameters)})
        self._body(model.body, scope, model)
        losses = [s for s in model.body.lines if isinstance(s, ast.Loss)]
        self.report.unique(((("loss"), s.span) for s in losses), "the")
        if not losses:
            help = "end it with `loss cross_entropy(logits, labels)`"
            self.report.add(
                Code.STRUCTURE, f"model `{model.name.id}` has no `loss`", model.name.span, "", help
            )
        elif model.body.lines[-1] is not losses[-1]:
            follower = model.body.lines[model.body.lines.index(losses[-1]) + 1]
            self._misplaced(follower, "nothing may follow `loss`", "move it up")

    def block(self, block: ast.Block) -> None:
        """Note mistakes of a block, as of a model."""
        self._parameters(block.parameters, tensors=True)
        names = {p.name.id for p in block.parameters}
        # An argument may be a size or a tensor; only its use tells.
        self._body(block.body, _Scope({BATCH, *names}, values=set(names)), block)
        returns = [s for s in block.body.lines if isinstance(s, ast.Return)]
        if not returns:
            help = "end it with `return x`"
            self.report.add(
                Code.STRUCTURE, f"block `{block.name.id}` returns nothing", block.name.span, "", help
            )
        elif block.body.lines[-1] is not returns[0]:
            self._misplaced(returns[0], "`return` ends a block", "write it once, as the last statement")

    def _parameters(self, parameters: tuple[ast.Parameter, ...], *, tensors: bool) -> None:
        self.report.unique(((p.name.id, p.name.span) for p in parameters), "parameter")
        earlier: set[str] = {BATCH}
        for p in parameters:
            if p.name.id == BATCH:
                self.report.add(
                    Code.DUPLICATE, "`batch` is the batch size everywhere", p.name.span, "", "rename it"
                )
            if p.default is not None:
                self._expr(
                    p.default, _Scope(earlier) if not tensors else _Scope(earlier, values=set(earlier))
                )
            earlier.add(p.name.id)

    # ---- statements

    def _body(
        self, body: ast.Body[ast.Statement], scope: _Scope, owner: ast.Model | ast.Block | ast.Repeat
    ) -> None:
        for statement in body.lines:
            self._statement(statement, scope, owner)

    def _statement(self, s: ast.Statement, scope: _Scope, owner: ast.Model | ast.Block | ast.Repeat) -> None:
        in_model = isinstance(owner, ast.Model)
        match s:
            case ast.Input():
                if not in_model:
                    self._misplaced(s, "`input` stands in a model, outside `repeat`", "move it there")
                self._choice(s.dtype, INPUT_DTYPES, "element type of an input")
                self._sizes(s.dims, scope)
                self._declare(s.name, scope)
            case ast.Param():
                self._sizes(s.dims, scope)
                self._init(s, scope)
                self._declare(s.name, scope)
            case ast.Assign():
                self._assign(s, scope)
            case ast.Repeat():
                if not in_model:
                    self._misplaced(
                        s, "`repeat` stands in a model, outside other `repeat`s", "write its body once"
                    )
                self._sizes((s.count,), scope)
                self._declare(s.name, scope, tensor=False)
                self._body(s.body, scope.inner(), s)
            case ast.Loss():
                if isinstance(owner, ast.Block):
                    self._misplaced(s, "`loss` stands in a model or a `repeat`", "return what it adds")
                self._expr(s.value, scope)
            case ast.Return():
                if not isinstance(owner, ast.Block):
                    self._misplaced(s, "`return` stands in a block", "a model ends with `loss`")
                for value in s.values:
                    self._expr(value, scope)

    def _assign(self, s: ast.Assign, scope: _Scope) -> None:
        self._expr(s.value, scope, results=len(s.targets))
        self.report.unique(((t.id, t.span) for t in s.targets), "result")
        for target in s.targets:
            if target.id in scope.fixed:
                message = f"`{target.id}` cannot be given a new value"
                self.report.add(
                    Code.STRUCTURE, message, target.span, "", "choose another name", scope.fixed[target.id]
                )
            elif target.id in scope.sizes - scope.values or target.id in FLAGS:
                message = f"`{target.id}` is {'a flag' if target.id in FLAGS else 'a size'}, not a tensor"
                self.report.add(Code.STRUCTURE, message, target.span, "", "choose another name")
            scope.values.add(target.id)

    def _declare(self, name: ast.Name, scope: _Scope, *, tensor: bool = True) -> None:
        """Declare a name that is not assigned again where it is visible: in the model or block, or in one `repeat`."""
        if name.id in scope.fixed:
            message = f"`{name.id}` is declared twice"
            self.report.add(Code.DUPLICATE, message, name.span, "again", "rename one", scope.fixed[name.id])
        elif tensor and (scope.defines(name.id) or name.id in FLAGS):
            message = f"`{name.id}` has a meaning already"
            self.report.add(Code.DUPLICATE, message, name.span, "", "choose another name")
        scope.fixed.setdefault(name.id, name.span)

    def _init(self, s: ast.Param, scope: _Scope) -> None:
        """Note mistakes of what is said behind the dimensions of a parameter."""
        init = s.init
        if s.decay is not None:
            self._choice(s.decay, SWITCH, "value of `decay`")
        self._choice(init.kind, INITS, "initialisation")
        arguments = INITS.get(init.kind.id)
        if arguments is not None and arguments != (init.argument is not None):
            help = (
                "write `init normal(0.02)`, the standard deviation"
                if arguments
                else f"write `init {init.kind.id}`"
            )
            message = f"`{init.kind.id}` takes {'one argument' if arguments else 'no argument'}"
            self.report.add(Code.ARGUMENTS, message, init.span, "", help)
        if init.argument is not None:
            self._sizes((init.argument,), scope)

    def _misplaced(self, s: ast.Statement, message: str, help: str) -> None:
        self.report.add(Code.STRUCTURE, message, s.span, "not here", help)

    def _choice(self, name: ast.Name, choices: Iterable[str], what: str) -> None:
        if name.id not in choices:
            self.report.add(Code.CHOICE, f"unknown {what} `{name.id}`", name.span, "", hint(name.id, choices))

    # ---- expressions

    def _sizes(self, exprs: Iterable[ast.Expr], scope: _Scope) -> None:
        for e in exprs:
            self._expr(e, _Scope(scope.sizes))

    def _expr(self, e: ast.Expr, scope: _Scope, results: int = 1) -> None:
        """Note mistakes of an expression whose value is assigned to `results` names."""
        match e:
            case ast.Name():
                if not scope.defines(e.id):
                    self.report.add(
                        Code.UNKNOWN_NAME, f"unknown name `{e.id}`", e.span, "", self._name_hint(e, scope)
                    )
            case ast.Negative():
                self._expr(e.operand, scope)
            case ast.Binary():
                self._expr(e.left, scope)
                self._expr(e.right, scope)
            case ast.Call():
                self._call(e, scope, results)
                return
            case ast.Number():
                pass
        if results != 1:
            self.report.add(
                Code.ARGUMENTS, f"one value for {results} names", e.span, "", "call `split` or a block"
            )

    def _name_hint(self, e: ast.Name, scope: _Scope) -> str:
        if e.id in BUILTINS or e.id in self.blocks:
            return f"`{e.id}` is called with arguments: `{e.id}(...)`"
        if not scope.fixed and not scope.values:
            return hint(e.id, scope.names, "sizes come from the parameters in parentheses")
        return hint(e.id, scope.names, "define it above; names made in a `repeat` end with it")

    def _call(self, call: ast.Call, scope: _Scope, results: int) -> None:
        name = call.function.id
        self.report.unique(((k.name.id, k.name.span) for k in call.keywords), "argument")
        if name in self.blocks:
            self._block_call(call, self.blocks[name], results)
        elif name in BUILTINS:
            self._builtin_call(call, results)
        else:
            help = hint(name, BUILTINS.keys() | self.blocks.keys())
            self.report.add(Code.UNKNOWN_NAME, f"unknown operation `{name}`", call.function.span, "", help)
        for arg in call.args:
            if not (isinstance(arg, ast.Name) and arg.id in FLAGS and name in BUILTINS):
                self._expr(arg, scope)
        for keyword in call.keywords:
            self._expr(keyword.value, scope)

    def _builtin_call(self, call: ast.Call, results: int) -> None:
        builtin = BUILTINS[call.function.id]
        flags = [a for a in call.args if isinstance(a, ast.Name) and a.id in FLAGS]
        misused = [f for f in flags if f.id not in builtin.flags]
        ordered = call.args[len(call.args) - len(flags) :] == tuple(flags)
        count = len(call.args) - len(flags)
        least, most = len(builtin.args), len(builtin.args) + len(builtin.more)
        if not least <= count <= most or misused or not ordered or len(set(flags)) != len(flags):
            many = f" or {most}" * (most > least)
            message = f"`{builtin.name}` takes {_count(least, 'tensor')}{many}, not {count}"
            if misused:
                message = f"`{builtin.name}` has no flag `{misused[0].id}`"
            elif least <= count <= most:
                message = f"the flags of `{builtin.name}` come last, each once"
            self.report.add(Code.ARGUMENTS, message, call.span, "", f"write {builtin}")
        self._keywords(call, builtin.options, str(builtin))
        if builtin.results is not None and results != builtin.results:
            message = f"`{builtin.name}` gives one result, not {results}"
            self.report.add(Code.ARGUMENTS, message, call.span, "", "`split` gives several")

    def _block_call(self, call: ast.Call, block: ast.Block, results: int) -> None:
        names = [p.name.id for p in block.parameters]
        usage = f"{block.name.id}({', '.join(names)})"
        if len(call.args) > len(names):
            message = f"`{block.name.id}` takes {_count(len(names), 'argument')}, not {len(call.args)}"
            self.report.add(Code.ARGUMENTS, message, call.span, "", f"write {usage}", block.name.span)
        self._keywords(call, names[len(call.args) :], usage)
        bound = {*names[: len(call.args)], *(k.name.id for k in call.keywords)}
        if missing := [p.name.id for p in block.parameters if p.name.id not in bound and p.default is None]:
            message = f"`{block.name.id}` is called without `{missing[0]}`"
            self.report.add(Code.ARGUMENTS, message, call.span, "", f"write {usage}", block.name.span)
        returned = next((len(s.values) for s in block.body.lines if isinstance(s, ast.Return)), results)
        if returned != results:
            message = f"`{block.name.id}` returns {_count(returned, 'value')}, not {results}"
            self.report.add(Code.ARGUMENTS, message, call.span, "", "give each a name", block.name.span)

    def _keywords(self, call: ast.Call, names: Iterable[str], usage: str) -> None:
        for keyword in call.keywords:
            if keyword.name.id not in names:
                message = f"`{call.function.id}` has no argument `{keyword.name.id}` left"
                self.report.add(Code.ARGUMENTS, message, keyword.name.span, "", f"write {usage}")


def _count(n: int, what: str) -> str:
    return f"{'no' if n == 0 else n} {what}{'' if n == 1 else 's'}"
