"""Resolution of the `train` section to a `TrainConfig`: defaults filled in, numbers checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import prod
from typing import Final, TypeVar

from wscc.diagnostics import NO_SPAN, Code, Diagnostic, Label, Proposal, Span
from wscc.frontend import ast
from wscc.frontend.builtins import LR_SCHEDULES, OPTIMIZERS
from wscc.frontend.config import AXES, DTYPE_ROLES, FLOATS, RECOMPUTE, ZERO, DTypes, TrainConfig
from wscc.frontend.evaluate import number
from wscc.frontend.report import Report, hint
from wscc.ir.train import LrSchedule, Optimizer
from wscc.ir.types import DType
from wscc.machine.wafer import MAX_DIES, Wafer
from wscc.strategy import divisors, mesh_axes, smaller, with_degree

T = TypeVar("T")
_MAX: Final = 2**31 - 1  # of batch, steps, seeds and degrees
_BEFORE_MESH: Final = 24  # smaller strategies that are proposed before a larger mesh
_EXAMPLES: Final = {
    "batch": "batch 64",
    "microbatch": "microbatch 1",
    "optimizer": "optimizer adamw(lr = 3e-4)",
}
_EXAMPLES_ALL: Final = {**_EXAMPLES, "parallel": "parallel dp = 1"}


def resolve_train(train: ast.Train, report: Report) -> TrainConfig | None:
    """The configuration, or None with the mistakes noted."""
    mistakes = len(report.diagnostics)
    settings = _settings(train, report)
    rows, percent = _validation(settings, report)
    config = TrainConfig(
        batch=_integer(settings, "batch", 1, report),
        microbatch=_integer(settings, "microbatch", 1, report),
        optimizer=_optimizer(settings, report),
        strategy=_strategy(settings, report),
        lr_schedule=_lr_schedule(settings, report),
        clip=_clip(settings, report),
        data=_typed(settings, "data", ast.Text, ast.Text("")).value,
        validation_rows=rows,
        validation_percent=percent,
        dtypes=_dtypes(settings, report),
        recompute=_recompute(settings, report),
        zero=_zero(settings, report),
        interleave=_integer(settings, "interleave", 1, report),
        seed=_integer(settings, "seed", 0, report),
        strategy_span=settings["parallel"].span if "parallel" in settings else NO_SPAN,
    )
    if len(report.diagnostics) > mistakes:
        return None
    _check_batch(config, settings, report)
    return config if len(report.diagnostics) == mistakes else None


def check_degrees(config: TrainConfig, wafer: Wafer, report: Report) -> None:
    """Note W301 if the strategy needs more dies than are alive."""
    needed, alive = prod(config.strategy.values()), wafer.rows * wafer.cols - len(wafer.dead_dies)
    if needed <= alive:
        return
    written = ", ".join(f"{axis} = {degree}" for axis, degree in config.strategy.items())
    message = f"`{written}` needs {needed} dies, and wafer `{wafer.name}` has {alive} alive"
    if not alive:
        message = f"wafer `{wafer.name}` has {wafer.rows * wafer.cols} dies, and all of them are dead"
    label = Label(config.strategy_span, f"{needed} die{'s' * (needed > 1)}")
    rows, cols = _mesh_for(needed + len(wafer.dead_dies), wafer)
    changes = [Proposal(s) for s in smaller(mesh_axes(config.strategy), alive)]
    changes.insert(_BEFORE_MESH, Proposal(sets=(("wafer.mesh", f"{rows}x{cols}"),)))
    report.extend((Diagnostic(Code.TOO_MANY_DIES, message, label, candidates=tuple(changes)),))


def _mesh_for(dies: int, wafer: Wafer) -> tuple[int, int]:
    """The mesh grown to at least so many dies, the shorter side first."""
    rows, cols = wafer.rows, wafer.cols
    while rows * cols < dies <= MAX_DIES:
        rows, cols = (rows + 1, cols) if rows <= cols else (rows, cols + 1)
    return rows, cols


# ---- settings by kind


def _settings(train: ast.Train, report: Report) -> dict[str, ast.Setting]:
    report.unique(((s.key, s.span) for s in train.body.lines), "setting")
    settings = {s.key: s for s in reversed(train.body.lines)}
    for key, example in _EXAMPLES_ALL.items():
        if key not in settings:
            message = f"`train {train.model.id} on {train.wafer.id}` has no `{key}`"
            report.add(Code.MISSING, message, train.model.span, "", f"add, for example, `{example}`")
    return settings


def _typed(settings: Mapping[str, ast.Setting], key: str, kind: type[T], otherwise: T) -> T:
    """The value of a setting, whose type the grammar decides."""
    if key not in settings:
        return otherwise
    value = settings[key].value
    assert isinstance(value, kind), key
    return value


def _integer(settings: Mapping[str, ast.Setting], key: str, least: int, report: Report) -> int:
    literal = _typed(settings, key, ast.Number, ast.Number(str(least)))
    return _whole(literal.value, f"`{key}`", least, literal.span, report)


def _whole(value: Fraction, what: str, least: int, span: Span, report: Report) -> int:
    if value.denominator != 1 or not least <= value <= _MAX:
        shown = value if value.denominator == 1 and abs(value) < 10**18 else f"{float(value):g}"
        report.add(Code.NUMBER, f"{what} must be an integer from {least} to {_MAX}, not {shown}", span)
        return max(least, 1)
    return int(value)


def _clip(settings: Mapping[str, ast.Setting], report: Report) -> float:
    if "clip" not in settings:
        return 0.0
    literal = _typed(settings, "clip", ast.Number, ast.Number("1"))
    if literal.value <= 0:
        report.add(
            Code.NUMBER, "`clip` must be above 0", literal.span, "", "leave `clip` out to clip nothing"
        )
    return float(literal.value)


def _validation(settings: Mapping[str, ast.Setting], report: Report) -> tuple[int, float]:
    """The rows and the percentage of them that are held out; one of the two is 0, or both."""
    share = _typed(settings, "validation", ast.Quantity, ast.Quantity(ast.Number("0"), "%"))
    if share.unit == "rows":
        return _whole(share.number.value, "`validation`", 1, share.span, report), 0.0
    if "validation" in settings and not 0 < share.number.value < 100:
        report.add(
            Code.NUMBER, "`validation` must be above 0 % and below 100 %", share.span, "",
            "it says what is held out; leave it out to train on all rows",
        )  # fmt: skip
    return 0, float(share.number.value)


def _recompute(settings: Mapping[str, ast.Setting], report: Report) -> str:
    mode = _typed(settings, "recompute", ast.Name, ast.Name("none"))
    if mode.id not in RECOMPUTE:
        report.add(
            Code.CHOICE, f"unknown recompute mode `{mode.id}`", mode.span, "", hint(mode.id, RECOMPUTE)
        )
    return mode.id


def _zero(settings: Mapping[str, ast.Setting], report: Report) -> int:
    literal = _typed(settings, "zero", ast.Number, ast.Number("0"))
    if literal.value not in ZERO:
        report.add(
            Code.CHOICE, f"`zero` is 0, 1 or 3, not {literal.text}", literal.span, "",
            "1 shards the optimizer's state over dp, 3 weights and gradients too",
        )  # fmt: skip
        return 0
    return int(literal.value)


def _dtypes(settings: Mapping[str, ast.Setting], report: Report) -> DTypes:
    roles = _typed(settings, "dtype", ast.DTypes, ast.DTypes(())).roles
    report.unique(((r.role.id, r.role.span) for r in roles), "element type of")
    dtypes: dict[str, DType] = {}
    for r in roles:
        floats = [str(d) for d in FLOATS]
        if r.role.id not in DTYPE_ROLES:
            message = f"nothing called `{r.role.id}` has an element type"
            report.add(Code.UNKNOWN_KEY, message, r.role.span, "", hint(r.role.id, DTYPE_ROLES))
        elif r.dtype.id not in floats:
            help = hint(r.dtype.id, floats)
            report.add(Code.CHOICE, f"unknown element type `{r.dtype.id}`", r.dtype.span, "", help)
        else:
            dtypes[r.role.id] = DType(r.dtype.id)
    return DTypes(**dtypes)


def _strategy(settings: Mapping[str, ast.Setting], report: Report) -> dict[str, int]:
    strategy = _typed(
        settings, "parallel", ast.Strategy, ast.Strategy((ast.Axis(ast.Name("dp"), ast.Number("1")),))
    )
    if strategy.is_auto:
        report.add(
            Code.NO_SEARCH,
            "`parallel auto` leaves the strategy to a search",
            settings["parallel"].span,
            help="`wscc compile -O3` or `wscc search` makes it; or write the degrees, as in `parallel dp = 1`",
        )
    report.unique(((a.name.id, a.name.span) for a in strategy.axes), "axis")
    degrees: dict[str, int] = {}
    for axis in strategy.axes:
        if axis.name.id not in AXES:
            help = hint(axis.name.id, AXES, f"axes: {', '.join(AXES)}")
            report.add(Code.UNKNOWN_KEY, f"unknown axis `{axis.name.id}`", axis.name.span, "", help)
        degree = _whole(axis.degree.value, f"`{axis.name.id}`", 1, axis.degree.span, report)
        if degree > 1:
            degrees[axis.name.id] = degree
    return degrees


def _check_batch(config: TrainConfig, settings: Mapping[str, ast.Setting], report: Report) -> None:
    """Note W201 if `batch` is no multiple of `dp * microbatch`: a step is a whole number of calls."""
    dp = config.degree("dp")
    per_call = dp * config.microbatch
    if config.batch % per_call == 0:
        return
    message = (
        f"batch {config.batch} is not a multiple of dp x microbatch = {dp} x {config.microbatch} = {per_call}"
    )
    label = Label(settings["batch"].span)
    report.extend((Diagnostic(Code.DEGREE, message, label, candidates=tuple(_batch_changes(config))),))


def _batch_changes(config: TrainConfig) -> Iterator[Proposal]:
    """Changes that make `batch` a multiple of `dp * microbatch`, of each number by itself."""
    dp, axes = config.degree("dp"), mesh_axes(config.strategy)
    per_call = dp * config.microbatch
    for calls in (config.batch // per_call, -(-config.batch // per_call)):
        yield Proposal(sets=(("train.batch", str(max(calls, 1) * per_call)),))
    if config.batch % dp == 0:
        fits = [m for m in divisors(config.batch // dp) if m <= config.microbatch]
        yield Proposal(sets=(("train.microbatch", str(fits[-1])),))
    if config.batch % config.microbatch == 0:
        fits = [d for d in divisors(config.batch // config.microbatch) if d < dp]
        yield from (Proposal(with_degree(axes, "dp", d)) for d in reversed(fits))
    else:
        yield from (Proposal(with_degree(axes, "dp", d)) for d in reversed(divisors(dp)[:-1]))
    if dp > 1:
        yield Proposal(with_degree(axes, "dp", 1), (("train.microbatch", "1"),))


# ---- calls with numbers: optimizer, schedule of the learning rate


def _arguments(call: ast.Call, names: tuple[str, ...], report: Report) -> dict[str, tuple[Fraction, Span]]:
    """The values and spans, by name, of a call whose arguments are all numbers."""
    usage = f"write {call.function.id}({', '.join(names)})"
    if len(call.args) > len(names):
        message = f"`{call.function.id}` takes at most {len(names)} arguments"
        report.add(Code.ARGUMENTS, message, call.span, "", usage)
    arguments = [(n, a, a.span) for n, a in zip(names, call.args, strict=False)]
    arguments += [(k.name.id, k.value, k.name.span) for k in call.keywords]
    report.unique(((name, span) for name, _, span in arguments), "argument")
    values: dict[str, tuple[Fraction, Span]] = {}
    for name, expr, span in arguments:
        if name not in names:
            message = f"`{call.function.id}` has no argument `{name}`"
            report.add(Code.UNKNOWN_KEY, message, span, "", hint(name, names))
        else:
            values[name] = (_constant(expr, report), expr.span)
    return values


def _constant(expr: ast.Expr, report: Report) -> Fraction:
    return report.attempt(lambda: number(expr, {}), Fraction(0))


def _in_range(
    values: Mapping[str, tuple[Fraction, Span]], name: str, low: Fraction, high: Fraction, report: Report
) -> None:
    """Note a value that is not in `low <= value < high`."""
    if name in values and not low <= values[name][0] < high:
        value, span = values[name]
        bounds = f"from {float(low):g} up to (not including) {float(high):g}"
        report.add(Code.NUMBER, f"`{name}` must be {bounds}, not {float(value):g}", span)


def _optimizer(settings: Mapping[str, ast.Setting], report: Report) -> Optimizer:
    call = _typed(settings, "optimizer", ast.Call, ast.Call(ast.Name("sgd"), (ast.Number("1"),)))
    kind = call.function.id
    if kind not in OPTIMIZERS:
        help = hint(kind, OPTIMIZERS)
        report.add(Code.CHOICE, f"unknown optimizer `{kind}`", call.function.span, "", help)
        return Optimizer()
    values = _arguments(call, OPTIMIZERS[kind], report)
    if "lr" not in values:
        report.add(Code.MISSING, f"`{kind}` has no `lr`", call.span, "", f"write `{kind}(lr = 3e-4)`")
    for name in ("lr", "weight_decay", "eps"):
        _in_range(values, name, Fraction(0), Fraction(10**6), report)
    for name in ("beta1", "beta2"):
        _in_range(values, name, Fraction(0), Fraction(1), report)
    return Optimizer(kind=kind, **{name: float(value) for name, (value, _) in values.items()})


def _lr_schedule(settings: Mapping[str, ast.Setting], report: Report) -> LrSchedule:
    """The schedule of `warmup(steps)` and `cosine(steps, floor = 0)`, each at most once."""
    calls = _typed(settings, "lr_schedule", ast.LrSchedule, ast.LrSchedule(())).calls
    report.unique(((c.function.id, c.function.span) for c in calls), "part of the schedule")
    steps: dict[str, int] = {}
    floor = 0.0
    for call in calls:
        kind = call.function.id
        if kind not in LR_SCHEDULES:
            help = hint(kind, LR_SCHEDULES)
            report.add(Code.CHOICE, f"unknown schedule `{kind}`", call.function.span, "", help)
            continue
        values = _arguments(call, LR_SCHEDULES[kind], report)
        if "steps" not in values:
            report.add(Code.MISSING, f"`{kind}` has no `steps`", call.span, "", f"write `{kind}(100)`")
            continue
        number_of_steps, span = values["steps"]
        steps[kind] = _whole(number_of_steps, f"`{kind}` steps", 1, span, report)
        _in_range(values, "floor", Fraction(0), Fraction(1), report)
        floor = float(values["floor"][0]) if "floor" in values else floor
    warmup, decay = steps.get("warmup", 0), steps.get("cosine", 0)
    if decay and decay <= warmup:
        message = f"the cosine ends at step {decay}, before the warm-up does (step {warmup})"
        report.add(
            Code.NUMBER, message, settings["lr_schedule"].span, "", "steps count from the start of training"
        )
    return LrSchedule(warmup, decay, floor)
