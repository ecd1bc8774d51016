"""Tests of the verifier: for every rule, a module with one mistake has one finding, and none without the mistake.

A case (`cases/verify/*.wir`) begins with its level and axes. `; error: TEXT` is the expected message: behind
the statement that it points at, or on a line of its own if the message has no span. `; instead: LINE` replaces
the line before it in the right version of the module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import models
from tests.support.paths import CASES
from wscc.diagnostics import Code, Source
from wscc.driver.compile import compile_graph
from wscc.ir.array import Array, Kind
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.ops import OPS
from wscc.ir.step import Affine, Call, Loop, Ref
from wscc.ir.text.parse import parse
from wscc.ir.types import DType, Layout, TensorType
from wscc.ir.verify import verify
from wscc.ir.verify.step import interval
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition

CASES = sorted((CASES / "verify").glob("*.wir"))
HEADER = """\
module case {first}
train batch=8 microbatches=2 clip=0.0 compute=f32 params=f32 grads=f32 recompute=none zero=0 interleave=1 \
data="" validation_rows=0 validation_percent=0.0 seed=0
optimizer kind=sgd lr=0.1 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.0
lr_schedule warmup=0 decay=0 floor=0.0
wafer w rows=2 cols=4
die peak=1000 sram=1000 hbm=1000 hbm_bandwidth=1000 tile=16 efficiency=1.0
link bandwidth=1000 latency=1e-7 flit=64 energy=5e-12 channels=2
"""
_ERROR = re.compile(r" *; error: (.*)")


def complete(first: str, lines: list[str]) -> Module:
    """The module of a header with the level and axes of `first`, then `lines`, then a step if they have none."""
    body = "\n".join(lines)
    step = "" if "step {" in body else "\nstep {\n}"
    return parse(Source("case.wir", HEADER.format(first=first) + body + step))


def split_case(text: str) -> tuple[str, list[str], list[str], list[tuple[int, str]]]:
    """Level and axes, the lines with the mistake, the lines without it, and (line, message) of each finding; line 0
    is the header."""
    first, *lines = text.splitlines()
    wrong: list[str] = []
    right: list[str] = []
    errors: list[tuple[int, str]] = []
    for line in lines:
        if line.startswith("; instead:"):
            right[-1] = line.removeprefix("; instead:").removeprefix(" ")
        elif line.startswith("; error:"):
            errors.append((0, line.removeprefix("; error: ")))
        else:
            wrong.append(_ERROR.sub("", line))
            right.append(wrong[-1])
            errors += [(len(wrong), message) for message in _ERROR.findall(line)]
    return first.removeprefix("; "), wrong, right, errors


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_one_mistake_gives_one_message(path: Path) -> None:
    first, wrong, right, errors = split_case(path.read_text(encoding="utf-8"))
    header_lines = HEADER.count("\n")
    findings = [*verify(complete(first, wrong))]
    assert all(d.label.span.source for d in findings)
    lines = [max(0, d.label.span.line - header_lines) for d in findings]
    assert [*zip(lines, (d.message for d in findings), strict=True)] == errors
    assert {d.code for d in findings} == {Code.BAD_IR}
    assert [d.message for d in verify(complete(first, right))] == []


# ----------------------------------------------------------- mistakes that only a pass can make, not a text

X = Value("x", TensorType((8,), DType.F32))
GRAPH = complete("level graph axes tp=2", ["proc @p(%x : f32[8]) -> () {", "}"])


def body(*ops: Op) -> Module:
    (p,) = GRAPH.procedures
    return GRAPH.with_(procedures=(replace(p, body=ops),))


def relu(operand: Value, *results: str) -> Op:
    (op,) = complete(
        "level graph axes", ["proc @p(%x : f32[8]) -> () {", "  %y = relu(%x) {i -> i} : f32[8]", "}"]
    ).procedures[0].ops  # fmt: skip
    return replace(op, operands=(operand,), results=tuple(Value(n, X.type) for n in results))


def with_train(**changes: object) -> Module:
    return GRAPH.with_(train=replace(GRAPH.train, **changes))  # type: ignore[arg-type]


def with_array(kind: TensorType, level: Level = Level.SHARDED) -> Module:
    return GRAPH.with_(level=level, procedures=(), arrays=(Array("a", kind, Kind.PARAM),))


def with_order(dim: int, axes: tuple[str, ...] = ()) -> Module:
    array = Array("a", X.type.with_layout(Layout((axes,))), Kind.PARAM, zigzag=(dim,))
    return GRAPH.with_(level=Level.SHARDED, axes=(("tp", 8),), procedures=(), arrays=(array,))


def deep(count: int) -> Module:
    loop = Loop("v0", 1, ())
    for i in range(1, count):
        loop = Loop(f"v{i}", 1, (loop,))
    return GRAPH.with_(step=(loop,))


def returning(value: Value) -> Module:
    (p,) = GRAPH.procedures
    return GRAPH.with_(procedures=(replace(p, outputs=(Output(value),)),))


def indexed(index: Affine) -> Module:
    array = Array("a", X.type, Kind.PARAM, (4,))
    return GRAPH.with_(arrays=(array,), step=(Call("p", (Ref("a", (index,)),)),))


def handed(kind: Kind, extents: tuple[int, ...] = (), shared_by: str = "") -> Module:
    """The module with an array that calls hand on, and one that lies in it."""
    array = Array("h", X.type, kind, extents, handed=True)
    return GRAPH.with_(
        arrays=(array, Array("s", X.type, Kind.SCALAR, storage=shared_by))[: 1 + bool(shared_by)]
    )


PLANTED = {
    "axis `tp` has size 0": lambda: GRAPH.with_(axes=(("tp", 0),)),
    "axis `tp` is defined twice": lambda: GRAPH.with_(axes=(("tp", 2), ("tp", 2))),
    "`recompute` must be none, selective or full, not some": lambda: with_train(recompute="some"),
    "`kind` must be adamw or sgd, not lion": lambda: with_train(optimizer=replace(GRAPH.train.optimizer, kind="lion")),
    "`microbatches` must be an integer from 1": lambda: with_train(microbatches=0),
    "a type has no layout at the graph": lambda: with_array(X.type.with_layout(Layout.whole(1)), Level.GRAPH),
    "a type has a layout from the sharded level on": lambda: with_array(X.type),
    "it has 1 dimensions and a layout of 2": lambda: with_array(X.type.with_layout(Layout.whole(2))),
    "`zigzag` has dimensions [1] of 1": lambda: with_order(1),
    "dimension 0 lies in zigzag, and no axis splits it": lambda: with_order(0),
    "dimension 0 of 8 lies in zigzag along `tp`, and does not divide into 16 pieces": lambda: with_order(0, ("tp",)),
    "it is handed from call to call, and is param with extents []": lambda: handed(Kind.PARAM),
    "it is handed from call to call, and is carried with extents [2]": lambda: handed(Kind.CARRIED, (2,)),
    "it is handed from call to call, and shares its bytes": lambda: handed(Kind.CARRIED, (), "h"),
    "loops more than 64 deep": lambda: deep(65),
    "has modulus -2": lambda: indexed(Affine(modulus=-2)),
    "`%z` is not defined before this": lambda: body(relu(Value("z", X.type), "y")),
    "`%x` is f32[8], not f64[8]": lambda: body(relu(Value("x", TensorType((8,), DType.F64)), "y")),
    "it has no result": lambda: body(relu(X)),
    "procedure `@p`: `%r` is not defined": lambda: returning(Value("r", X.type)),
}  # fmt: skip


@pytest.mark.parametrize("message", PLANTED)
def test_mistakes_that_no_text_can_spell_are_findings(message: str) -> None:
    planted: Callable[[], Module] = PLANTED[message]
    messages = [d.message for d in verify(planted())]
    assert [message in m for m in messages] == [True], messages
    assert [*verify(GRAPH)] == []


def test_all_mistakes_are_reported_at_once() -> None:
    messages = [d.message for d in verify(body(relu(X), relu(Value("z", X.type), "y"), relu(X, "y")))]
    assert len(messages) == 3


def test_a_use_before_its_definition_is_refused() -> None:
    first, second = relu(Value("b", X.type), "a"), relu(X, "b")
    assert ["before" in d.message for d in verify(body(first, second))] == [True]
    assert [*verify(body(second, first))] == []


# ------------------------------------------------------------------------- a whole step, broken in one place


@pytest.mark.parametrize("stream", [False, True])
def test_no_reshard_and_no_stream_of_a_step_can_be_left_out(stream: bool) -> None:
    step = Partition(stream=stream).run(Differentiate().run(models.llama({"dp": 2, "tatp": 2, "tp": 2})))
    assert [*verify(step)] == []
    broken = 0
    for i, p in enumerate(step.procedures):
        for op in p.statements:
            if isinstance(op, Reshard) or op.stream:
                without = without_reshard(p, op) if isinstance(op, Reshard) else without_stream(p, op)
                changed = (*step.procedures[:i], without, *step.procedures[i + 1 :])
                assert [*verify(step.with_(procedures=changed))], (p.name, op)
                broken += 1
    assert broken > 20


def without_reshard(p: Procedure, reshard: Reshard) -> Procedure:
    """The procedure in which everything that read the result of the reshard reads its operand."""

    def source(v: Value) -> Value:
        return reshard.operand if v == reshard.result else v

    body = tuple(s.with_operands(source) for s in p.statements if s != reshard)
    outputs = tuple(replace(o, value=source(o.value)) for o in p.outputs)
    return replace(p, body=body, outputs=outputs)


def without_stream(p: Procedure, streamed: Op) -> Procedure:
    return replace(p, body=tuple(replace(s, stream=None) if s == streamed else s for s in p.statements))


@given(
    st.integers(-20, 20),
    st.lists(st.tuples(st.sampled_from("uv"), st.integers(-4, 4)), max_size=3),
    st.integers(0, 5),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_an_interval_holds_every_value_of_the_index(
    base: int, terms: list[tuple[str, int]], modulus: int, u: int, v: int
) -> None:
    index = Affine(base, tuple(terms), modulus)
    values = [index.at({"u": i, "v": j}) for i in range(u) for j in range(v)]
    low, high = interval(index, {"u": u, "v": v})
    if modulus:
        assert low <= min(values) <= max(values) <= high
    else:
        assert (low, high) == (min(values), max(values))


def test_every_op_has_an_example_rule_that_fits() -> None:
    """The generator of modules draws each of them, and `test_wir` verifies its modules."""
    from tests.support.generate import EXAMPLES

    assert set(EXAMPLES) | {k for k, d in OPS.items() if d.form == "template"} == set(OPS)


def test_a_valid_module_before_hides_no_mistake_of_the_next() -> None:
    """Procedures that both modules have are checked once; a new procedure, or another placement, is checked."""
    step = Partition().run(Differentiate().run(models.llama({"dp": 2, "tp": 2})))
    assert [*verify(step, step)] == []
    i, p, op = next(
        (i, p, op) for i, p in enumerate(step.procedures) for op in p.statements if isinstance(op, Reshard)
    )
    changed = (*step.procedures[:i], without_reshard(p, op), *step.procedures[i + 1 :])
    assert [*verify(step.with_(procedures=changed), step)]
    lowered = compile_graph(models.gpt({"tatp": 4})).modules["lower_collectives"]
    assert [*verify(lowered, lowered)] == []
    a, b, c, d = lowered.dies
    assert [*verify(lowered.with_(dies=(a, c, b, d)), lowered)]
    # The same kernels on a buffer that has become too small for one of them.
    k, p, buffer = next(
        (k, p, b)
        for k, p in enumerate(lowered.procedures)
        for b in p.buffers
        if b.elements > 1 and not b.slot
    )
    shrunk = tuple(replace(b, elements=1) if b == buffer else b for b in p.buffers)
    smaller = lowered.with_(
        procedures=(*lowered.procedures[:k], replace(p, buffers=shrunk), *lowered.procedures[k + 1 :])
    )
    assert [*verify(smaller, lowered)]
