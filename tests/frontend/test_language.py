"""The language: programs resolve to the configuration, sizes and machine that they write. Wrong ones are in
`cases/errors`."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.frontend_help import TINY, errors, messages, outcome, program, run
from wscc import grammar
from wscc.diagnostics import Code, CompileError, Source
from wscc.frontend import ast
from wscc.frontend.blocks import MAX_CHAIN
from wscc.frontend.builtins import BUILTINS
from wscc.frontend.evaluate import integer, number
from wscc.frontend.fmt import expression
from wscc.frontend.mistakes import _SETTING
from wscc.frontend.overrides import SETTINGS
from wscc.frontend.parse import parse
from wscc.frontend.units import UNITS, Dimension, unit_meant
from wscc.ir.train import LrSchedule, Optimizer
from wscc.ir.types import DType
from wscc.machine.presets import preset
from wscc.machine.wafer import Die, Link, Wafer

LOSS = " loss cross_entropy(x, labels)"


def parse_text(text: str) -> ast.File:
    return parse(Source("t", text))


def loss_of(text: str) -> ast.Expr:
    model = parse_text(f"model m {{ loss {text} }}").items[0]
    assert isinstance(model, ast.Model)
    loss = model.body.lines[0]
    assert isinstance(loss, ast.Loss)
    return loss.value


# ---- the sample, whole


def test_the_sample_means_what_it_says() -> None:
    tiny = run(TINY)
    assert tiny.sizes == {"layers": 4, "d": 64, "heads": 4, "vocab": 256, "seq": 64}
    assert tiny.wafer == Wafer(
        "tray", 2, 4,
        Die(1_800 * 10**12, 80 * 10**6, 72 * 10**9, 10**12, 128, 2e12), Link(4 * 10**12, 2e-7, 64, 5e-12, 2),
    )  # fmt: skip
    config = tiny.config
    assert (config.batch, config.microbatch, config.calls) == (16, 4, 2)
    assert config.optimizer == Optimizer("adamw", 3e-3, 0.9, 0.95, 1e-8, 0.1)
    assert config.lr_schedule == LrSchedule(warmup=20)
    assert (config.clip, config.data, config.recompute, config.seed) == (1.0, "tiny-text.txt", "none", 0)
    assert config.dtypes.compute is DType.F32
    assert config.strategy == {"dp": 2, "tatp": 2, "tp": 2}
    assert [config.degree(a) for a in ("dp", "pp")] == [2, 1]
    assert [p.name.id for p in tiny.model.body.lines if isinstance(p, ast.Param)] == [
        "wte",
        "wpe",
        "gf",
        "bf",
    ]


def test_spans_point_at_what_they_name() -> None:
    def every(node: object) -> list[ast.Node]:
        children = [getattr(node, name) for name in getattr(node, "__dataclass_fields__", ())]
        inner = [
            n
            for child in children
            for c in (child if isinstance(child, tuple) else (child,))
            for n in every(c)
        ]
        return [node, *inner] if isinstance(node, ast.Node) else inner

    nodes = every(parse_text(TINY))
    assert len(nodes) > 300
    for node in nodes:
        shown = TINY[node.span.start : node.span.end]
        assert TINY.count("\n", 0, node.span.start) + 1 == node.span.line
        if isinstance(node, ast.Name):
            assert shown == node.id
        if isinstance(node, ast.Binary | ast.Call):
            assert loss_of(shown) == node


# ---- words


def test_keywords_are_names_where_no_keyword_is_expected() -> None:
    text = "batch = mesh(seed, die, at = on) repeat parallel as block { data = model } loss schedule"
    model = parse_text(f"model train(wafer = 1) {{ {text} }}").items[0]
    assert isinstance(model, ast.Model)
    assert model.name.id == "train"
    assert len(model.body.lines) == 3


@pytest.mark.parametrize(
    "word", ["batch", "clip", "seed", "data", "mesh", "die", "link", "wafer", "train", "at"]
)
@pytest.mark.parametrize(
    "before", ["loss x", "loss x()", "loss (x)", "loss 1", "input t : i32[1]", "param w : [1] init ones"]
)
def test_a_keyword_of_elsewhere_may_be_assigned_to_after_anything(before: str, word: str) -> None:
    model = parse_text(f"model m {{ {before} {word} = 1 }}").items[0]
    assert isinstance(model, ast.Model)
    assert model.body.lines[1] == ast.Assign((ast.Name(word),), ast.Number("1"))


@pytest.mark.parametrize(
    "text", ["batch64", "batch 6 4", "clip1.0", "seed x", "microbatch = 4", "dtype computebf16"]
)
def test_words_do_not_run_together(text: str) -> None:
    with pytest.raises(CompileError):
        parse_text(f"train m on w {{ {text} }}")


def test_precedence_and_association_by_hand() -> None:
    a, b, c = (ast.Name(x) for x in "abc")
    assert loss_of("a - b - c") == ast.Binary("-", ast.Binary("-", a, b), c)
    assert loss_of("a + b @ c") == ast.Binary("+", a, ast.Binary("@", b, c))
    assert loss_of("-a * b") == ast.Binary("*", ast.Negative(a), b)
    assert loss_of("a / (b * c)") == ast.Binary("/", a, ast.Binary("*", b, c))
    assert loss_of("a(b, k = c,)") == ast.Call(a, (b,), (ast.Keyword(ast.Name("k"), c),))


def test_settings_are_the_same_in_grammar_messages_and_options() -> None:
    rule = re.search(r"^\?setting: ((?:.*\n +\|)*.*)$", grammar.text("wsl"), re.MULTILINE)
    assert rule
    assert set(re.findall(r"\w+", rule[1])) == set(SETTINGS) == _SETTING - {"group"}


def test_both_spellings_of_a_setting_are_one_setting() -> None:
    train = "schedule warmup(2) lr_schedule warmup(3)"
    (duplicate,) = errors(program("x = tokens" + LOSS, train=train)).diagnostics
    assert (duplicate.code, duplicate.message) == (Code.DUPLICATE, "setting `lr_schedule` is given twice")


@pytest.mark.parametrize("word", ["lr_shedule", "shedule", "schedul"])
def test_a_misspelling_suggests_the_present_spelling(word: str) -> None:
    (unknown,) = errors(program("x = tokens" + LOSS, train=f"{word} warmup(2)")).diagnostics
    assert (unknown.code, unknown.help) == (Code.UNKNOWN_KEY, "did you mean `lr_schedule`?")


# ---- numbers

LITERALS = st.integers(0, 60).map(lambda n: ast.Number(str(n)))
SUMS = st.recursive(
    st.one_of(LITERALS, st.sampled_from(["a", "b"]).map(ast.Name)),
    lambda inner: st.one_of(
        st.builds(ast.Binary, st.sampled_from("+-*/"), inner, inner), st.builds(ast.Negative, inner)
    ),
    max_leaves=8,
)
VALUES = {"a": 12, "b": 7}


def by_python(text: str) -> Fraction:
    """The oracle: Python's own parser and rationals."""
    wrapped = re.sub(r"\w+", lambda w: f"Fraction({VALUES.get(w[0], w[0])})", text)
    return Fraction(eval(wrapped, {"Fraction": Fraction}))


