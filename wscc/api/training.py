"""A whole program built in Python: a model, a wafer, and how to train the one on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from wscc.api.expressions import Expression, Operand, called
from wscc.api.model import Model
from wscc.api.wafer import Wafer
from wscc.diagnostics import Code, Source, fail
from wscc.frontend import ast
from wscc.frontend.builtins import SETTINGS
from wscc.frontend.fmt import expression, fmt
from wscc.frontend.parse import parse_fragment

Value = str | int | float | Expression | Sequence[Expression] | Mapping[str, object]


def adamw(**options: Operand) -> Expression:
    """The optimizer AdamW (Loshchilov and Hutter 2019): `lr`, and if wanted `beta1`, `beta2`, `eps`, `weight_decay`.
    Raises `CompileError` W005 for what is no number."""
    return called("adamw", **options)


def sgd(**options: Operand) -> Expression:
    """The optimizer SGD, plain gradient descent: `lr`. Raises `CompileError` W005 for what is no number."""
    return called("sgd", **options)


def warmup(steps: int) -> Expression:
    """A part of `lr_schedule`: the learning rate rises from 0, linearly, over so many steps.
    Raises `CompileError` W005 for what is no number."""
    return called("warmup", steps)


def cosine(steps: int, **options: Operand) -> Expression:
    """A part of `lr_schedule`: the learning rate falls by half a cosine to `floor` times itself at step `steps`.
    Raises `CompileError` W005 for what is no number."""
    return called("cosine", steps, **options)


class Train:
    """A program: `Train(model, wafer, batch=16, optimizer=adamw(lr=1e-3), parallel="dp=2,tp=2")`.

    Settings are those of `train` in the language: `batch` and `microbatch` in sequences, `data` a path (from the
    working directory), `validation` what is held out of it (`"10 %"`, or a number of rows), `optimizer`, `decay` ("all"
    or "matrices"), `clip`, `lr_schedule` (one or a list of `warmup`, `cosine`), `dtype` (a type, or a dict by role),
    `recompute`, `parallel` (a string, or a dict of degrees), `stages` (layers of each), `zero`, `interleave`, `seed`.
    `groups` has numbers of the optimizer by pattern of names: `{"block.w*": {"lr": "x 0.1", "decay": 0}}`.
    Raises `CompileError` for a setting that the language has not.
    """

    def __init__(
        self,
        model: Model,
        wafer: Wafer,
        *,
        groups: Mapping[str, Mapping[str, str | float]] | None = None,
        **settings: Value,
    ) -> None:
        if not isinstance(model, Model) or not isinstance(wafer, Wafer):
            raise fail(
                Code.OPTION,
                "`Train` takes a `wscc.Model` and a `wscc.Wafer`",
                help="Train(model, wafer, ...)",
            )
        self.model, self.wafer = model, wafer
        self.settings = tuple(_setting(key, settings[key]) for key in _in_order(settings))
        self.groups = tuple(_group(pattern, rates) for pattern, rates in (groups or {}).items())

    @cached_property
    def source(self) -> Source:
        """The text that is compiled; errors show its lines."""
        return Source(f"{self.model.name}.wsl", self.to_wsl())

    def to_wsl(self) -> str:
        """The program as a `.wsl` file, in the form of `wscc fmt`."""
        train = ast.Train(
            ast.Name(self.model.name), ast.Name(self.wafer.name), ast.Body((*self.settings, *self.groups))
        )
        return fmt(ast.File((self.wafer.item, *self.model.items(), train)))


def _in_order(settings: Mapping[str, Value]) -> list[str]:
    """Keys in the order of the language, unknown ones last."""
    return sorted(settings, key=lambda k: SETTINGS.index(k) if k in SETTINGS else len(SETTINGS))


def _setting(key: str, value: Value) -> ast.Setting:
    if key not in SETTINGS:
        raise fail(
            Code.UNKNOWN_KEY,
            f"`train` has no setting `{key}`",
            help=f"its settings are {', '.join(SETTINGS)}",
        )
    text = f"{key} {_spelled(key, value)}"
    setting: ast.Setting = parse_fragment(Source("<train>", text), 0, "setting")
    return setting


def _group(pattern: str, rates: Mapping[str, str | float]) -> ast.Group:
    text = f'group "{pattern}" {{ {", ".join(f"{k} {v}" for k, v in rates.items())} }}'
    group: ast.Group = parse_fragment(Source("<train>", text), 0, "group")
    return group


def _spelled(key: str, value: Value) -> str:
    """The value as the language writes it."""
    match value:
        case Expression():
            return expression(value.node)
        case Mapping():
            return ", ".join(f"{k} = {v}" if key == "parallel" else f"{k} {v}" for k, v in value.items())
        case str() if key == "data":
            return f'"{value}"'
        case int() if key == "validation":
            return f"{value} rows"
        case str() if key == "dtype" and " " not in value:
            return ", ".join(f"{role} {value}" for role in ("compute", "params", "grads"))
        case str():
            return value
        case Sequence():
            return (" " if key == "stages" else ", ").join(_spelled(key, v) for v in value)
        case _:
            return str(value)
