"""Break one thing at each level, and see the project's own checks catch it.

A mutation is caught if the program is refused by name, or its results leave the limits of section 8; one that is
caught by nothing must leave every bit as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

from tests.fuzz.strategies import compared, reference
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt, llama
from wscc.backends.artifact.files import Artifact
from wscc.backends.emit import emit
from wscc.backends.interpreter.kernels import table as kernels
from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, Trainer
from wscc.host.compare import Run
from wscc.ir.array import Kind
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Level, Module, Procedure
from wscc.ir.op import GraphStmt, Reshard
from wscc.ir.per_die import PerDie
from wscc.ir.streams.program import Column, Instruction, Program, Streams
from wscc.ir.text.print import to_text
from wscc.ir.verify import verify
from wscc.passes.differentiate import Differentiate
from wscc.passes.differentiate import rules as derivatives
from wscc.passes.form_phases import FormPhases
from wscc.passes.partition import Partition
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule

FAMILIES = {"gpt": gpt, "llama": llama}


def outcome(module: Module, artifact: Artifact, family: str, shape: Shape) -> str:
    """`right`, `wrong`, or the code of the error, of a run in checked mode."""
    try:
        trainer = Trainer(artifact, RunOptions(steps=2, checked=True, threads=1))
        losses, grads = [], {}
        with np.errstate(all="ignore"):
            for i, loss in enumerate(trainer.steps()):
                losses.append(loss)
                if i == 0:
                    grads = trainer.gradients()
        got = Run(losses, grads, trainer.arrays(Kind.PARAM))
    except CompileError as error:
        return str(error.diagnostics[0].code)
    return "right" if compared(module, got, reference(FAMILIES[family], shape, "adamw")).ok else "wrong"


@lru_cache
def compiled(family: str, axis: str, degree: int, batch: int) -> tuple[Module, Any]:
    module = FAMILIES[family]({axis: degree}, Shape(batch=batch))
    return module, compile_graph(module)


# ------------------------------------------------------------------------------------------ ops and kernels


def swapped(opcode: str, wrong: Callable[..., None]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(kernels.SEMANTICS, opcode, wrong)


def _shifted(opcode: str, position: int) -> Callable[[pytest.MonkeyPatch], None]:
    """The kernel with one integer attribute (counted from the end) off by one."""
    right = kernels.SEMANTICS[opcode]

    def wrong(*args: Any) -> None:
        changed = list(args)
        changed[-position] += 1
        right(*changed)

    return swapped(opcode, wrong)


def _scaled(opcode: str, result: int = 0) -> Callable[[pytest.MonkeyPatch], None]:
    """The kernel with one result a thousandth too large."""
    right = kernels.SEMANTICS[opcode]

    def wrong(*args: Any) -> None:
        right(*args)
        args[result][...] *= 1.001

    return swapped(opcode, wrong)


GPT = [
    "gemm", "layernorm", "gelu", "gelu_bwd", "softmax", "probs", "rowdot", "softmax_bwd", "gather", "sumexp",
    "sumexp_bwd", "nll", "nll_bwd", "mean", "mean_bwd", "count", "sum", "adamw", "pick", "pick_bwd", "layernorm_bwd",
    "scatter_add",
]  # fmt: skip
LLAMA = ["rmsnorm", "rmsnorm_bwd", "swiglu", "swiglu_bwd", "rope"]
Mistake = tuple[str, Callable[[], Callable[[pytest.MonkeyPatch], None]]]
MEANINGS: dict[str, Mistake] = {
    **{f"{op} a little off": ("gpt", partial(_scaled, op)) for op in GPT},
    **{f"{op} a little off": ("llama", partial(_scaled, op)) for op in LLAMA},
    "the gradient of a norm's gain": ("gpt", partial(_scaled, "layernorm_bwd", 1)),
    "the causal mask one row late": ("gpt", partial(_shifted, "softmax", 2)),
    "the backward mask one row late": ("gpt", partial(_shifted, "probs", 2)),
    "rows of a table one off": ("gpt", partial(_shifted, "gather", 1)),
    "labels one off": ("gpt", partial(_shifted, "pick", 1)),
    "positions of keys one off": ("llama", partial(_shifted, "softmax", 1)),
}


@pytest.mark.parametrize("mistake", MEANINGS)
def test_a_wrong_meaning_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one die: the reference shares no kernel with the interpreter."""
    family, make = MEANINGS[mistake]
    module, made = compiled(family, "dp", 1, 8)
    make()(monkeypatch)
    assert outcome(module, made.artifact, family, Shape(batch=8)) != "right"