@settings(max_examples=75, deadline=None)
@given(SUMS)
def test_arithmetic_is_that_of_rationals(expr: ast.Expr) -> None:
    text = expression(expr)
    try:
        expected = by_python(text)
    except ZeroDivisionError:
        with pytest.raises(CompileError, match="divides by zero"):
            number(loss_of(text), VALUES)
        return
    assert number(loss_of(text), VALUES) == expected


@settings(max_examples=75, deadline=None)
@given(SUMS)
def test_integers_are_exact_or_refused(expr: ast.Expr) -> None:
    value = outcome(lambda: integer(expr, VALUES))
    if isinstance(value, CompileError):
        assert value.diagnostics[0].code is Code.NUMBER
    else:
        assert value == by_python(expression(expr))


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_a_division_that_leaves_a_remainder_names_the_nearest_divisors(a: int, b: int) -> None:
    assume(a % b)
    with pytest.raises(CompileError, match=f"{a} / {b} leaves {a % b}") as caught:
        integer(ast.Binary("/", ast.Number(str(a)), ast.Number(str(b))), {})
    divisors = [int(n) for n in re.findall(r"\d+", caught.value.diagnostics[0].help)[1:]]
    assert divisors
    assert all(a % n == 0 for n in divisors)


def test_integers_end_at_two_to_the_63() -> None:
    assert integer(ast.Number(str(2**63 - 1)), {}) == 2**63 - 1
    with pytest.raises(CompileError, match="too large"):
        integer(ast.Number(str(2**63)), {})


def test_sizes_may_use_the_sizes_before_them() -> None:
    text = program("x = tokens" + LOSS, sizes="d = 4, ff = 4 * d, half = ff / 2")
    assert run(text).sizes == {"d": 4, "ff": 16, "half": 8}
    assert messages(program("x = tokens" + LOSS, sizes="ff = 4 * d, d = 4")) == ["unknown name `d`"]


# ---- units


