"""Resolution of the `train` section to a `TrainConfig`: defaults filled in, numbers checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import prod
from typing import Final, TypeVar

from wscc.diagnostics import NO_SPAN, Code, Diagnostic, Label, Proposal, Span
from wscc.diagnostics.limits import MAX_COUNT, Limits, limits_of, shown
from wscc.frontend import ast
from wscc.frontend.builtins import DECAYS, LR_SCHEDULES, OPTIMIZERS
from wscc.frontend.config import AXES, DTYPE_ROLES, DTypes, TrainConfig
from wscc.frontend.evaluate import number
from wscc.frontend.report import Report, hint
from wscc.frontend.training.groups import resolve_groups
from wscc.ir.train import FLOATS, RECOMPUTE, ZERO, LrSchedule, Optimizer, Train
from wscc.ir.types import DType
from wscc.machine.wafer import MAX_DIES, Wafer
from wscc.strategy import PADS, divisors, mesh_axes, smaller, with_degree

T = TypeVar("T")
_LIMITS: Final = {**limits_of(Train), "microbatch": Limits(least=1, most=MAX_COUNT, whole=True)}
_DEGREE: Final = Limits(least=1, most=MAX_COUNT, whole=True)
_ROWS: Final = Limits(least=1, most=MAX_COUNT, whole=True)
_STEPS: Final = Limits(least=1, most=limits_of(LrSchedule)["decay"].most, whole=True)
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
    optimizer = _optimizer(settings, report)
    config = TrainConfig(
        batch=_integer(settings, "batch", report),
        microbatch=_integer(settings, "microbatch", report),
        optimizer=optimizer,
        decay=_choice(settings, "decay", DECAYS, "rule of decay", report),
        groups=resolve_groups(train.groups, optimizer, report),
        strategy=_strategy(settings, report),
        lr_schedule=_lr_schedule(settings, report),
        clip=_clip(settings, report),
        data=_typed(settings, "data", ast.Text, ast.Text("")).value,
        validation_rows=rows,
        validation_percent=percent,
        dtypes=_dtypes(settings, report),
        recompute=_choice(settings, "recompute", RECOMPUTE, "recompute mode", report),
        stages=_stages(settings, report),
        zero=_zero(settings, report),
        interleave=_integer(settings, "interleave", report),
        seed=_integer(settings, "seed", report),
        strategy_span=settings["parallel"].span if "parallel" in settings else NO_SPAN,
        stages_span=settings["stages"].span if "stages" in settings else NO_SPAN,
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
    mesh = _mesh_for(needed + len(wafer.dead_dies), wafer)
    changes = [Proposal(s) for s in smaller(mesh_axes(config.strategy), alive)]
    changes.insert(_BEFORE_MESH, Proposal(sets=(("wafer.mesh", mesh),)))
    report.extend((Diagnostic(Code.TOO_MANY_DIES, message, label, candidates=tuple(changes)),))


def _mesh_for(dies: int, wafer: Wafer) -> str:
    """The mesh grown to at least so many dies, the shorter side first; one of planes by more of them."""
    rows, cols = wafer.rows, wafer.cols
    if wafer.planes:
        plane = rows // wafer.planes
        return f"{-(-dies // (plane * cols))}x{plane}x{cols}"
    while rows * cols < dies <= MAX_DIES:
        rows, cols = (rows + 1, cols) if rows <= cols else (rows, cols + 1)
    return f"{rows}x{cols}"


# ---- settings by kind


def _settings(train: ast.Train, report: Report) -> dict[str, ast.Setting]:
    report.unique(((s.key, s.span) for s in train.settings), "setting")
    settings = {s.key: s for s in reversed(train.settings)}
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


def _integer(settings: Mapping[str, ast.Setting], key: str, report: Report) -> int:
    literal = _typed(settings, key, ast.Number, ast.Number(str(_LIMITS[key].least)))
    return int(_within(literal.value, f"`{key}`", _LIMITS[key], literal.span, report))


def _within(value: Fraction, what: str, limits: Limits, span: Span, report: Report) -> Fraction:
    """The value; 1, with the mistake noted, for one beyond its limits."""
    if limits.admit(value):
        return value
    report.add(Code.NUMBER, f"{what} must be {limits}, not {shown(value)}", span)
    return Fraction(1)


def _clip(settings: Mapping[str, ast.Setting], report: Report) -> float:
    if "clip" not in settings:
        return 0.0
    literal = _typed(settings, "clip", ast.Number, ast.Number("1"))
    if literal.value <= 0 or not _LIMITS["clip"].admit(literal.value):
        report.add(
            Code.NUMBER, "`clip` must be above 0", literal.span, "", "leave `clip` out to clip nothing"
        )
    return float(literal.value)


def _validation(settings: Mapping[str, ast.Setting], report: Report) -> tuple[int, float]:
    """The rows and the percentage of them that are held out; one of the two is 0, or both."""
    share = _typed(settings, "validation", ast.Quantity, ast.Quantity(ast.Number("0"), "%"))
    if share.unit == "rows":
        return int(_within(share.number.value, "`validation`", _ROWS, share.span, report)), 0.0
    if "validation" in settings and not 0 < share.number.value < 100:
        report.add(
            Code.NUMBER, "`validation` must be above 0 % and below 100 %", share.span, "",
            "it says what is held out; leave it out to train on all rows",
        )  # fmt: skip
    return 0, float(share.number.value)


def _choice(
    settings: Mapping[str, ast.Setting], key: str, choices: tuple[str, ...], what: str, report: Report
) -> str:
    """A word; that left out is the first choice."""
    word = _typed(settings, key, ast.Name, ast.Name(choices[0]))
    if word.id not in choices:
        report.add(Code.CHOICE, f"unknown {what} `{word.id}`", word.span, "", hint(word.id, choices))
    return word.id


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
        degree = int(_within(axis.degree.value, f"`{axis.name.id}`", _DEGREE, axis.degree.span, report))
        if degree > 1:
            degrees[axis.name.id] = degree
    return degrees


def _stages(settings: Mapping[str, ast.Setting], report: Report) -> tuple[int, ...]:
    """The layers by stage; what the stages pass cannot cut so, it refuses."""
    layers = _typed(settings, "stages", ast.Stages, ast.Stages()).layers
    what = "the layers of a stage"
    return tuple(int(_within(n.value, what, _LIMITS["stages"], n.span, report)) for n in layers)


def _check_batch(config: TrainConfig, settings: Mapping[str, ast.Setting], report: Report) -> None:
    """Note W201 unless a step is a whole number of equal calls, in which each replica takes `microbatch` sequences or,
    where `dp` does not divide those of a call, some take pads instead of the last."""
    dp = config.degree("dp")
    per_call = dp * config.microbatch
    if _is_whole(config.batch, dp, config.microbatch):
        return
    message = (
        f"batch {config.batch} is not a multiple of dp x microbatch = {dp} x {config.microbatch} = {per_call}"
    )
    label = Label(settings["batch"].span)
    report.extend((Diagnostic(Code.DEGREE, message, label, candidates=tuple(_batch_changes(config))),))


def _is_whole(batch: int, dp: int, microbatch: int) -> bool:
    """Whether calls take equal numbers of sequences, of which replicas have `microbatch` with few pads."""
    each, rest = divmod(batch, -(-batch // (dp * microbatch)))
    return not rest and -(-each // dp) == microbatch and 100 * (-each % dp) <= PADS * each


def _batch_changes(config: TrainConfig) -> Iterator[Proposal]:
    """Changes that make `batch` a multiple of `dp * microbatch`, of each number by itself."""
    dp, axes = config.degree("dp"), mesh_axes(config.strategy)
    per_call = dp * config.microbatch
    for calls in (config.batch // per_call, -(-config.batch // per_call)):
        yield Proposal(sets=(("train.batch", str(max(calls, 1) * per_call)),))
    fits = [m for m in (-(-n // dp) for n in divisors(config.batch)) if _is_whole(config.batch, dp, m)]
    smaller = [m for m in fits if m < config.microbatch]
    for m in [*smaller[-1:], *fits[len(smaller) :][:1]]:
        yield Proposal(sets=(("train.microbatch", str(m)),))
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
    for name, (value, span) in values.items():
        _within(value, f"`{name}`", limits_of(Optimizer)[name], span, report)
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
        steps[kind] = int(_within(number_of_steps, f"`{kind}` steps", _STEPS, span, report))
        if "floor" in values:
            value, span = values["floor"]
            floor = float(_within(value, "`floor`", limits_of(LrSchedule)["floor"], span, report))
    lr_schedule = LrSchedule(steps.get("warmup", 0), steps.get("cosine", 0), floor)
    for _, message in lr_schedule.disagreements():
        report.add(
            Code.NUMBER, message, settings["lr_schedule"].span, "", "steps count from the start of training"
        )
    return lr_schedule