def test_nothing_broken_is_right() -> None:
    for family in FAMILIES:
        module, made = compiled(family, "dp", 1, 8)
        assert outcome(module, made.artifact, family, Shape(batch=8)) == "right"


# ---------------------------------------------------------------------------------------------- derivatives


def used(family: str) -> list[str]:
    graph = FAMILIES[family]({})
    kinds = {op.kind for p in graph.procedures for op in p.ops}
    return sorted(kinds & set(derivatives.DERIVATIVES) - {"rowmax"})


KINDS = {k: f for f in reversed(FAMILIES) for k in used(f)}  # by the family that it is tried in


@pytest.mark.parametrize(("kind", "family"), sorted(KINDS.items()))
@pytest.mark.parametrize("mistake", ["dropped", "twice"])
def test_a_wrong_derivative_is_caught(
    kind: str, family: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last operand's gradient missing, or counted twice."""
    right = derivatives.DERIVATIVES[kind]

    def wrong(b: derivatives.Backward, dys: derivatives.Grads) -> derivatives.Grads:
        grads = list(right(b, dys))
        last = max(i for i, g in enumerate(grads) if g is not None)
        if mistake == "dropped":
            grads[last] = None
        else:
            value = grads[last]
            assert value is not None
            term = " ".join(f"i{n}" for n in range(len(value.type.shape)))
            grads[last] = b.tape.builder.one("scale", [value], f"{term} -> {term}", attrs={"factor": 2.0})
        return grads

    monkeypatch.setitem(derivatives.DERIVATIVES, kind, wrong)
    module = FAMILIES[family]({}, Shape(batch=8))
    assert outcome(module, artifact_of(module), family, Shape(batch=8)) != "right"


# -------------------------------------------------------------------------------------------------- sharded


def without(procedure: Procedure, gone: Reshard) -> Procedure:
    """The procedure as if a reshard had been forgotten: its readers get what it read."""
    source, made = gone.operand, gone.result

    body = tuple(
        s.with_operands(lambda v: source if v == made else v) for s in procedure.statements if s is not gone
    )
    outputs = tuple(replace(o, value=source) if o.value == made else o for o in procedure.outputs)
    return replace(procedure, body=body, outputs=outputs)


def forgotten() -> Iterator[tuple[Module, GraphStmt]]:
    for degrees in ({"tp": 2}, {"tatp": 2}, {"dp": 2, "tp": 2}):
        module = Partition().run(Differentiate().run(gpt(degrees, Shape(batch=8))))
        assert not list(verify(module))
        for p in module.procedures:
            for op in p.statements:
                if isinstance(op, Reshard) or op.stream is not None:
                    broken = without(p, op) if isinstance(op, Reshard) else replace(
                        p, body=tuple(replace(o, stream=None) if o is op else o for o in p.statements)
                    )  # fmt: skip
                    procedures = tuple(broken if q is p else q for q in module.procedures)
                    yield module.with_(procedures=procedures), op


def test_any_forgotten_reshard_or_stream_is_named_by_the_verifier() -> None:
    """Partial read as complete, an update of an unreduced gradient, a shard read as the whole: all of them."""
    count = 0
    for broken, op in forgotten():
        count += 1
        assert list(verify(broken)), op
    assert count > 60


# --------------------------------------------------------------------------------------------------- fabric


@lru_cache
def is_right(axis: str, degree: int, batch: int) -> bool:
    module, made = compiled("gpt", axis, degree, batch)
    return outcome(module, made.artifact, "gpt", Shape(batch=batch)) == "right"


def changed(stmt: Kernel, name: str) -> Kernel:
    return replace(stmt, attrs=tuple((n, 0 if n == name else v) for n, v in stmt.attrs))


@pytest.mark.parametrize(
    ("opcode", "attr", "axis", "degree", "batch"),
    [
        # tatp = 4 on calls of one sequence splits positions: queries, streamed keys, their backward.
        ("softmax", "q_start", "tatp", 4, 2), ("softmax", "k_start", "tatp", 4, 2),
        ("probs", "q_start", "tatp", 4, 2), ("probs", "k_start", "tatp", 4, 2),
        ("gather", "start", "tatp", 2, 4), ("scatter_add", "start", "tatp", 2, 4),
        ("pick", "start", "tp", 2, 4), ("pick_bwd", "start", "tp", 2, 4),
    ],
)  # fmt: skip
def test_an_offset_forgotten_is_caught(opcode: str, attr: str, axis: str, degree: int, batch: int) -> None:
    shape = Shape(batch=batch)
    module, made = compiled("gpt", axis, degree, batch)
    assert is_right(axis, degree, batch)
    planned = made.modules["plan_memory"]
    hit = 0

    def fix(stmt: Any) -> Any:
        nonlocal hit
        if isinstance(stmt, Kernel) and stmt.opcode == opcode and isinstance(stmt.attr(attr), PerDie):
            hit += 1
            return changed(stmt, attr)
        return stmt

    procedures = tuple(replace(p, body=tuple(map(fix, p.body))) for p in planned.procedures)
    streams, manifest = emit(planned.with_(procedures=procedures))
    assert hit
    assert outcome(module, Artifact(streams, manifest, to_text(module)), "gpt", shape) != "right"


def test_a_transfer_to_the_wrong_die_is_caught() -> None:
    """Both ends swapped among the pairs of another axis position: the bits arrive, at the wrong die."""
    module, made = compiled("gpt", "tatp", 4, 8)
    lowered = made.modules["lower_collectives"]
    assert lowered.level is Level.FABRIC
    hit = False

    def fix(stmt: Any) -> Any:
        nonlocal hit
        if not hit and isinstance(stmt, Transfer) and isinstance(stmt.to, PerDie):
            hit = True
            return replace(stmt, to=PerDie(stmt.to.values[1:] + stmt.to.values[:1]))
        return stmt

    procedures = tuple(replace(p, body=tuple(map(fix, p.body))) for p in lowered.procedures)
    try:
        broken = lowered.with_(procedures=procedures)
        for step in (FormPhases(), Route(), Schedule(), PlanMemory()):
            broken = step.run(broken)
            if list(verify(broken)):
                return
        streams, manifest = emit(broken)
    except CompileError:
        return
    artifact = Artifact(streams, manifest, to_text(module))
    assert outcome(module, artifact, "gpt", Shape(batch=8)) != "right"


# -------------------------------------------------------------------------------------------------- streams


def edits(i: Instruction) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """What may go wrong with one instruction: it is lost, said twice, or one of its numbers is another."""
    yield "deleted", ()
    yield "repeated", (i, i)
    for n, (name, value) in enumerate(i.attrs):
        if isinstance(value, bool):
            other: Any = not value
        elif isinstance(value, int | float):
            other = value + 1
        elif name == "side":
            other = "sent" if value == "received" else "received"
        else:
            continue
        yield f"{name} changed", (replace(i, attrs=(*i.attrs[:n], (name, other), *i.attrs[n + 1 :])),)
    for kind in ("reads", "writes"):
        operands = getattr(i, kind)
        for n, o in enumerate(operands):
            if not isinstance(o.offset, Column):
                moved = (*operands[:n], replace(o, offset=o.offset + 64), *operands[n + 1 :])
                yield f"{kind}[{n}] moved", (replace(i, **{kind: moved}),)


def edited(streams: Streams, role: int, proc: int, at: int, new: tuple[Instruction, ...]) -> Streams:
    program = streams.programs[role]
    code = program.procedures[proc]
    body = (*code.body[:at], *new, *code.body[at + 1 :])
    procedures = (*program.procedures[:proc], replace(code, body=body), *program.procedures[proc + 1 :])
    made: Program = replace(program, procedures=procedures)
    return replace(streams, programs=(*streams.programs[:role], made, *streams.programs[role + 1 :]))


@pytest.mark.parametrize(("axis", "degree"), [("tatp", 2), ("tp", 2)])
def test_a_corrupted_stream_is_caught_or_changes_no_bit(axis: str, degree: int) -> None:
    """40 random corruptions: refused at load, stopped in checked mode, stuck with its cycle named, or wrong
    beyond the limits; what is none of these computes the very same bits."""
    module, made = compiled("gpt", axis, degree, 4)
    shape, artifact = Shape(batch=4), made.artifact
    rng = np.random.default_rng(0)
    right = list(Trainer(artifact, RunOptions(steps=2, checked=True, threads=1)).steps())
    places = [
        (r, p, i)
        for r, program in enumerate(artifact.streams.programs)
        for p, code in enumerate(program.procedures)
        for i in range(len(code.body))
    ]
    harmless = 0
    for _ in range(20):
        r, p, i = places[rng.integers(len(places))]
        choices = list(edits(artifact.streams.programs[r].procedures[p].body[i]))
        what, new = choices[rng.integers(len(choices))]
        broken = replace(artifact, streams=edited(artifact.streams, r, p, i, new))
        if outcome(module, broken, "gpt", shape) != "right":
            continue
        harmless += 1
        again = list(Trainer(broken, RunOptions(steps=2, checked=True, threads=1)).steps())
        assert np.array(again).tobytes() == np.array(right).tobytes(), (r, p, i, what)
    assert harmless < 8