def test_units_of_the_grammar_are_those_of_the_table() -> None:
    pattern = re.search(r"^UNIT.*?: /(.*)/$", grammar.text("wsl"), re.MULTILINE)
    assert pattern
    unit = re.compile(pattern[1])
    assert all(unit.fullmatch(u) for u in UNITS if u)
    prefixes = ["", *"kKMGTPnupm", "Ki", "Mi", "Gi", "Ti", "Pi"]
    bases = ["B", "B/s", "FLOP/s", "FLOP/s/W", "s", "J/bit", "b", "FLOP", "B/s/W", "W", "J"]
    for spelling in (p + b for p in prefixes for b in bases):
        assert bool(unit.fullmatch(spelling)) == (spelling in UNITS), spelling


@pytest.mark.parametrize(
    ("unit", "dimension", "value"),
    [
        ("kB", Dimension.BYTES, 1_000),
        ("KB", Dimension.BYTES, 1_000),
        ("KiB", Dimension.BYTES, 1_024),
        ("MiB", Dimension.BYTES, 1_048_576),
        ("MB", Dimension.BYTES, 10**6),
        ("GiB", Dimension.BYTES, 2**30),
        ("GB/s", Dimension.BANDWIDTH, 10**9),
        ("TiB/s", Dimension.BANDWIDTH, 2**40),
        ("PFLOP/s", Dimension.COMPUTE, 10**15),
        ("TFLOP/s/W", Dimension.EFFICIENCY, 10**12),
        ("us", Dimension.TIME, Fraction(1, 10**6)),
        ("pJ/bit", Dimension.ENERGY, Fraction(1, 10**12)),
        ("", Dimension.NONE, 1),
    ],
)
def test_units_by_hand(unit: str, dimension: Dimension, value: Fraction) -> None:
    assert UNITS[unit] == (dimension, value)


@pytest.mark.parametrize(
    ("word", "unit"),
    [
        ("gb", "GB"),
        ("GBs", "GB/s"),
        ("TFLOPS", "TFLOP/s"),
        ("TBps", "TB/s"),
        ("nsec", "ns"),
        ("zebra", None),
        ("Gbps", None),
        ("Gb", None),
        ("Mbit/s", None),
        ("gbps", None),
    ],
)
def test_the_unit_meant(word: str, unit: str | None) -> None:
    assert unit_meant(word) in (unit, "GB" if word == "GBs" else unit)


def test_a_fraction_of_a_unit_is_exact() -> None:
    die = "die { peak 1 TFLOP/s, sram 0.5 KiB, hbm 1.5 GB at 0.3 TB/s }"
    text = program("x = tokens" + LOSS).replace(
        '= preset "temp-4x8"', f"{{ mesh 1 x 1 {die} link {{ bandwidth 1 B/s, latency 1 s }} }}"
    )
    assert run(text).wafer == Wafer("w", 1, 1, Die(10**12, 512, 1_500_000_000, 300_000_000_000), Link(1, 1.0))


# ---- wafers


def test_a_preset_may_be_changed() -> None:
    base = preset("temp-4x8")
    text = program("x = tokens" + LOSS)
    assert run(text).wafer == Wafer("w", base.rows, base.cols, base.die, base.link)
    body = '"temp-4x8" { mesh 2 x 2  die { hbm 1 GB, tile 64 }  dead die (1, 1)  dead link (0, 1) - (0, 0) }'
    changed = run(text.replace('"temp-4x8"', body)).wafer
    assert changed.die == Die(
        base.die.peak, base.die.sram, 10**9, base.die.hbm_bandwidth, 64, base.die.efficiency
    )
    assert (changed.rows, changed.cols, changed.link) == (2, 2, base.link)
    assert changed.dead_dies == {(1, 1)}
    assert changed.dead_links == {((0, 0), (0, 1))}


def test_a_die_without_hbm_has_none() -> None:
    wafer = "{ mesh 1 x 1 die { peak 1 TFLOP/s, sram 1 MB } link { bandwidth 1 GB/s, latency 1 ns } }"
    assert run(program("x = tokens" + LOSS).replace('= preset "temp-4x8"', wafer)).wafer.die.hbm == 0


# ---- training


def test_defaults_of_training() -> None:
    config = run(program("x = tokens" + LOSS)).config
    assert config.optimizer == Optimizer("sgd", 0.1)
    assert (config.lr_schedule, config.clip, config.data, config.recompute, config.seed) == (
        LrSchedule(),
        0.0,
        "",
        "none",
        0,
    )
    assert config.strategy == {}


def test_every_setting_by_hand() -> None:
    train = 'data "a.txt" clip 0.5 recompute full seed 7 dtype grads f32, compute bf16'
    train += " lr_schedule warmup(10), cosine(100, floor = 0.1)"
    config = run(program("x = tokens" + LOSS, train=train)).config
    assert config.lr_schedule == LrSchedule(10, 100, 0.1)
    assert (config.data, config.clip, config.recompute, config.seed) == ("a.txt", 0.5, "full", 7)
    assert (config.dtypes.compute, config.dtypes.params, config.dtypes.grads) == (
        DType.BF16,
        DType.F32,
        DType.F32,
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 64), st.integers(1, 9), st.integers(1, 4))
def test_a_step_is_a_whole_number_of_calls_or_refused_with_a_batch_that_works(
    batch: int, micro: int, dp: int
) -> None:
    text = program("x = tokens" + LOSS).replace("batch 4 microbatch 4", f"batch {batch} microbatch {micro}")
    text = text.replace("dp = 1", f"dp = {dp}")
    if batch % (dp * micro) == 0:
        assert run(text).config.calls * dp * micro == batch
        return
    (diagnostic,) = errors(text).diagnostics
    assert diagnostic.code is Code.DEGREE
    for setting, value in re.findall(r"`((?:micro)?batch) (\d+)`", diagnostic.help):
        b, m = (int(value), micro) if setting == "batch" else (batch, int(value))
        assert b % (dp * m) == 0


# ---- models and blocks


def test_every_operation_of_the_design_can_be_called() -> None:
    body = """
    param w : [d, d] init ones  param g : [d] init ones
    x = embedding(tokens, w)
    q, k, v = split(x)
    x = attention(q, k, v, causal, alibi, window = 4, cap = 20) + attention(q, k, v) - x * x / x
    x = soft_cap(x, cap = 30) + 2 - x
    x = layernorm(x, g, g, eps = 1e-6) @ transpose(w)
    x = mean(concat(x, x)) + first(dropout(x, rate = 0.1))
    x = rmsnorm(gelu(relu(gelu_erf(x)))) + weigh(x, project(sigmoid(x), g))
    x = x + rope(swiglu(x, x), theta = 10000) + project(x, w)
    gates, slots = route(router(x, w), renormalise, k = 1, capacity = 2)
    x = combine(experts(dispatch(x, slots), w), gates, slots) + spmm(tokens, x)
    x = edge_attention(tokens, x, x, x) + edge_max(tokens, x) + edge_sum(tokens, x, x)
    """
    body += LOSS + " + balance(x, k = 1) + z_loss(x)"
    assert run(program(body))
    called = set(re.findall(r"(\w+)\(", body))
    assert called == set(BUILTINS)


def test_blocks_take_tensors_sizes_and_defaults() -> None:
    blocks = """
    block mlp(x, d, ff = 4 * d) {
      param up : [d, ff] init normal(0.02)
      return gelu(x @ up)
    }
    block two(x) { return x, mlp(x, 4, ff = 8) }
    """
    tree = run(program("a, x = two(tokens)" + LOSS, blocks))
    assert set(tree.blocks) == {"mlp", "two"}


def test_a_repeat_hides_its_new_names_and_carries_the_old() -> None:
    assert run(program("x = tokens repeat 2 as l { h = x x = h }" + LOSS))
    assert messages(program("x = tokens repeat 2 as l { h = x } x = h" + LOSS)) == ["unknown name `h`"]


def test_nothing_may_follow_the_loss() -> None:
    assert messages(program("x = tokens" + LOSS + " y = x")) == ["nothing may follow `loss`"]


def test_blocks_may_be_many_and_deep_within_the_limits() -> None:
    def chain(n: int) -> str:
        lines = "".join(f"block b{i}(x) {{ return b{i - 1}(x) }}\n" for i in range(1, n))
        return program(f"x = b{n - 1}(tokens)" + LOSS, "block b0(x) { return x }\n" + lines)

    assert run(chain(MAX_CHAIN))
    assert errors(chain(MAX_CHAIN + 2)).diagnostics[0].code is Code.LIMIT


def test_mistakes_of_all_parts_are_shown_together() -> None:
    text = (
        TINY.replace("sram 80 MB", "sram 80")
        .replace("layernorm(x, g1", "layernrom(x, g1")
        .replace("full", "")
    )
    text = text.replace("recompute none", "recompute nome").replace("wte : [vocab", "wte : [vocabulary")
    assert [d.code for d in errors(text).diagnostics] == [
        Code.UNIT,
        Code.UNKNOWN_NAME,
        Code.UNKNOWN_NAME,
        Code.CHOICE,
    ]
